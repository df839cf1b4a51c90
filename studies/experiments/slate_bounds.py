"""`shortlist reproduce slates-bounds`: allocations and sample bounds of the full-bandit paper.

1   totals until the stop under uniform, G- and XY-allocation, on the same instances
2   the sample bounds of Theorem 3 (SAQM) and Lemma 3 (ICB) beside the totals that were needed. Corollary 1 is
    the same bound for SAQM under a rule: at most one of each pair of arms

Bounds are of the campaign's own design, at the looks that it takes: see ``sample_bounds``. The paper prints
none of these numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.slates.allocation import Allocation
from shortlist.slates.campaign_state import SlateMethod, SlateState
from shortlist.slates.matroids import PartitionMatroid, UniformMatroid, lead
from shortlist.slates.sample_bounds import stops_by
from shortlist.slates.widths import Bound
from shortlist.types import Vector
from shortlist_client.progress import progress
from studies.experiments.slate_instances import Draw, Played, begin, mean_samples, normal, play, synthetic
from studies.measurement import report

SEED = 2020
METHODS: tuple[SlateMethod, ...] = ("exhaustive", "sa_foa", "icb", "saqm")
ALLOCATIONS: tuple[Allocation, ...] = ("uniform", "g", "xy")
# No more totals are played; a bound may be far beyond.
MOST = 100_000
MOST_BOUND = 10**12
# The last: whether of the arms 0 and 1, 2 and 3, ... one at most may be in a slate.
PROMISES: tuple[tuple[str, SlateMethod, Bound, bool], ...] = (
    ("Theorem 3", "saqm", "certified", False),
    ("Theorem 3, printed constants", "saqm", "paper", False),
    ("Corollary 1, one of each pair", "saqm", "certified", True),
    ("Lemma 3", "icb", "certified", False),
    ("Lemma 3, printed constants", "icb", "paper", False),
    ("Lemma 3, one of each pair", "icb", "certified", True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instances:
    """Slates of ``k`` of ``n`` arms. ``gaps``: between the best arms and the others."""

    n: int = 12
    k: int = 4
    gaps: Sequence[float] = (0.1, 0.3, 0.5, 0.7, 1.0)
    epsilon: float = 0.5

    @property
    def pairs(self) -> PartitionMatroid:
        """One at most of each pair of arms."""
        return PartitionMatroid(tuple(arm // 2 for arm in range(self.n)), (1,) * (self.n // 2), self.k)

    def draw(self, gap: float, seed: int) -> tuple[Vector, Draw]:
        """Means of arms in any order (n,), and totals of slates."""
        theta = synthetic(self.n, self.k, gap, np.random.default_rng((SEED, seed)))
        draw = normal(1.0, np.random.default_rng((SEED, seed, 1)))
        return np.random.default_rng((SEED, seed, 2)).permutation(theta), draw

    def begin(self, method: SlateMethod, seed: int, **options: Any) -> SlateState:
        return begin(method, self.n, self.k, noise_std=1.0, seed=seed, epsilon=self.epsilon, **options)


INSTANCES = Instances()


def run(name: str, quick: bool, data: Path | None) -> dict[str, Any]:  # noqa: ARG001 - as all reproductions
    """Print both tables on 2 (quick) or 10 seeds; return their rows."""
    seeds = 2 if quick else 10
    print("\nMean totals until the stop, by allocation")
    compared = allocations(seeds, INSTANCES)
    report(name, compared, seed=SEED)
    print("\nMean totals until the stop / the bound; - is more than were tried")
    promised = promises(seeds, MOST, INSTANCES)
    record = report(name, promised, seed=SEED)
    return {**record, "rows": [*compared, *promised]}


def allocations(seeds: int, instances: Instances) -> list[dict[str, Any]]:
    """Mean totals of each method under each allocation."""
    rows = []
    for method in progress(METHODS, "methods"):
        for gap in (instances.gaps[0], instances.gaps[-1]):
            row: dict[str, Any] = {"method": method, "gap": gap}
            for allocation in ALLOCATIONS:
                begun = [instances.begin(method, seed, allocation=allocation) for seed in range(seeds)]
                played = [play(state, *instances.draw(gap, seed)) for seed, state in enumerate(begun)]
                row[allocation] = mean_samples(played)
            rows.append(row)
    return rows


def promises(seeds: int, most: int, instances: Instances) -> list[dict[str, Any]]:
    """For each bound and gap: mean totals needed, mean bound, how many campaigns exceeded theirs."""
    rows = []
    for promise, method, bound, has_rule in progress(PROMISES, "bounds"):
        matroid = instances.pairs if has_rule else None
        for drawn in instances.gaps:
            played: list[Played] = []
            gaps, bounds, later = [], [], 0
            for seed in range(seeds):
                theta, draw = instances.draw(drawn, seed)
                slates = matroid or UniformMatroid(instances.n, instances.k)
                gaps.append(lead(slates, theta, slates.best(theta)))  # of the best slate over the second
                state = instances.begin(method, seed, bound=bound, allocation="g", matroid=matroid)
                bounds.append(stops_by(state, gaps[-1], MOST_BOUND) or MOST_BOUND)
                if played and played[-1].samples is None:
                    continue  # the others of its kind would be given up as well
                played.append(play(state, theta, draw, most=most))
                later += (played[-1].samples or most) > bounds[-1]
            row = {"promise": promise, "drawn gap": drawn, "mean gap": float(np.mean(gaps))}
            row |= {"needed": mean_samples(played), "bound": float(np.mean(bounds))}
            rows.append({**row, "later than its bound": later})
    return rows
