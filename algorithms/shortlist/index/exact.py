"""Exact scans: of a whole table, and of the few rows scanned beside every search of a graph.

A scan multiplies all rows with the query. It is the only search of small catalogues, and the yardstick of all
others, so its cost on this machine is measured here. An ``ExactOverlay`` scans a few rows beside a graph,
because a graph can miss an arm for one narrow range of queries, and Thompson sampling asks one narrow range
again and again (docs/papers/sublinear-bandits.md). A graph has two overlays:

    head          the longest living arms of the graph. Each is the best arm for a wide range of queries. When
                  some of them die, the next longest take their places
    substitutes   the longest arms outside of the graph, too short to win while longer ones live. When n of
                  the longest arms have died, the n longest substitutes are scanned

The features of an overlay are copied side by side: to gather them for each search would take longer than the
search.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.index.table import TableSnapshot, Working, aligned_empty, longest_first
from shortlist.mips.exact import candidates, ranked
from shortlist.types import NO_ROWS, Rows, TopK, Vector

_DIM = 32
_FEW_ROWS, _MANY_ROWS = 64, 32_768
_REPEATS = 9


def scan(table: TableSnapshot, query: Vector, k: int, exclude: Rows = NO_ROWS, *, first: int = 0) -> TopK:
    """Return the ``k`` live rows >= ``first`` of largest score, none of them in ``exclude``.

    Shapes: query (d,), exclude (e,). Cost: (K - first) * d reads in the working precision.
    Raises: NonFinite.
    """
    scaled, error = table.scaled(query)
    return ranked(contenders(table, scaled, error, k, exclude, first=first), k, table.features, query)


@dataclass(frozen=True, slots=True, eq=False)
class TableScan:
    """A ``MipsSolver`` that scans."""

    table: TableSnapshot

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """See ``scan``."""
        return scan(self.table, query, k, exclude)


def contenders(
    table: TableSnapshot, scaled: Working, error: float, k: int, exclude: Rows = NO_ROWS, *, first: int
) -> Rows:
    """The live rows >= ``first`` outside ``exclude`` that could be the best ``k`` of them.

    ``scaled`` (d,): the query in ``unit_scale``. ``error``: bound on the error of a product.
    """
    working = table.working[first:] if first else table.working
    approximate = working @ scaled.astype(working.dtype, copy=False)
    if len(table.dead):
        # Masked afterwards: to leave the dead out of the product would gather all rows.
        approximate[table.dead_from(first)] = -np.inf
    if len(exclude):
        approximate[exclude[exclude >= first] - first] = -np.inf
    rows = candidates(approximate, error, k)
    return rows + first if first else rows


def scores_of(table: TableSnapshot, rows: Rows, query: Vector) -> Vector:
    """Inner products with the query. Shapes: rows (m,), query (d,) -> (m,) float64."""
    checks.shape("query", query, (table.dim,))
    # To gather rows costs about twice what reading them in their order does.
    if 2 * len(rows) < table.rows:
        scattered: Vector = table.features.take(rows, axis=0) @ query
        return scattered
    scores: Vector = (table.features @ query)[rows]
    return scores


def merged(one: TopK, other: TopK, k: int) -> TopK:
    """The best ``k`` of two answers over disjoint rows."""
    rows = np.concatenate((one.rows, other.rows))
    scores = np.concatenate((one.scores, other.scores))
    # Equal scores by row: so the answer does not depend on which part found them.
    order = np.lexsort((rows, -scores))[:k]
    return TopK(rows[order], scores[order], exact=one.exact and other.exact)


class ExactOverlay:
    """Copies of some arms, the longest first.

    Shapes: rows (n,), -1 for arms that are gone; labels (n,) of these in the graph, ascending; features
    (n, d) in working precision.
    """

    def __init__(self, rows: Rows, labels: Rows, features: NDArray[np.floating[Any]]) -> None:
        self.rows = rows
        self.labels = labels
        self._features = features

    @classmethod
    def empty(cls) -> ExactOverlay:
        return cls(NO_ROWS, NO_ROWS, np.zeros((0, 0), dtype=np.float32))

    @classmethod
    def copied(cls, table: TableSnapshot, rows: Rows, first_label: int = 0) -> ExactOverlay:
        """Copy live ``rows`` (n,) of the table, whose labels begin with this one."""
        rows = longest_first(table, rows)
        return cls.labelled(table, rows, np.arange(first_label, first_label + len(rows)))

    @classmethod
    def labelled(cls, table: TableSnapshot, rows: Rows, labels: Rows) -> ExactOverlay:
        """Copy live ``rows`` (n,) of the table, the longest first, which have these labels."""
        # Dimension-major, as ``table.aligned_empty``: few rows are multiplied faster that way.
        return cls(rows, labels, np.asfortranarray(table.working[rows]))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def memory_bytes(self) -> int:
        return int(self.rows.nbytes + self.labels.nbytes + self._features.nbytes)

    def moved(self, position: Rows) -> ExactOverlay:
        """The same overlay after a compaction: row r is now ``position[r]``, -1 if it is gone."""
        return ExactOverlay(np.append(position, -1)[self.rows], self.labels, self._features)

    def best(
        self,
        scaled: NDArray[np.floating[Any]],
        error: float,
        k: int,
        gone: NDArray[np.bool_],
        *,
        any_gone: bool,
        least: float = -np.inf,
    ) -> Rows:
        """Rows with a chance among the best ``k`` of the first len(gone) arms; those below ``least`` may
        lack.

        ``scaled`` (d,) is the query. ``error`` bounds the rounding error
        of a product in working precision. ``gone`` (m,) marks the dead arms; ``any_gone`` False promises
        none.
        """
        features = self._features[: len(gone)]
        approximate = features @ scaled.astype(features.dtype, copy=False)
        if any_gone:
            approximate[gone] = -np.inf
        return self.rows[candidates(approximate, error, k, least)]


@dataclass(frozen=True, slots=True)
class ScanCost:
    """Times in microseconds: ``call_us`` for a scan of no arm, ``number_us`` for every number it reads."""

    call_us: float
    number_us: float

    def us(self, numbers: float) -> float:
        """Time of a scan that reads this many numbers: arms times dimension."""
        return self.call_us + self.number_us * numbers


@cache
def measured_scan_cost() -> ScanCost:
    """The cost on this machine, timed once in a process: that takes some milliseconds."""
    few_us, many = _scan_us(_FEW_ROWS), _scan_us(_MANY_ROWS)
    number_us = max(many - few_us, 0.0) / (_DIM * (_MANY_ROWS - _FEW_ROWS))
    return ScanCost(max(few_us - number_us * _DIM * _FEW_ROWS, 0.0), number_us)


def _scan_us(rows: int) -> float:
    working = aligned_empty(rows, _DIM)
    working[:] = 1.0
    query = np.ones(_DIM, dtype=np.float32)
    seconds = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        approximate = working @ query
        approximate[0] = np.inf  # as usual, one arm is the best by far
        candidates(approximate, 0.0, 1)
        seconds.append(time.perf_counter() - started)
    return float(np.median(seconds) * 1e6)
