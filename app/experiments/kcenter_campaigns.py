"""Campaigns for the k-center tables, played to their end against distances that are known.

Answers are drawn many at a time; a campaign that needs more than ``most`` queries is broken off there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from app.algorithms.kcenter import ask_tell, ns_tands, ns_ts
from app.algorithms.kcenter.noisy_state import State, Threshold
from app.algorithms.types import Matrix, Rows, Vector

_LEAST = 50
_SHARE = 0.05

Answers = Callable[[Vector, np.random.Generator], Vector]


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
    """Ask and tell until the centres are found, from point 0; ``random`` asks any pairs of the stage."""
    rng = np.random.default_rng(setting.seed)
    state = _start(setting, method, rng, mix, threshold)
    while not state.done and state.observed < setting.most:
        count = min(ask_tell.MOST_ASKED, max(_LEAST, int(_SHARE * state.observed)))
        if method == "random":
            others = np.delete(np.arange(len(setting.distances)), state.centers)
            points = rng.choice(others, size=count)
            state = _told(state, setting, points, rng.integers(len(state.centers), size=count), rng)
        else:
            state, queries = ask_tell.ask(state, count, rng=rng)
            values = _answers(setting, np.array([query.pair for query in queries]).T, rng)
            results = [(query.number, value) for query, value in zip(queries, values.tolist(), strict=True)]
            state = ask_tell.tell(state, results)
    return Played(state.centers, state.observed, state.done)


def _start(
    setting: Setting, method: str, rng: np.random.Generator, mix: float, threshold: Threshold
) -> State:
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


def _answers(setting: Setting, pairs: Rows, rng: np.random.Generator) -> Vector:
    means = setting.distances[pairs[0], pairs[1]]
    if setting.noise_std is None:
        judgements: Vector = (rng.random(means.shape) < means).astype(np.float64)
        return judgements
    answers: Vector = means + setting.noise_std * rng.standard_normal(means.shape)
    return answers


def _told(state: State, setting: Setting, points: Rows, rows: Rows, rng: np.random.Generator) -> State:
    """Take answers that nobody asked for: what the baseline needs of ``ask_tell``."""
    centers = np.array(state.centers)[rows]
    counts, sums = state.counts.copy(), state.sums.copy()
    np.add.at(counts, (rows, points), 1)
    np.add.at(sums, (rows, points), _answers(setting, np.stack((points, centers)), rng))
    told = replace(state, counts=counts, sums=sums, observed=state.observed + len(points))
    return ask_tell.settled(told)
