"""Where RIDGE and EXPLORATION of ``movielens`` come from: a simulation without the service.

    python -m examples.tuning --data DIR

Plays the game of the demonstration with users who are neither held back there nor part of the features
here, and prints the mean regret for every pair of values. Takes a few seconds a pair.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from examples import movielens
from examples.environments import Environment
from shortlist.linear import linear_ts, ridge, ridge_sums
from shortlist_client.files.progress import progress

RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0)
EXPLORATIONS = (0.01, 0.03, 0.05, 0.1, 0.3, 1.0)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.tuning", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a MovieLens directory")
    parser.add_argument("--users", type=int, default=100, help="as many as the demonstration holds back")
    parser.add_argument("--rounds", type=int, default=200, help="rounds of each user")
    parser.add_argument("--seed", type=int, default=1, help="that of the demonstration")
    parsed = parser.parse_args(arguments)

    ratings = movielens.read(parsed.data)
    _, others, known = movielens.split(ratings, parsed.users, seed=parsed.seed)
    known = np.setdiff1d(known, others)
    game = movielens.environment(ratings, others, known, rounds=parsed.rounds, seed=parsed.seed)
    print(f"mean regret of {game.rounds} rounds, {len(others)} users; columns: exploration, rows: ridge")
    print(" " * 6 + "".join(f"{value:8}" for value in EXPLORATIONS))
    for strength in RIDGES:
        row = [mean_regret(game, ridge=strength, exploration=value, seed=2) for value in EXPLORATIONS]
        print(f"{strength:6}" + "".join(f"{value:8.1f}" for value in row), flush=True)
    return 0


def mean_regret(game: Environment, *, ridge: float, exploration: float, seed: int) -> float:
    """Mean over the learners of the regret of linear Thompson sampling, by the service's own algorithm."""
    rng = np.random.default_rng(seed)
    learners = progress(
        range(len(game.learners)), f"ridge {ridge:g}, exploration {exploration:g}", leave=False
    )
    return float(np.mean([_regret(game, learner, ridge, exploration, rng) for learner in learners]))


def _regret(
    game: Environment, learner: int, strength: float, exploration: float, rng: np.random.Generator
) -> float:
    sums = ridge_sums.empty(game.features.shape[1])
    total = 0.0
    for at in range(game.rounds):
        block = at // game.block
        there = game.features[: game.present[block]]
        posterior = ridge.posterior(sums, ridge=strength)
        chosen = linear_ts.choose(posterior, there, k=1, exploration=exploration, rng=rng).rows
        means = game.means[learner, chosen]
        sums = ridge_sums.add(sums, there[chosen], means, np.array([True]))
        total += float(game.best[learner, block] - means[0])
    return total


if __name__ == "__main__":
    sys.exit(main())
