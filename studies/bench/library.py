"""`shortlist bench library`: a choice of the library's `LinearBandit` by each index.

Notation
    K, k        arms, standard normal in 32 dimensions; length of a list
    index       numpy: the best of a float64 product with all arms, as one would write it; exact: the default.
                The others as `LinearBandit` takes them
    us          median processor time of a choice: the draw and the search, after 300 rewards
    speedup     median over the turns of (us of exact / us)
    recall      share of the arms of exact's lists that are in these
    build_s     processor time of making the bandit

Each draws the same. They take turns of 50 choices, so that all see the machine in one state.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from shortlist.linear.bandit import LinearBandit
from shortlist.types import NO_ROWS, Matrix, Rows, TopK, Vector
from shortlist_client.progress import progress
from studies.measurement import report

QUICK_SIZES, SIZES = (10_000, 100_000), (10_000, 100_000, 1_000_000)
DIM, SEED, REWARDS = 32, 80, 300
TURNS, TURN = 10, 50
LENGTHS = (1, 10)
INDEXES = ("exact", "numpy", "inverted_file", "hnsw")


class Product:
    """A ``MipsSolver`` of two lines of numpy."""

    def __init__(self, arms: Matrix) -> None:
        self._arms = arms

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        scores = self._arms @ query
        scores[exclude] = -np.inf
        rows = np.argpartition(-scores, k)[:k]
        rows = rows[np.argsort(-scores[rows])]
        return TopK(rows, scores[rows], exact=True)


def run(quick: bool, sizes: tuple[int, ...] | None = None) -> dict[str, Any]:
    """Time choices among so many arms; print and return the rows."""
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1):
        for count in progress(sizes or (QUICK_SIZES if quick else SIZES), "sizes"):
            rows += _case(count)
    return report("library", rows, seed=SEED)


def _case(count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng((SEED, count))
    arms, truth = rng.standard_normal((count, DIM)), rng.standard_normal(DIM)
    shown = rng.integers(count, size=REWARDS)
    rewards = arms[shown] @ truth + rng.standard_normal(REWARDS)
    bandits, build_s = [], []
    for index in INDEXES:
        started = time.process_time()
        solver = Product(arms) if index == "numpy" else index
        bandit = LinearBandit(arms, index=solver, rng=np.random.default_rng(SEED))
        build_s.append(time.process_time() - started)
        bandits.append(bandit.partial_fit(shown, rewards))
    rows = []
    for k in LENGTHS:
        us = np.empty((len(INDEXES), TURNS, TURN))
        lists = np.empty((len(INDEXES), TURNS, TURN, k), dtype=np.int64)
        for turn in range(TURNS):
            for place, bandit in enumerate(bandits):
                for number in range(TURN):
                    started = time.thread_time()
                    found = bandit.choose(k)
                    us[place, turn, number] = 1e6 * (time.thread_time() - started)
                    lists[place, turn, number] = found
        exact, by_turn = lists[0].reshape(-1, k), np.median(us, axis=2)
        for place, index in enumerate(INDEXES):
            pairs = zip(exact, lists[place].reshape(-1, k), strict=True)
            rows.append(
                {
                    "K": count,
                    "k": k,
                    "index": index,
                    "us": float(np.median(us[place])),
                    "speedup": float(np.median(by_turn[0] / by_turn[place])),
                    "recall": float(np.mean([np.isin(best, found).mean() for best, found in pairs])),
                    "build_s": build_s[place],
                }
            )
    return rows
