"""`shortlist reproduce kcenter-theorems`: the query complexities of Theorems 1 to 4 beside what was needed.

1   a lower bound of the mean number of queries, of any algorithm that finds greedy's centres with
    probability 1 - delta, on points with coordinates -1/2 and 1/2
2   an upper bound of those of DS-UCB. The print has an unnamed constant c; its proof (Equations 30 to 33)
    counts the smallest t whose half-width ``intervals.lil`` is at most half of a gap, and so does this
3   the limit for one stage of D-Track-and-Stop, as delta falls to 0: gamma T* log(1 / delta), with gamma from
    1 to e / 2
4   the limit for NS-TandS: the sum of T* over the stages. Theorem 3 is that of its first stage

Notation
    n, m, k     number of points, of coordinates, of centres
    d(v, s)     |x_v - x_s|^2 / m; d(v, S_p) the least of them among the first p centres of greedy
    s_(p+1)     the centre that greedy adds to S_p
    kl(x, y)    divergence of Bernoulli means

Theorem 1 counts queries with replacement, and without a cap at m for each pair; without replacement, as here,
fewer may do. T* is in units of the variance of an answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.special import rel_entr

from shortlist.kcenter.coordinates import blocked
from shortlist.kcenter.ds_ts import ds_ts
from shortlist.kcenter.ds_ucb import ds_ucb
from shortlist.kcenter.intervals import lil
from shortlist.kcenter.noisy_state import Threshold
from shortlist.kcenter.tracking_weights import rate, weights
from shortlist.types import Matrix, Vector
from studies.experiments.kcenter_campaigns import Setting, play
from studies.experiments.kcenter_data import Points, clusters, distances, greedy
from studies.measurement import report

SEED = 7
DELTAS = (0.1, 1e-3, 1e-6)
GAMMA = math.e / 2
NOISE_STD = 0.1
MOST = 30_000_000
RULES: tuple[tuple[str, Literal["ns_ts", "ns_tands"], Threshold], ...] = (
    ("ns_tands", "ns_tands", "proven"),
    ("heuristic", "ns_tands", "heuristic"),
    ("ns_ts z=0", "ns_ts", "proven"),
)
COUNTS = 2**40  # larger than any number of queries that is looked for


def run(
    name: str,
    quick: bool,
    data: Path | None,  # noqa: ARG001 - as all reproductions
    deltas: Sequence[float] = DELTAS,
) -> dict[str, Any]:
    """Print both tables; return all rows, each with its theorem."""
    n, dim, k = (30, 4_096, 3) if quick else (100, 12_288, 5)
    sampled = dimension_sampling(corners(n, k + 2, dim, seed=SEED), k, deltas)
    between = distances(clusters(15, 5, seed=SEED, dim=2_048, least=0.4))
    asked = noisy_distances(between, 3 if quick else 5, deltas)
    print("\nTheorems 1 and 2: queries of coordinates")
    report(name, sampled, seed=SEED)
    print("\nTheorems 3 and 4: answers")
    return {**report(name, asked, seed=SEED), "rows": [*sampled, *asked]}


def corners(n: int, count: int, dim: int, *, seed: int) -> Points:
    """Return ``n`` points with coordinates -1/2 and 1/2. Shapes: -> (n, dim).

    Point 0 has all -1/2. The others flip a share of the coordinates of one of ``count`` random halves: the
    first of each half 1 to 0.5 of it, so that greedy's centres lead clearly, and the others 0.1 to 0.4.
    """
    rng = np.random.default_rng(seed)
    halves = rng.random((count, dim)) < 0.5
    share = rng.uniform(0.1, 0.4, size=n)
    share[0], share[1 : count + 1] = 0.0, np.linspace(1.0, 0.5, count)
    flipped = halves[np.arange(-1, n - 1) % count] & (rng.random((n, dim)) < share[:, None])
    return flipped.astype(np.float32) - np.float32(0.5)


def dimension_sampling(points: Points, k: int, deltas: Sequence[float]) -> list[dict[str, Any]]:
    """Return a row for each delta: both bounds, and what DS-UCB and DS-TS read."""
    found, layout = distances(points), blocked(points, rng=np.random.default_rng(SEED))
    centers = greedy(found, k, 0)
    rows = []
    for delta in deltas:
        row: dict[str, Any] = {
            "n": len(points),
            "m": points.shape[1],
            "k": k,
            "delta": delta,
            "theorem 1, at least": round(least_queries(found, centers, delta)),
        }
        for label, method, ci in (
            ("ds_ucb", ds_ucb, "kl"),
            ("ds_ts", ds_ts, "kl"),
            ("ds_ucb lil", ds_ucb, "lil"),
        ):
            options: dict[str, Any] = {"k": k, "delta": delta, "ci": ci, "first": 0}
            played = method(layout, rng=np.random.default_rng(SEED), **options)
            row[label] = played.reads
            row["greedy's"] = row.get("greedy's", True) and played.centers.tolist() == centers
        row["theorem 2, at most"] = most_queries(found, centers, delta, points.shape[1])
        row["n m k"] = points.size * k
        rows.append(row)
    return rows


def least_queries(found: Matrix, centers: Sequence[int], delta: float) -> float:
    """Theorem 1's bound. Shapes: found (n, n), which are d. Cost: O(n k^2)."""
    level, k = math.log(1.0 / (2.4 * delta)), len(centers)
    others = np.setdiff1d(np.arange(len(found)), centers)
    worst, of_centers = np.zeros(len(others)), 0.0
    for p in range(1, k):
        own, new = found[list(centers[:p])], centers[p]
        worst = np.maximum(worst, level / _divergence(own[:, others], own[:, [new]]).max(axis=0))
        rivals = np.setdiff1d(np.arange(len(found)), centers[: p + 1])
        of_centers += float((level / _divergence(own[:, [new]], own[:, rivals]).max(axis=0)).max())
    return 0.5 * (float(worst.sum()) + of_centers)


def most_queries(found: Matrix, centers: Sequence[int], delta: float, dim: int) -> int:
    """Theorem 2's bound with the counts of its proof. Shapes: found (n, n), which are d. Cost: O(n k^2)."""
    n, k = len(found), len(centers)
    gaps = np.full((k, n), np.inf)  # the least of m over the stages in which the pair can be pulled
    for p in range(1, k):
        own = found[list(centers[:p])]
        nearest = own.min(axis=0)
        gap = np.maximum(own - nearest, nearest[centers[p]] - own)
        gap[:, list(centers[:p])] = np.inf
        gaps[:p] = np.minimum(gaps[:p], gap)
    taken = np.minimum(_counts(gaps.ravel() / 2.0, delta / n**2), 2 * dim)
    return int(taken.sum())


def stage_times(found: Matrix, centers: Sequence[int]) -> Vector:
    """Return T* of each stage, for answers of variance 1. Shapes: found (n, n) -> (k - 1,)."""
    times = []
    for p in range(1, len(centers)):
        own, new = found[list(centers[:p])], centers[p]
        rivals = np.setdiff1d(np.arange(len(found)), centers[: p + 1])
        gaps = np.square(own[:, [new]] - own[:, rivals].min(axis=0)) / 2.0
        times.append(1.0 / rate(gaps, *weights(gaps)))
    return np.array(times)


def noisy_distances(found: Matrix, k: int, deltas: Sequence[float]) -> list[dict[str, Any]]:
    """Return a row for each delta: what Theorems 3 and 4 say, and what was asked."""
    rows = []
    for delta in deltas:
        for theorem, stages in ((3, 2), (4, k)):
            centers = greedy(found, stages, 0)
            least = NOISE_STD**2 * float(stage_times(found, centers).sum()) * math.log(1.0 / delta)
            row: dict[str, Any] = {
                "theorem": theorem,
                "n": len(found),
                "k": stages,
                "delta": delta,
                "gamma 1": round(least),
                "gamma e/2": round(GAMMA * least),
            }
            setting = Setting(found, stages, NOISE_STD, delta, MOST, SEED)
            for label, method, threshold in RULES:
                played = play(setting, method, threshold=threshold)
                row[label] = played.queries if played.done else None
            rows.append(row)
    return rows


def _divergence(x: Matrix, y: Matrix) -> Matrix:
    """Return kl(x, y); tiny where both are the same."""
    found: Matrix = rel_entr(x, y) + rel_entr(1.0 - x, 1.0 - y)
    return np.maximum(found, np.finfo(np.float64).tiny)


def _counts(widths: Vector, share: float) -> Vector:
    """Return the smallest t with ``lil`` of at most each width; 0 if it is infinite. Shapes: (r,) -> (r,)."""
    # From t = 3 on the half-width falls with t.
    low, high = np.full(len(widths), 2), np.full(len(widths), COUNTS)
    while (high - low > 1).any():
        middle = (low + high) // 2
        fits = lil(np.maximum(middle, 3), share) <= widths
        low, high = np.where(fits, low, middle), np.where(fits, middle, high)
    counts: Vector = np.where(np.isfinite(widths), high, 0)
    return counts
