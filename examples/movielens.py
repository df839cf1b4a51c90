"""MovieLens as the environment of section 7: users who rate, and movies that arrive while they are served.

Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", section 7, "Movie
Recommendation"; reading, holding back and features are those of `shortlist reproduce table3`.
"""

from __future__ import annotations

import numpy as np

from examples.environments import Environment, Rows, arrivals
from studies.experiments.movielens import LEAST_RATINGS, Ratings, movie_features, read, split

__all__ = ["LEAST_RATINGS", "Ratings", "environment", "movie_features", "read", "split"]

BLOCK = 20
RIDGE, EXPLORATION = 0.3, 0.05  # from `python -m examples.tuning`, on users who are not held back


def environment(ratings: Ratings, players: Rows, known: Rows, *, rounds: int, seed: int) -> Environment:
    """``players`` are served; the features of the movies come from the ratings of ``known``.

    Half of the movies are there at the start, and in the last block all of them are.
    """
    good = ratings.good
    order = np.random.default_rng(seed).permutation(len(ratings.movie_ids))
    blocks = max(1, rounds // BLOCK)
    means = good[players].toarray()[:, order]
    return Environment(
        title=f"MovieLens: {len(players)} users held back, features from the other {len(known)}",
        rules="regret is 1 unless the user rated the movie 4 or more; as in the paper, repeats are allowed",
        scope="per_key",
        learners=[f"user-{user}" for user in players],
        features=movie_features(good, known)[order],
        means=means,
        best=np.ones((len(players), blocks)),
        popularity=good[known].sum(axis=0)[order],
        present=arrivals((len(order) + 1) // 2, len(order), blocks),
        block=BLOCK,
        noise_std=0.0,
        ridge=RIDGE,
        exploration=EXPLORATION,
    )
