"""`shortlist bench kcenter`: k centres from sampled coordinates against vectorised exact greedy.

Notation
    n, m, k     number of points, of coordinates, of centres; m = 12,288
    saving      n m k / coordinates that were read
    speed       time of exact greedy in float32 (matrix products) / time of the method, without the layout
    kept        speed / saving: the part of the saving that is time as well
    ns_per_read time of the method / coordinates read: a pull of the paper is one coordinate of one pair
    growth      slope of log(ns_per_read) over log n by least squares over all n of the same data, k and
                method; 0 or less: the time of a pull does not grow with n
    layout_ms   laying the points out in blocks, once for many calls

"clusters" are far apart, and their outermost points clearly the farthest; "scattered" points are independent:
all distances nearly tie, the worst case. Every method is run three times, of which the fastest counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from shortlist.kcenter.center_set import CenterSet
from shortlist.kcenter.coordinates import Coordinates, blocked
from shortlist.kcenter.ds_ts import ds_ts
from shortlist.kcenter.ds_ucb import ds_ucb
from shortlist.kcenter.naive_greedy import naive_greedy
from shortlist_client.progress import progress
from studies.experiments.kcenter_data import DIM, Points, clusters
from studies.measurement import report

SEED = 5
DELTA = 0.1
CLUSTERS = 12
COUNTS = (3, 10)
METHODS: dict[str, Callable[..., CenterSet]] = {
    "ds_ucb experiment": partial(ds_ucb, ci="experiment"),
    "ds_ucb kl": ds_ucb,
    "ds_ts kl": ds_ts,
}
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Points in clusters, and ``scattered`` ones. ``runs``: of which the fastest counts."""

    points: Sequence[int] = (100, 300, 1_000, 3_000, 10_000)
    scattered: int = 1_000
    runs: int = 3


WHOLE, QUICK = Sizes(), Sizes(points=(100, 1_000))


def run(quick: bool, sizes: Sizes | None = None) -> dict[str, Any]:
    """Print the table; return the record."""
    sizes = sizes or (QUICK if quick else WHOLE)
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1):
        for n in progress(sizes.points, "sizes"):
            rows += _rows("clusters", clusters(n, CLUSTERS, seed=SEED), sizes.runs)
        scattered = np.random.default_rng(SEED).random((sizes.scattered, DIM), dtype=np.float32)
        rows += _rows("scattered", scattered, sizes.runs)
    return report("kcenter", [{**row, "growth": _growth(row, rows)} for row in rows], seed=SEED)


def _growth(row: dict[str, Any], rows: list[dict[str, Any]]) -> float | None:
    """Return the exponent of n in the time of a pull in the series of ``row``, None if it has but one n."""
    series = [other for other in rows if all(other[key] == row[key] for key in ("data", "k", "method"))]
    if len(series) < 2:
        return None
    sizes, times = ([other[key] for other in series] for key in ("n", "ns_per_read"))
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def _rows(data: str, points: Points, runs: int) -> list[dict[str, Any]]:
    layout_s, layout = _timed(lambda: blocked(points, rng=np.random.default_rng(SEED)), 1)
    rows = [row for k in COUNTS for row in _compared(data, points, layout, k, runs)]
    return [{**row, "layout_ms": layout_s * 1e3} for row in rows]


def _compared(data: str, points: Points, layout: Coordinates, k: int, runs: int) -> list[dict[str, Any]]:
    exact_s, exact = _timed(lambda: naive_greedy(points, k=k, first=0, rng=np.random.default_rng(0)), runs)
    rows = []
    for name, method in METHODS.items():
        seconds, found = _timed(partial(_sampled, method, layout, k), runs)
        saving, speed = found.exhaustive_reads / found.reads, exact_s / seconds
        rows.append(
            {
                "data": data,
                "n": len(points),
                "k": k,
                "method": name,
                "saving": saving,
                "speed": speed,
                "kept": speed / saving,
                "reads": found.reads,
                "ns_per_read": seconds * 1e9 / found.reads,
                "ms": seconds * 1e3,
                "exact_ms": exact_s * 1e3,
                "guarantee": found.guarantee.kind,
                "greedy's": bool((found.centers == exact.centers).all()),
            }
        )
    return rows


def _sampled(method: Callable[..., CenterSet], layout: Coordinates, k: int) -> CenterSet:
    return method(layout, k=k, delta=DELTA, first=0, rng=np.random.default_rng(SEED))


def _timed(work: Callable[[], T], runs: int) -> tuple[float, T]:
    """Return the least time of some runs, and the last result."""
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - started)
    return min(times), result
