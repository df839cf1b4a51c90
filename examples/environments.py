"""Environments to play in: who asks, which arms there are when, and how good each one is.

Notation
    L, K, d     number of learners, number of arms at the end, dimension
    T, block    rounds of every learner, rounds between two arrivals of arms
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
OTHERS = 200
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Environment:
    """What is played; arms arrive in the order of their rows.

    Shapes: features (K, d), means (L, K) expected rewards, best (L, T // block) the reward that regret is
    measured from, popularity (K,) an arm's success with others where that is known. ``present[b]`` is the
    number of arms that have arrived before block b. Rewards are means plus Gaussian noise of ``noise_std``,
    or clicks with these chances. ``bandits``: what plays, and its settings besides catalogue and scope.
    """

    title: str
    rules: str
    scope: Literal["global", "per_key"]
    learners: list[str]
    features: Matrix
    means: Matrix
    best: Matrix
    popularity: NDArray[Any] | None
    present: list[int]
    block: int
    noise_std: float
    bandits: Mapping[str, Mapping[str, Any]]
    clicks: bool = False
    repeats: bool = True

    @property
    def rounds(self) -> int:
        return self.block * len(self.present)


def arrivals(first: int, last: int, blocks: int) -> list[int]:
    """Number of arms present in each block, growing evenly from ``first`` to ``last``."""
    return [int(n) for n in np.linspace(first, last, blocks).round()]


def synthetic(*, runs: int, rounds: int, seed: int, arms: int = 5_000, dim: int = 16) -> Environment:
    """The synthetic environment of section 7: theta*, arms and noise are standard normal.

    Two arms arrive every 20 rounds and the last make ``arms``. Each run has a theta* of its own.
    Popular is what ``OTHERS`` further ones like together.
    """
    rng = np.random.default_rng(seed)
    block = 20
    blocks = max(1, rounds // block)
    features = rng.standard_normal((arms, dim))
    means = rng.standard_normal((runs, dim)) @ features.T
    others = rng.standard_normal((OTHERS, dim)).sum(axis=0)
    present = arrivals(arms - 2 * (blocks - 1), arms, blocks)
    return Environment(
        title=f"the synthetic environment of the paper: K = {arms}, d = {dim}, {runs} runs",
        rules="theta*, arms and noise are N(0, I); two arms arrive every 20 rounds; regret is what the best "
        "arm that is there would have brought on average, less what the chosen one brings",
        scope="global",
        learners=[f"run-{number}" for number in range(runs)],
        features=features,
        means=means,
        best=np.stack([means[:, :count].max(axis=1) for count in present], axis=1),
        popularity=others @ features.T,
        present=present,
        block=block,
        noise_std=1.0,
        bandits={"Sub-TS": {"policy": "sub_ts"}, "exact TS": {"policy": "linear_ts"}},
    )
