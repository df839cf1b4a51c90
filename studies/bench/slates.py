"""`shortlist bench slates`: time per decision against n, samples against Exhaustive, SAQM's two bounds.

A decision is one pull, asked and told; looks are spread over the pulls between them. Times are of one core.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shortlist.slates import ask_tell, icb, sa_foa, saqm
from shortlist.slates.campaign_state import SlateMethod, SlateState
from shortlist.slates.least_squares import fit
from shortlist.slates.widths import Look
from shortlist_client.progress import progress
from studies.experiments.slate_instances import STARTS, begin, mean_samples, normal, play, synthetic
from studies.measurement import report

SEED = 2020
METHODS: tuple[SlateMethod, ...] = ("saqm", "sa_foa", "icb")
TESTS = {"saqm": saqm.excess, "sa_foa": sa_foa.excess, "icb": icb.excess}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """n and k: of ``timed`` decisions, of a ``long`` campaign and its pulls, and beside Exhaustive."""

    timed: Sequence[tuple[int, int]] = ((50, 5), (100, 10), (200, 20), (400, 30), (1_000, 50))
    long: tuple[int, int, int] = (100, 10, 100_000)
    small: Sequence[tuple[int, int]] = ((10, 2), (12, 3), (16, 4), (20, 4))
    seeds: int = 10


WHOLE = Sizes()
QUICK = Sizes(timed=WHOLE.timed[:3], seeds=2)


def run(quick: bool, sizes: Sizes | None = None) -> dict[str, Any]:
    """Measure on 2 (quick) or 10 seeds; print and return the rows."""
    sizes = sizes or (QUICK if quick else WHOLE)
    times = [decision_times(n, k) for n, k in progress(sizes.timed, "values of n")]
    exponents = exponent_row(times)
    report("slates", [*times, exponents], seed=SEED)
    long = long_campaign(*sizes.long)
    report("slates", [long], seed=SEED)
    compared = [against_exhaustive(n, k, sizes.seeds) for n, k in progress(sizes.small, "sizes")]
    record = report("slates", compared, seed=SEED)
    return {**record, "rows": [*times, exponents, long, *compared]}


def decision_times(n: int, k: int) -> dict[str, Any]:
    """Milliseconds of a look after 20 n results; microseconds per pull from 10 n to 20 n results."""
    row: dict[str, Any] = {"n": n, "k": k}
    for method in METHODS:
        seconds, state = timed(method, n, k, first=10 * n, last=20 * n)
        row[f"{method}_look_ms"] = look_ms(method, state)
        row[f"{method}_us_per_pull"] = 1e6 * seconds / (10 * n)
    return row


def look_ms(method: SlateMethod, state: SlateState) -> float:
    """Milliseconds of the estimate and its test, the least of three."""
    look = Look(1.0, 0.05, "certified", state.observed, state.looks + 1)
    taken = []
    for _ in range(3):
        started = time.perf_counter()
        found = fit(state.A, state.b, state.settings.slates)
        assert found is not None  # noqa: S101 - after 20 n results
        TESTS[method](found, look)
        taken.append(time.perf_counter() - started)
    return 1e3 * min(taken)


def exponent_row(times: list[dict[str, Any]]) -> dict[str, Any]:
    """The exponent of n in every column, by least squares on logarithms."""
    sizes = np.log([row["n"] for row in times])
    columns = [name for name in times[0] if name not in {"n", "k"}]
    fitted = {name: float(np.polyfit(sizes, np.log([row[name] for row in times]), 1)[0]) for name in columns}
    return {"n": "exponent", "k": None, **fitted}


def long_campaign(n: int, k: int, pulls: int) -> dict[str, Any]:
    """Seconds of computing of so many pulls in batches of 100 that never stop."""
    row: dict[str, Any] = {"n": n, "k": k, "pulls": pulls}
    for method in METHODS:
        row[f"{method}_seconds"] = timed(method, n, k, first=0, last=pulls)[0]
    return row


def timed(method: SlateMethod, n: int, k: int, *, first: int, last: int) -> tuple[float, SlateState]:
    """Seconds of asking and telling pulls from ``first`` to ``last``, by hundreds; equal arms never end."""
    state = STARTS[method](
        n=n, k=k, epsilon=1e-6, delta=0.05, noise_std=1.0, reach=None, allocation="uniform",
        bound="certified", seed=SEED, matroid=None,
    )  # fmt: skip
    rng = np.random.default_rng(SEED + 1)
    seconds = 0.0
    while state.observed < last:
        started = time.perf_counter()
        state, pulls = ask_tell.ask(state, 100)
        asked = time.perf_counter() - started
        results = list(
            zip([pull.number for pull in pulls], rng.standard_normal(len(pulls)).tolist(), strict=True)
        )
        started = time.perf_counter()
        state = ask_tell.tell(state, results)
        if state.observed > first:
            seconds += asked + time.perf_counter() - started
    return seconds, state


def against_exhaustive(n: int, k: int, seeds: int) -> dict[str, Any]:
    """Mean samples over Exhaustive's, on the same instances and noise; SAQM's two bounds."""
    means = {}
    for method, bound in (
        ("exhaustive", "certified"), ("sa_foa", "certified"), ("icb", "certified"), ("saqm", "certified"),
        ("saqm", "paper"),
    ):  # fmt: skip
        played = []
        for seed in range(2 if bound == "paper" else seeds):
            theta = synthetic(n, k, 0.4, np.random.default_rng((SEED, seed)))
            draw = normal(1.0, np.random.default_rng((SEED, seed, 1)))
            state = begin(method, n, k, noise_std=1.0, seed=seed, bound=bound)  # type: ignore[arg-type]
            played.append(play(state, theta, draw))
        means[method, bound] = mean_samples(played)
    exact, certified, paper = (
        means[key] for key in (("exhaustive", "certified"), ("saqm", "certified"), ("saqm", "paper"))
    )
    row: dict[str, Any] = {"n": n, "k": k, "exhaustive_samples": exact}
    for method in ("sa_foa", "icb", "saqm"):
        row[f"{method}_ratio"] = (means[method, "certified"] or 0.0) / (exact or 1.0)
    row["saqm_theorem_1_over_certified"] = None if paper is None else paper / (certified or 1.0)
    return row
