"""MovieLens as an environment: users who are new, click or do not, and are shown no film twice.

Reading and holding back are those of `shortlist reproduce table3`; who clicks is `movielens.clicked`.
``liked_films`` is the environment of that table: a film is liked or not, and repeats are allowed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from examples.environments import Environment, Matrix, Rows, arrivals
from studies.experiments.movielens import LEAST_RATINGS, Ratings, clicked, movie_features, read, split

__all__ = ["LEAST_RATINGS", "Ratings", "environment", "liked_films", "movie_features", "read", "split"]

BLOCK = 20
RIDGE, EXPLORATION = 0.3, 0.05  # the best of a grid for ``liked_films``, each user alone
# The best of `python -m examples.tuning`, which plays with users who are not held back.
TUNED = {"prior": "pooled", "prior_strength": 100.0, "ridge": 1.0, "exploration": 0.1}


def environment(ratings: Ratings, players: Rows, known: Rows, *, rounds: int, seed: int) -> Environment:
    """``players`` are served; the features of the films come from the ratings of ``known``.

    Half of the films are there at the start, and in the last block all of them are.
    """
    features, chances = clicked(ratings, players, known)
    return Environment(
        title=f"MovieLens: {len(players)} new users, features from the other {len(known)}",
        rules="clicks are drawn: the more likely, the better a user rated a film, or would; no film is shown "
        "twice; regret is the share of films that are not clicked",
        bandits={"Sub-TS": {"policy": "sub_ts"}, "tuned by hand": {"policy": "sub_ts", **TUNED}},
        clicks=True,
        repeats=False,
        **_arriving(ratings, players, known, features, chances, rounds=rounds, seed=seed),
    )


def liked_films(ratings: Ratings, players: Rows, known: Rows, *, rounds: int, seed: int) -> Environment:
    """As ``environment``, but a reward is 1 where the user rated the film 4 or more, else 0."""
    good = ratings.good
    features, means = movie_features(good, known), good[players].toarray()
    return Environment(
        title=f"MovieLens: {len(players)} users held back, features from the other {len(known)}",
        rules="regret is 1 unless the user rated the movie 4 or more; as in the paper, repeats are allowed",
        bandits={"Sub-TS": {"policy": "sub_ts"}},
        **_arriving(ratings, players, known, features, means, rounds=rounds, seed=seed),
    )


def _arriving(
    ratings: Ratings, players: Rows, known: Rows, features: Matrix, means: Matrix, *, rounds: int, seed: int
) -> dict[str, Any]:
    """What both environments have in common. The films come in a random order."""
    order = np.random.default_rng(seed).permutation(len(ratings.movie_ids))
    blocks = max(1, rounds // BLOCK)
    return {
        "scope": "per_key",
        "learners": [f"user-{user}" for user in players],
        "features": features[order],
        "means": means[:, order],
        "best": np.ones((len(players), blocks)),
        "popularity": ratings.good[known].sum(axis=0)[order],
        "present": arrivals((len(order) + 1) // 2, len(order), blocks),
        "block": BLOCK,
        "noise_std": 0.0,
    }
