"""`shortlist reproduce remark1-bounded-me`: how many arms are corners of their convex hull, what that saves.

Notation
    n, N        arms, coordinates
    m           dimension of the flat in which the arms lie
    extreme     arms that are corners of the hull; ``at_least`` where the hull has too many faces to be found.
                Then arms are counted that are the best for one of n queries, one made for each
    hull_scans  time to find the corners, over that of a scan of all arms
    all, hull   share of n N that BoundedME reads: of all arms, of the corners alone

Two sets of N = 2,048 coordinates lie in a flat of 3 dimensions, one of them only up to noise of a thousandth.
The hull helps where m is 2 or 3. Then there are no coordinates to sample, unless few numbers determine them.

Source: Liu, Wu, Mozafari, "A Bandit Approach to Maximum Inner Product Search", Remark 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.mips import blocked
from shortlist.mips.bounded_me import LEAST_DIM, bounded_me
from shortlist.mips.extreme_points import extreme_points, surely_extreme
from shortlist.mips.read_costs import READS_ALONE
from shortlist.mips.rewards import blocked_rewards
from shortlist.types import Matrix, Rows
from shortlist_client.progress import progress
from studies.measurement import report

SEED = 13
ARMS, QUICK_ARMS = 10_000, 1_000
# The hull itself is found up to here.
HULLS = (2, 3, 4, 5, 6)
DIMENSIONS = (8, 12, 16, 32)
FLAT, COORDINATES, NOISE = 3, 2_048, 1e-3
SHARE, DELTA = 0.05, 0.05  # epsilon as a share of R, and delta

Find = Callable[[Matrix], Rows]


def run(name: str, quick: bool, data: Path | None) -> dict[str, Any]:  # noqa: ARG001 - as all reproductions
    """Print one row a set of arms."""
    count = QUICK_ARMS if quick else ARMS
    rows = [
        row(kind, count, dim, m, find)
        for kind, dim, m, find in progress(
            [
                *(("gaussian", m, m, extreme_points) for m in HULLS),
                *(("gaussian", m, m, surely_extreme) for m in DIMENSIONS),
                ("in a flat", COORDINATES, FLAT, extreme_points),
                ("near a flat", COORDINATES, COORDINATES, surely_extreme),
            ],
            "sets of arms",
        )
    ]
    return report(name, rows, seed=SEED)


def row(kind: str, n: int, dim: int, m: int, find: Find, *, asked: int = 20) -> dict[str, Any]:
    """Count the corners, and compare the best of them with the best of all arms on ``asked`` queries."""
    rng = np.random.default_rng((SEED, dim, m))
    vectors = arms(kind, n if kind == "gaussian" else min(n, 2_000), dim, rng)
    started = time.thread_time()
    corners = find(vectors)
    hull_s = time.thread_time() - started
    queries = rng.standard_normal((asked, dim))
    started = time.thread_time()
    products = [vectors @ query for query in queries]
    scan_s = (time.thread_time() - started) / asked
    same = [bool(np.isclose(found[corners].max(), found.max(), rtol=1e-9)) for found in products]
    exactly = find is extreme_points
    reads = reads_of(vectors, corners if exactly else None, queries, rng)
    return {
        "arms": kind,
        "n": len(vectors),
        "N": dim,
        "m": m,
        "extreme": len(corners),
        "at_least": not exactly,
        "share": len(corners) / len(vectors),
        "best_is_a_corner": float(np.mean(same)) if exactly else None,
        "hull_scans": hull_s / scan_s if exactly else None,
        **reads,
    }


def arms(kind: str, n: int, dim: int, rng: np.random.Generator) -> Matrix:
    """Standard normal arms; in a flat of three dimensions; or within noise of such a flat."""
    if kind == "gaussian":
        return rng.standard_normal((n, dim))
    vectors: Matrix = rng.standard_normal((n, FLAT)) @ rng.standard_normal((FLAT, dim))
    return vectors + NOISE * rng.standard_normal((n, dim)) if kind == "near a flat" else vectors


def reads_of(
    vectors: Matrix, corners: Rows | None, queries: Matrix, rng: np.random.Generator
) -> dict[str, float | None]:
    """The share of all coordinates that BoundedME reads of all arms, and of the corners alone."""
    if vectors.shape[1] < LEAST_DIM:
        return {"all": None, "hull": None}
    return {
        "all": _reads(vectors, queries, rng) / vectors.size,
        "hull": None if corners is None else _reads(vectors[corners], queries, rng) / vectors.size,
    }


def _reads(vectors: Matrix, queries: Matrix, rng: np.random.Generator) -> float:
    layout = blocked.build(vectors, rng=rng)
    reads = []
    for query in queries:
        rewards = blocked_rewards(layout, query, costs=READS_ALONE)
        epsilon = SHARE * rewards.bounds.spread
        reads.append(bounded_me(rewards, k=1, epsilon=epsilon, delta=DELTA).reads or 0)
    return float(np.mean(reads))
