"""What the bandits are compared with: the most popular arm that is there, and a random one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from examples.environments import Environment, Matrix


def baselines(game: Environment, *, rounds: int, repeats: bool, seed: int) -> dict[str, Matrix]:
    """Regrets (L, rounds) by name. Popularity is that among the users whom the features come from."""
    rng = np.random.default_rng(seed)
    scores: dict[str, Callable[[], Matrix]] = {}
    if game.popularity is not None:
        popularity = np.broadcast_to(game.popularity, game.means.shape)
        scores["most popular"] = lambda: popularity
    scores["random"] = lambda: rng.random(game.means.shape)
    return {name: _follow(game, score, rounds, repeats) for name, score in scores.items()}


def _follow(game: Environment, score: Callable[[], Matrix], rounds: int, repeats: bool) -> Matrix:
    """Every learner takes the arm of largest score in each round."""
    learners = np.arange(len(game.learners))
    regrets = np.empty((len(learners), rounds))
    taken = np.zeros(game.means.shape, dtype=bool)
    for at in range(rounds):
        block = at // game.block
        scores = np.where(taken, -np.inf, score())[:, : game.present[block]]
        arms = scores.argmax(axis=1)
        regrets[:, at] = game.best[:, block] - game.means[learners, arms]
        taken[learners, arms] = not repeats
    return regrets
