"""`shortlist reproduce slates-bounds`: allocations and sample bounds of the full-bandit paper.

1   totals until the stop under uniform, G- and XY-allocation, on the same instances
2   the sample bounds of Theorem 3 (SAQM) and Lemma 3 (ICB) beside the totals that were needed. Corollary 1 is
    the same bound for SAQM under a rule: at most one of each pair of arms

Bounds are of the campaign's own design, at the looks that it takes: see ``sample_bounds``. The paper prints
none of these numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.slates.allocation import Allocation
from shortlist.slates.campaign_state import SlateMethod
from shortlist.slates.matroids import PartitionMatroid, UniformMatroid, lead
from shortlist.slates.sample_bounds import stops_by
from shortlist.slates.widths import Bound
from shortlist.types import Vector
from shortlist_client.files.progress import progress
from studies.experiments.slate_instances import Played, begin, mean_samples, normal, play, synthetic
from studies.measurement import report

SEED = 2020
N, K = 12, 4
GAPS = (0.1, 0.3, 0.5, 0.7, 1.0)
METHODS: tuple[SlateMethod, ...] = ("exhaustive", "sa_foa", "icb", "saqm")
ALLOCATIONS: tuple[Allocation, ...] = ("uniform", "g", "xy")
# No more totals are played; a bound may be far beyond.
MOST = 100_000
MOST_BOUND = 10**12
# Of the arms 0 and 1, 2 and 3, ... one at most.
PAIRS = PartitionMatroid(tuple(arm // 2 for arm in range(N)), (1,) * (N // 2), K)
PROMISES: tuple[tuple[str, SlateMethod, Bound, PartitionMatroid | None], ...] = (
    ("Theorem 3", "saqm", "certified", None),
    ("Theorem 3, printed constants", "saqm", "paper", None),
    ("Corollary 1, one of each pair", "saqm", "certified", PAIRS),
    ("Lemma 3", "icb", "certified", None),
    ("Lemma 3, printed constants", "icb", "paper", None),
    ("Lemma 3, one of each pair", "icb", "certified", PAIRS),
)


def run(name: str, quick: bool, data: Path | None) -> dict[str, Any]:  # noqa: ARG001 - as all reproductions
    """Print both tables on 2 (quick) or 10 seeds; return their rows."""
    seeds = 2 if quick else 10
    print("\nMean totals until the stop, by allocation")
    compared = allocations(seeds)
    report(name, compared, seed=SEED)
    print("\nMean totals until the stop / the bound; - is more than were tried")
    promised = promises(seeds, MOST)
    record = report(name, promised, seed=SEED)
    return {**record, "rows": [*compared, *promised]}


def allocations(seeds: int) -> list[dict[str, Any]]:
    """Mean totals of each method under each allocation."""
    rows = []
    for method in progress(METHODS, "methods"):
        for gap in (GAPS[0], GAPS[-1]):
            row: dict[str, Any] = {"method": method, "gap": gap}
            for allocation in ALLOCATIONS:
                played = [
                    play(method, theta, K, draw, noise_std=1.0, seed=seed, allocation=allocation)
                    for seed, theta, draw in _instances(gap, seeds)
                ]
                row[allocation] = mean_samples(played)
            rows.append(row)
    return rows


def promises(seeds: int, most: int) -> list[dict[str, Any]]:
    """For each bound and gap: mean totals needed, mean bound, how many campaigns exceeded theirs."""
    rows = []
    for promise, method, bound, matroid in progress(PROMISES, "bounds"):
        for drawn in GAPS:
            played: list[Played] = []
            gaps, bounds, later = [], [], 0
            for seed, theta, draw in _instances(drawn, seeds):
                gaps.append(_gap(theta, matroid))
                made = begin(
                    method, N, K, noise_std=1.0, seed=seed, bound=bound, allocation="g", matroid=matroid
                )
                bounds.append(stops_by(made, gaps[-1], MOST_BOUND) or MOST_BOUND)
                if played and played[-1].samples is None:
                    continue  # the others of its kind would be given up as well
                one = play(
                    method, theta, K, draw, noise_std=1.0, seed=seed, bound=bound, allocation="g", most=most,
                    matroid=matroid,
                )  # fmt: skip
                played.append(one)
                later += (one.samples or most) > bounds[-1]
            row = {"promise": promise, "drawn gap": drawn, "mean gap": float(np.mean(gaps))}
            row |= {"needed": mean_samples(played), "bound": float(np.mean(bounds))}
            rows.append({**row, "later than its bound": later})
    return rows


def _instances(gap: float, seeds: int) -> list[tuple[int, Vector, Callable[..., Vector]]]:
    return [
        (
            seed,
            np.random.default_rng((SEED, seed, 2)).permutation(
                synthetic(N, K, gap, np.random.default_rng((SEED, seed)))
            ),
            normal(1.0, np.random.default_rng((SEED, seed, 1))),
        )
        for seed in range(seeds)
    ]


def _gap(theta: Vector, matroid: PartitionMatroid | None) -> float:
    """By how much the best slate exceeds the second."""
    slates = matroid or UniformMatroid(len(theta), K)
    return lead(slates, theta, slates.best(theta))
