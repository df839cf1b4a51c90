"""`shortlist reproduce kcenter-figure1`: queries and errors of DS-UCB against C_alpha.

Figure 1 of Jali, Karamchandani, Moharir, "Greedy k-Center from Noisy Distance Samples".
The width of Equation 22 is a heuristic: the smaller C_alpha, the fewer queries and the more wrong centres.
The paper reads C_alpha = 0.1 off its curve, which is lost. Points are as in Tables I to IV, the leads of the
clusters smaller. Beside the curve stand the proven intervals, with and without the triangle inequality.

Notation
    queries     coordinates read of pairs, the mean of all runs; their share is of naive greedy's n m k
    errors      share of the runs in which a centre is not greedy's; runs differ by their first centre
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.kcenter.coordinates import Coordinates, blocked
from shortlist.kcenter.ds_ts import ds_ts
from shortlist.kcenter.ds_ucb import ds_ucb
from shortlist.kcenter.naive_greedy import naive_greedy
from shortlist_client.progress import progress
from studies.experiments.kcenter_data import Points, clusters, movies, patches
from studies.measurement import report

SEED = 7
DELTA = 0.1
LEAST = 0.9
SWEEP = (0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
PROVEN = "kl", "kl, triangle"


def run(name: str, quick: bool, data: Path | None, c_alphas: Sequence[float] = SWEEP) -> dict[str, Any]:
    """Print a row for each C_alpha and data set, and two for the proven intervals; return the record."""
    n, k, runs = (100, 5, 5) if quick else (1_000, 10, 20)
    sets = {"clusters": clusters(n, 4 * k, seed=SEED, least=LEAST)}
    images = patches(n, seed=SEED)
    if images is not None:
        sets["patches"] = images
    if data is not None:
        sets["movielens ratings"] = movies(data, seed=SEED)["movielens ratings"][:n]
    widths: list[float | str] = [*c_alphas, *PROVEN]
    rows = [row for label, points in sets.items() for row in sweep(label, points, widths, k=k, runs=runs)]
    return report(name, rows, seed=SEED)


def sweep(
    label: str, points: Points, widths: Sequence[float | str], *, k: int, runs: int
) -> list[dict[str, Any]]:
    """Return the rows of one data set. Shapes: points (n, m)."""
    layout = blocked(points, rng=np.random.default_rng(SEED))
    starts = np.random.default_rng(SEED).choice(len(points), size=runs, replace=False).tolist()
    rng = np.random.default_rng(SEED)
    greedy = {first: naive_greedy(points, k=k, first=first, rng=rng).centers.tolist() for first in starts}
    rows = []
    for width in progress(widths, f"widths on {label}"):
        for method in ("ds_ucb", "ds_ts") if width in PROVEN else ("ds_ucb",):
            queries, wrong = 0, 0
            for first in starts:
                centers, reads = _played(layout, method, width, k=k, first=first)
                queries, wrong = queries + reads, wrong + (centers != greedy[first])
            rows.append(
                {
                    "data": label,
                    "n": len(points),
                    "k": k,
                    "method": method,
                    "C_alpha": width,
                    "queries": queries // runs,
                    "share": queries / (runs * points.size * k),
                    "errors": wrong / runs,
                }
            )
    return rows


def _played(
    layout: Coordinates, method: str, width: float | str, *, k: int, first: int
) -> tuple[list[int], int]:
    """The centres, and what they took."""
    rng = np.random.default_rng(SEED)
    triangle = width == PROVEN[1]
    if method == "ds_ts":
        found = ds_ts(layout, k=k, delta=DELTA, first=first, rng=rng, triangle=triangle)
    elif isinstance(width, str):
        found = ds_ucb(layout, k=k, delta=DELTA, first=first, rng=rng, triangle=triangle)
    else:
        found = ds_ucb(layout, k=k, delta=DELTA, first=first, rng=rng, ci="experiment", c_alpha=width)
    return found.centers.tolist(), found.reads
