"""MovieLens as an environment: users who are new, click or do not, and are shown no film twice.

Reading and holding back are those of `shortlist reproduce table3`; who clicks is `movielens.clicked`.
"""

from __future__ import annotations

import numpy as np

from examples.environments import Environment, Rows, arrivals
from studies.experiments.movielens import LEAST_RATINGS, Ratings, clicked, read, split

__all__ = ["LEAST_RATINGS", "Ratings", "environment", "read", "split"]

BLOCK = 20


def environment(ratings: Ratings, players: Rows, known: Rows, *, rounds: int, seed: int) -> Environment:
    """``players`` are served; the features of the films come from the ratings of ``known``.

    The films come in a random order: half of them are there at the start, and in the last block all are.
    """
    features, chances = clicked(ratings, players, known)
    order = np.random.default_rng(seed).permutation(len(ratings.movie_ids))
    blocks = max(1, rounds // BLOCK)
    return Environment(
        title=f"MovieLens: {len(players)} new users, features from the other {len(known)}",
        rules="clicks are drawn: the more likely, the better a user rated a film, or would; no film is shown "
        "twice; regret is the share of films that are not clicked",
        scope="per_key",
        learners=[f"user-{user}" for user in players],
        features=features[order],
        means=chances[:, order],
        best=np.ones((len(players), blocks)),
        popularity=ratings.good[known].sum(axis=0)[order],
        present=arrivals((len(order) + 1) // 2, len(order), blocks),
        block=BLOCK,
        bandits={"Sub-TS": {"policy": "sub_ts"}},
        clicks=True,
        noise_std=0.0,
        repeats=False,
    )
