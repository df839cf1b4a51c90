"""Exact search over rows sorted by norm, which stops when no later row can be among the best.

Notation
    |x|, |q|    norms of a row and of the query
    e           bound on the rounding error of one approximate score
    t           lower bound on the k-th best approximate score so far

By Cauchy-Schwarz x.q <= |x||q|. Once |x||q| < t - e at the head of a block, every later row scores less
than the k-th best so far. How much is read depends on the spread of the norms: little when it is wide
(lognormal), everything when all norms are equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shortlist.index.index import Index, IndexKind, Saving
from shortlist.index.probes import ExactLists, Probes, Quality
from shortlist.index.quality import Degradation
from shortlist.index.table import TableSnapshot, Working, aligned_empty, longest_first, positions_of
from shortlist.mips.exact import candidates, error_bound, kth_largest_or_less, ranked, unit_scale
from shortlist.types import NO_ROWS, Rows, TopK, Vector

_FIRST_BLOCK = 1_024
_LARGEST_BLOCK = 65_536
_ROUND_UP = 1.0 + 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class NormOrder:
    """Rows side by side: in ascending order of norm, read in blocks from the end, then rows that came later.

    ``rows``     (capacity,), of which ``size`` are in use; what stands where is a position
    ``blocks``   of the rows in order, the longest first: where each begins, its largest norm, its features
    ``ordered``  rows in order; those after them are read first
    ``later``    the features of these (capacity, d)
    """

    rows: Rows
    size: int
    blocks: tuple[tuple[int, float, Working], ...]
    ordered: int
    later: Working

    @classmethod
    def of(
        cls,
        table: TableSnapshot,
        rows: Rows,
        *,
        first: int = _FIRST_BLOCK,
        largest: int = _LARGEST_BLOCK,
        is_ordered: bool = True,
    ) -> NormOrder:
        """Copy rows (n,); few of them need no order. Cost: n d reads at random places."""
        if not is_ordered:
            return cls(rows, len(rows), (), 0, _side_by_side(table, rows))
        rows, count = longest_first(table, rows)[::-1].copy(), len(rows)
        blocks = list[tuple[int, float, Working]]()
        for before, end in pairwise(block_bounds(count, first, largest)):
            block = rows[count - end : count - before]
            blocks.append((count - end, float(table.norms[block[-1]]), _side_by_side(table, block)))
        return cls(rows, count, tuple(blocks), count, _side_by_side(table, NO_ROWS))

    @property
    def memory_bytes(self) -> int:
        return self.rows.nbytes + self.later.nbytes + sum(features.nbytes for *_, features in self.blocks)

    def contenders(
        self, query: Vector, k: int, error: float, gone: NDArray[np.int64], scores: Working
    ) -> Rows:
        """Rows that could be the best ``k`` of those that are not at the positions ``gone``, which ascend.

        ``error``: of an approximate score. ``scores``: memory for them (size,).
        """
        scaled, query_norm = unit_scale(query)
        scaled, first = scaled.astype(self.later.dtype, copy=False), self.size

        def read(features: Working, start: int) -> None:
            nonlocal first
            np.matmul(features, scaled, out=scores[start:first])
            if len(gone):
                scores[gone[gone.searchsorted(start) : gone.searchsorted(first)]] = -np.inf
            first = start

        if self.ordered < self.size:
            read(self.later[: self.size - self.ordered], self.ordered)
        for start, norm, features in self.blocks:
            kth = kth_largest_or_less(scores[first : self.size], k) if first < self.size else -math.inf
            # Rounded up: the product of two norms may be too small by its own rounding, and then an arm that
            # wins would be passed over.
            if norm * query_norm * _ROUND_UP < kth - error:
                break
            read(features, start)
        contenders = candidates(scores[first : self.size], error, k)
        return self.rows[contenders + first if first else contenders]


def _side_by_side(table: TableSnapshot, rows: Rows) -> Working:
    features = aligned_empty(len(rows), table.dim, table.working.dtype)
    features[:] = table.working[rows]
    return features


class NormBlocks(Index):
    """The living rows of a snapshot at the build, in blocks of descending norm.

    Deaths neither spoil its answers nor slow it down. ``rows`` (n,): these living rows
    alone, below ``covered``. The blocks double from ``first`` rows to ``largest``.
    """

    kind: ClassVar[IndexKind] = "norm_pruned"
    is_exact = True

    def __init__(
        self,
        table: TableSnapshot,
        rows: Rows | None = None,
        *,
        covered: int | None = None,
        first: int = _FIRST_BLOCK,
        largest: int = _LARGEST_BLOCK,
    ) -> None:
        super().__init__(table.rows if covered is None else covered, Degradation(0))
        live_rows = table.live_rows if rows is None else rows
        self._order = NormOrder.of(table, live_rows, first=first, largest=largest)
        self._positions = positions_of(self._order.rows, self.covered)
        self._largest = self._order.blocks[0][1] if self._order.blocks else 0.0
        self._gone = NO_ROWS
        # For how many tombstones the positions of their rows are known, and those positions, ascending.
        self._masked: tuple[int, NDArray[np.int64]] = (0, NO_ROWS)

    @property
    def rows(self) -> Rows:
        """Its rows (n,), longest last, -1 for those that are gone."""
        return self._order.rows

    @property
    def memory_bytes(self) -> int:
        return self._order.memory_bytes + self._positions.nbytes

    def answered(self, quality: Quality, probes: Probes, lists: ExactLists) -> None:  # noqa: ARG002
        """Take note of how good the answers to ``probes`` are: perfect, but for arms that it leaves out."""
        self.degradation.measured = quality

    def tombstone(self, rows: Rows) -> None:
        """Count the dead; which rows they are is for the snapshot of a search to say."""
        self.degradation.dead += len(self._positions_of(rows))

    def moved(self, position: Rows, covered: int) -> NormBlocks:
        """The same blocks after a compaction: row r is now ``position[r]``, -1 if it is gone."""
        other = object.__new__(NormBlocks)
        other.__dict__.update(self.__dict__)
        other.covered = covered
        rows = np.append(position, -1)[self._order.rows]
        other._order = replace(self._order, rows=rows)
        other._positions = positions_of(rows, covered)
        other._gone = np.flatnonzero(rows < 0)
        other._masked = (0, other._gone)
        return other

    def search(self, table: TableSnapshot, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """Return the ``k`` best rows below ``covered`` that are alive and not excluded: exactly those.

        Shapes: query (d,), exclude (e,). Cost: d reads for every row up to the block where it stops.
        """
        order, dtype = self._order, self._order.later.dtype
        error = error_bound(table.dim, self._largest, unit_scale(query)[1], dtype)
        scores, masked = np.empty(order.size, dtype=dtype), self._masked_positions(table, exclude)
        # BLAS may compute with what memory held before, and drop it: no reason to warn.
        with np.errstate(invalid="ignore"):
            rows = order.contenders(query, k, error, masked, scores)
        return ranked(rows, k, table.features, query)

    def _masked_positions(self, table: TableSnapshot, exclude: Rows) -> NDArray[np.int64]:
        """Slots, ascending, of rows that are dead in ``table`` or excluded."""
        masked_dead, masked = self._masked
        # A snapshot of earlier than the last search: begin again rather than hide rows that live in it.
        if len(table.dead) < masked_dead:
            masked_dead, masked = 0, self._gone
        if len(table.dead) > masked_dead:
            masked = _inserted(masked, self._positions_of(table.dead[masked_dead:]))
            # A pair in one assignment: searches in other threads see either both new or both old.
            self._masked = (len(table.dead), masked)
        return _inserted(masked, self._positions_of(exclude)) if len(exclude) else masked

    def _positions_of(self, rows: Rows) -> NDArray[np.int64]:
        positions = self._positions[rows[rows < self.covered]].astype(np.int64)
        return positions[positions >= 0]


def _inserted(positions: NDArray[np.int64], more: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ascending ``positions`` with ``more``, which may be in any order, at theirs."""
    more = np.sort(more)
    return np.insert(positions, positions.searchsorted(more), more)


def block_bounds(size: int, first: int = _FIRST_BLOCK, largest: int = _LARGEST_BLOCK) -> Iterator[int]:
    """0, then the ends of blocks that double from the first size to the largest."""
    stop, length = 0, first
    yield 0
    while stop < size:
        stop = min(stop + length, size)
        length = min(2 * length, largest)
        yield stop


# Blocks need nothing but the arms, and are quickly made.
SAVING = Saving(
    lambda _blocks, _to: None, lambda at: NormBlocks(at.table, np.arange(at.covered), covered=at.covered)
)
