"""Worlds by their noise, a part of `shortlist bench defaults`: one learner without a setting, and an oracle.

Arms are N(0, I / d), theta is N(0, signal^2 I), and the noise is 1. Regret is that of expected rewards, as a
share of what random arms lose.

Columns
    signal      how much the expected rewards of the arms vary beside the noise
    D, K        numbers that are learned, the constant among them; arms
    rounds      decisions
    ours        without a setting
    before      the same with ``auto`` 1
    less        1 - ours / before of the mean regrets; t: their difference in paired draws, over its standard
                error
    oracle      with the true prior and the true noise; the draws are as large as those of a learned prior
    ratio       ours / oracle of the mean regrets: the row with the largest is the first
    ..._error   standard error over draws
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from shortlist.types import Vector
from shortlist_client.files.progress import progress
from studies.bench.few_keys import Setting, World, play

SEED = 7_203
SIGNALS = (30.0, 10.0, 3.0, 1.0, 0.3)
ROUNDS = {16: 300, 64: 500}  # by d
ARMS = (1_000, 20_000)
EXPLORATION = 0.6
OURS = Setting(intercept=True)
BEFORE = Setting(intercept=True, auto=1)


def rows(
    draws: int,
    *,
    signals: Sequence[float] = SIGNALS,
    dims: Sequence[int] = tuple(ROUNDS),
    arms: Sequence[int] = ARMS,
    rounds: int | None = None,
) -> Sequence[dict[str, Any]]:
    """A row for each world, the worst first; ``rounds``: None, those of ``ROUNDS``."""
    found = []
    for signal, dim, count in progress(list(product(signals, dims, arms)), "levels of noise"):
        worlds = [world(signal, dim, count, draw, rounds or ROUNDS[dim]) for draw in range(draws)]
        ours, before = regrets(worlds, OURS), regrets(worlds, BEFORE)
        oracle = regrets(worlds, Setting(EXPLORATION, ridge=signal**-2.0))
        row = {"world": "noise", "signal": signal, "D": dim + 1, "K": count, "rounds": worlds[0].rounds}
        row |= {**_mean("ours", ours), **_mean("oracle", oracle), "ratio": float(ours.mean() / oracle.mean())}
        row |= {**_mean("before", before), "less": 1.0 - float(ours.mean() / before.mean())}
        row["t"] = _t(before - ours)
        found.append(row)
    return sorted(found, key=lambda row: -row["ratio"])


def world(signal: float, dim: int, arms: int, draw: int, rounds: int) -> World:
    """One key."""
    rng = np.random.default_rng((SEED, dim, arms, draw))  # of each signal the same arms and directions
    features = rng.standard_normal((arms, dim)) / np.sqrt(dim)
    means = features @ (signal * rng.standard_normal(dim))
    return World(f"signal {signal:g}", features, lambda _key, _at: means, means, 1, rounds)


def regrets(worlds: Sequence[World], setting: Setting) -> Vector:
    """Of each world, as a share of what random arms lose. Shape: (worlds,)."""
    shares = []
    for seed, played in enumerate(worlds):
        means = played.means(0, 0)
        lost = means.max() - play(played, setting, seed=seed).mean()
        shares.append(lost / (means.max() - means.mean()))
    return np.array(shares)


def _mean(name: str, values: Vector) -> dict[str, float | None]:
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return {name: float(values.mean()), f"{name}_error": error}


def _t(differences: Vector) -> float | None:
    if len(differences) < 2:
        return None
    error = float(differences.std(ddof=1) / np.sqrt(len(differences)))
    return float(differences.mean()) / error if error else None
