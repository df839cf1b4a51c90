"""Probes: queries with known answers, on which an index is timed and judged.

Notation
    P, d        number of probes, dimension
    best        (P,) largest score of any live arm, in float64
    ratio       score found / best score; 1 - (best - found) / |best| when the best score is negative
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from app.algorithms.mips.exact import unit_scale
from app.algorithms.types import Matrix, Rows, TopK, Vector
from app.indexes.table import ArmView

Search = Callable[[Vector], TopK]

_CHUNK_ROWS = 8_192
_ENOUGH_RECENT = 64
_SAME_SCORE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Probes:
    """Shapes: queries (P, d), winners (P,) rows, best (P,)."""

    queries: Matrix
    winners: Rows
    best: Vector


@dataclass(frozen=True, slots=True)
class Quality:
    """How well, and in what time (median, microseconds), a search answered the probes."""

    recall_at_1: float
    ratio_mean: float
    ratio_min: float
    us: float


def make_queries(dim: int, count: int, recent: Sequence[Vector], rng: np.random.Generator) -> Matrix:
    """Gaussian directions (count, d); up to half of them real queries when there are enough of those."""
    queries = rng.standard_normal((count, dim))
    real = [unit_scale(query) for query in recent if query.shape == (dim,)]
    real = [(query, norm) for query, norm in real if norm > 0.0]
    if len(real) >= _ENOUGH_RECENT:
        chosen = rng.choice(len(real), size=min(count // 2, len(real)), replace=False)
        for place, source in enumerate(chosen.tolist()):
            query, norm = real[source]
            queries[place] = query * (np.sqrt(dim) / norm)
    return queries


def solve(view: ArmView, queries: Matrix, *, shorter_than: float = np.inf) -> Probes:
    """Find the best live arm of every query, among those of smaller norm if there are any.

    Shapes: queries (P, d). Cost: K * P * d multiply-adds.
    """
    columns = np.arange(len(queries))
    turned = np.ascontiguousarray(queries.T, dtype=view.working.dtype)
    best = np.full(len(queries), -np.inf)
    winners = np.full(len(queries), view.live_rows[0])
    for start in range(0, view.rows, _CHUNK_ROWS):
        rows = np.arange(start, min(start + _CHUNK_ROWS, view.rows))
        scores = view.working[start : start + _CHUNK_ROWS] @ turned
        scores[~(view.is_alive(rows) & (view.norms[rows] < shorter_than))] = -np.inf
        top = scores.argmax(axis=0)
        better = scores[top, columns] > best
        best[better] = scores[top, columns][better]
        winners[better] = start + top[better]
    best = np.add.reduce(view.features.take(winners, axis=0) * queries, axis=1)
    return Probes(queries, winners, best)


def measure(search: Search, probes: Probes) -> Quality:
    """Answer every probe once and compare with the truth."""
    found = np.empty(len(probes.queries))
    seconds = np.empty(len(probes.queries))
    search(probes.queries[0])
    for place, query in enumerate(probes.queries):
        started = time.perf_counter()
        answer = search(query)
        seconds[place] = time.perf_counter() - started
        found[place] = answer.scores[0]
    scale = np.abs(probes.best)
    missing = probes.best - found
    ratio = 1.0 - np.divide(missing, scale, out=np.zeros_like(scale), where=scale > 0.0)
    return Quality(
        recall_at_1=float((missing <= _SAME_SCORE * scale).mean()),
        ratio_mean=float(ratio.mean()),
        ratio_min=float(ratio.min()),
        us=float(np.median(seconds) * 1e6),
    )


def typical_us(search: Search, queries: Matrix) -> float:
    """Median time of one search, in microseconds."""
    search(queries[0])
    seconds = []
    for query in queries:
        started = time.perf_counter()
        search(query)
        seconds.append(time.perf_counter() - started)
    return float(np.median(seconds) * 1e6)
