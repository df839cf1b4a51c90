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

from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shortlist.index.index import Index, IndexKind, Saving
from shortlist.index.probes import ExactLists, Probes, Quality
from shortlist.index.quality import Degradation
from shortlist.index.table import TableSnapshot, Working, aligned_empty, positions_of
from shortlist.mips.exact import candidates, error_bound, kth_largest_or_less, ranked, unit_scale
from shortlist.types import NO_ROWS, Rows, TopK, Vector

_FIRST_BLOCK = 1_024
_LARGEST_BLOCK = 65_536
_ROUND_UP = 1.0 + 1e-9


class NormBlocks(Index):
    """The rows of a snapshot that were alive when it was built, in blocks of descending norm.

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
        live_rows = table.live_rows if rows is None else rows
        order = np.argsort(-table.norms[live_rows], kind="stable")
        super().__init__(table.rows if covered is None else covered, Degradation(0))
        self._rows: Rows = live_rows[order]
        self._positions = positions_of(self._rows, self.covered)
        self._largest = float(table.norms[self._rows[0]]) if live_rows.size else 0.0
        self._blocks = list[tuple[int, int, float, Working]]()
        for start, stop in pairwise(block_bounds(live_rows.size, first, largest)):
            block = aligned_empty(stop - start, table.dim, table.working.dtype)
            block[:] = table.working[self._rows[start:stop]]
            self._blocks.append((start, stop, float(table.norms[self._rows[start]]), block))
        self._gone = NO_ROWS
        # For how many tombstones the positions of their rows are known, and those positions, ascending.
        self._masked: tuple[int, NDArray[np.int64]] = (0, NO_ROWS)

    @property
    def rows(self) -> Rows:
        """Its rows (n,), longest first, -1 for those that are gone."""
        return self._rows

    @property
    def memory_bytes(self) -> int:
        return self._rows.nbytes + self._positions.nbytes + sum(block.nbytes for *_, block in self._blocks)

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
        other._rows = np.append(position, -1)[self._rows]
        other._positions = positions_of(other._rows, covered)
        other._gone = np.flatnonzero(other._rows < 0)
        other._masked = (0, other._gone)
        return other

    def search(self, table: TableSnapshot, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """Return the ``k`` best rows below ``covered`` that are alive and not excluded: exactly those.

        Shapes: query (d,), exclude (e,). Cost: d reads for every row up to the block where it stops.
        """
        scaled, query_norm = unit_scale(query)
        dtype = self._blocks[0][3].dtype if self._blocks else np.dtype(np.float32)
        working = scaled.astype(dtype, copy=False)
        error = error_bound(table.dim, self._largest, query_norm, dtype)
        masked = self._masked_positions(table, exclude)
        approximate = np.empty(len(self._rows), dtype=dtype)
        kth, done = -np.inf, 0
        # BLAS may compute with what memory held before, and drop it: no reason to warn.
        with np.errstate(invalid="ignore"):
            for start, stop, norm, block in self._blocks:
                # Rounded up: the product of two norms may be too small by its own rounding, and then an arm
                # that wins would be passed over.
                if norm * query_norm * _ROUND_UP < kth - error:
                    break
                np.matmul(block, working, out=approximate[start:stop])
                if len(masked):
                    hidden = masked[masked.searchsorted(start) : masked.searchsorted(stop)]
                    approximate[hidden] = -np.inf
                kth, done = max(kth, kth_largest_or_less(approximate[:stop], k)), stop
        rows = self._rows[candidates(approximate[:done], error, k)]
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
