"""Worlds by their noise, a part of `shortlist bench defaults`: one learner without a setting, and an oracle.

Arms are N(0, I / d), theta is N(0, signal^2 I), and the noise is 1. Regret is that of expected rewards, as a
share of what random arms lose.

Columns
    signal      how much the expected rewards of the arms vary beside the noise
    policy      of ours; the oracle is always linear_ts
    D, K        numbers that are learned, the constant among them; arms
    silent      so many decisions at first are told a reward of 0, and are not counted
    rounds      decisions
    ours        without a setting
    oracle      with the true prior and the true noise; the draws are as large as those of a learned prior
    ratio       ours / oracle of the mean regrets: the row with the largest is the first
    ..._error   standard error over draws
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from shortlist.types import Vector
from shortlist_client.progress import progress
from studies.bench.few_keys import PolicyName, Setting, World, play

SEED = 7_203
SIGNALS = (30.0, 10.0, 3.0, 1.0, 0.3)
ROUNDS = {16: 300, 64: 500, 128: 500}  # by d
ARMS = (1_000, 20_000)
SILENT = (60, 440)  # decisions that are told 0, and those after them
EXPLORATION = 0.6
POLICIES: Sequence[PolicyName] = ("softmax", "igw", "linucb")


def rows(
    draws: int,
    *,
    signals: Sequence[float] = SIGNALS,
    dims: Sequence[int] = tuple(ROUNDS),
    arms: Sequence[int] = ARMS,
    rounds: int | None = None,
) -> Sequence[dict[str, Any]]:
    """A row for each world, the worst first; ``rounds``: None, those of ``ROUNDS``."""
    cells = list(product(signals, dims, arms))
    found = [
        row_of([world(signal, dim, count, draw, rounds or ROUNDS[dim]) for draw in range(draws)], signal)
        for signal, dim, count in progress(cells, "levels of noise")
    ]
    return sorted(found, key=lambda row: -row["ratio"])


def policy_rows(draws: int, *, signals: Sequence[float] = SIGNALS) -> Sequence[dict[str, Any]]:
    """A row for each other policy and signal, of the least world."""
    dim, count = next(iter(ROUNDS)), ARMS[0]
    return [
        row_of([world(signal, dim, count, draw, ROUNDS[dim]) for draw in range(draws)], signal, policy)
        for policy, signal in progress(list(product(POLICIES, signals)), "policies")
    ]


def silent_rows(draws: int, *, signals: Sequence[float] = (10.0, 1.0)) -> Sequence[dict[str, Any]]:
    """A row for each signal: the least world, where nothing sends rewards at first."""
    dim, (silent, rounds) = next(iter(ROUNDS)), SILENT
    return [
        row_of(
            [
                replace(world(signal, dim, ARMS[0], draw, silent + rounds), silent=silent)
                for draw in range(draws)
            ],
            signal,
        )
        for signal in signals
    ]


def row_of(worlds: Sequence[World], signal: float, policy: PolicyName = "linear_ts") -> dict[str, Any]:
    """``worlds``: the draws of one."""
    first = worlds[0]
    ours = regrets(worlds, Setting(intercept=True, policy=policy))
    oracle = regrets(worlds, Setting(EXPLORATION, ridge=signal**-2.0))
    return {
        "world": "noise",
        "signal": signal,
        "policy": policy,
        "D": first.dim + 1,
        "K": len(first.features),
        "rounds": first.rounds - first.silent,
        "silent": first.silent,
        **mean_and_error("ours", ours),
        **mean_and_error("oracle", oracle),
        "ratio": float(ours.mean() / oracle.mean()),
    }


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
        lost = means.max() - play(played, setting, seed=seed)[:, played.silent :].mean()
        shares.append(lost / (means.max() - means.mean()))
    return np.array(shares)


def mean_and_error(name: str, values: Vector) -> dict[str, float | None]:
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return {name: float(values.mean()), f"{name}_error": error}
