"""Campaigns for the k-center tables, played to their end against distances that are known.

A rule chooses 5 % more queries at a time, and their answers are drawn as sums of each pair. A campaign that
needs more than ``most`` queries is broken off there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from shortlist.kcenter import ask_tell, ns_tands, ns_ts
from shortlist.kcenter.intervals import Counts
from shortlist.kcenter.noisy_state import NoisyState, Threshold
from shortlist.types import Matrix

_LEAST = 50
_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Setting:
    """What all methods of a row share. ``noise_std`` None: judgements 0 or 1. Shapes: distances (n, n)."""

    distances: Matrix
    k: int
    noise_std: float | None
    delta: float
    most: int
    seed: int


@dataclass(frozen=True, slots=True)
class Played:
    """Centres found, queries they took, and whether all were found."""

    centers: tuple[int, ...]
    queries: int
    done: bool


def play(
    setting: Setting,
    method: Literal["ns_ts", "ns_tands", "random"],
    *,
    mix: float = 0.0,
    threshold: Threshold = "proven",
) -> Played:
    """Play until the centres are found, from point 0; ``random`` asks any pairs of the stage."""
    rng = np.random.default_rng(setting.seed)
    state = _start(setting, method, rng, mix, threshold)
    while not state.done and state.observed < setting.most:
        count = min(max(_LEAST, int(_SHARE * state.observed)), setting.most - state.observed)
        state = _told(state, setting, _asked(state, method, count, rng), rng)
    return Played(state.centers, state.observed, state.done)


def _asked(state: NoisyState, method: str, count: int, rng: np.random.Generator) -> Counts:
    """Return how often every pair is asked next. Shapes: -> (p, n)."""
    found, n = len(state.centers), state.settings.n
    if method == "random":
        others = np.ones((found, n))
        others[:, list(state.centers)] = 0.0
        drawn: Counts = rng.multinomial(count, (others / others.sum()).ravel()).reshape(found, n)
        return drawn
    points, rows = (ns_tands if method == "ns_tands" else ns_ts).choose(state, count, rng)
    return np.bincount(rows * n + points, minlength=found * n).reshape(found, n)


def _start(
    setting: Setting, method: str, rng: np.random.Generator, mix: float, threshold: Threshold
) -> NoisyState:
    n, delta = len(setting.distances), setting.delta
    noise: Literal["gaussian", "bernoulli"] = "bernoulli" if setting.noise_std is None else "gaussian"
    if method == "ns_tands":
        return ns_tands.start(
            n=n, k=setting.k, delta=delta, rng=rng, first=0, noise=noise, noise_std=setting.noise_std,
            epsilon=0.0, threshold=threshold,
        )  # fmt: skip
    return ns_ts.start(
        n=n, k=setting.k, delta=delta, rng=rng, first=0, noise=noise, noise_std=setting.noise_std,
        epsilon=0.0, mix=mix,
    )  # fmt: skip


def _told(state: NoisyState, setting: Setting, asked: Counts, rng: np.random.Generator) -> NoisyState:
    """Take the answers as their sums, which are all that a state keeps of them."""
    found = len(state.centers)
    means = setting.distances[list(state.centers)]
    if setting.noise_std is None:
        answers = rng.binomial(asked, means).astype(np.float64)
    else:
        answers = asked * means + setting.noise_std * np.sqrt(asked) * rng.standard_normal(means.shape)
    counts, sums = state.counts.copy(), state.sums.copy()
    counts[:found] += asked
    sums[:found] += answers
    told = replace(state, counts=counts, sums=sums, observed=state.observed + int(asked.sum()))
    return ask_tell.settled(told)
