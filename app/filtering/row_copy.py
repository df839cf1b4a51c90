"""A copy of the rows that a filter matches, side by side, which follows what the filter matches.

Notation
    m, d        rows that were ever copied, dimension
    position    where a row stands in the copy
    e           bound on the rounding error of one approximate score
    t           lower bound on the k-th best approximate score so far

Many rows are copied in ascending order of their norms |x|, and read in blocks from the end. Once
|x||q| < t - e for the longest row of a block, no row before it can be among the best
(``shortlist.index.norm_pruned``). Rows that come are appended, into capacity that is kept for them, and read
first. So following a change takes time in proportion to the change. The copy before it shares the arrays and
stays true for searches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from app.indexes.eligible_rows import Change, EligibleRows, renumbered
from app.indexes.filtered_search import reused_scores
from app.indexes.snapshot import Snapshot
from shortlist.index.arrays import grown
from shortlist.index.index import IndexKind
from shortlist.index.norm_pruned import block_bounds
from shortlist.index.table import TableSnapshot, Working, aligned_empty, longest_first, not_in, positions_of
from shortlist.mips.exact import candidates, kth_largest_or_less, ranked, unit_scale
from shortlist.types import NO_ROWS, Rows, TopK, Vector

_LEAST_ORDERED = 2_048  # rows: fewer are read at once
_ROUND_UP = 1.0 + 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class RowCopy:
    """See the module. It may be searched in any thread, and be followed once: its arrays go on.

    eligible            the rows of the moment that it is of
    rows, features      (capacity,), (capacity, d), of which ``size`` are in use
    positions           (rows of the table or more,), -1 for rows that are not copied
    blocks              of the rows in order, the longest first: where each begins, and its largest norm
    ordered             rows in order; those after them came later
    gone                (g,) positions of rows that no longer match, ascending
    Memory: 4 d + 8 bytes a row, and 4 bytes a row of the table.
    """

    eligible: EligibleRows
    rows: Rows
    features: Working
    positions: NDArray[np.int32]
    size: int
    blocks: tuple[tuple[int, float], ...] = ()
    ordered: int = 0
    gone: NDArray[np.int64] = field(default_factory=lambda: NO_ROWS)
    name: ClassVar[str] = "copy"
    kind: ClassVar[IndexKind] = "exact"
    is_exact: ClassVar[bool] = True

    @classmethod
    def of(cls, table: TableSnapshot, eligible: EligibleRows) -> RowCopy:
        """Copy the rows (n,) that match. Cost: n d reads at random places, and to sort n norms."""
        rows, blocks, ordered = eligible.rows, list[tuple[int, float]](), 0
        count = len(rows)
        if count > _LEAST_ORDERED:
            rows, ordered = longest_first(table, rows)[::-1].copy(), count
            for before, end in pairwise(block_bounds(count)):
                blocks.append((count - end, float(table.norms[rows[count - 1 - before]])))
        features = aligned_empty(count, table.dim, table.working.dtype)
        features[:] = table.working[rows]
        positions = positions_of(rows, table.rows)
        return cls(eligible, rows, features, positions, count, tuple(blocks), ordered)

    def __len__(self) -> int:
        """The rows that are not gone."""
        return self.size - len(self.gone)

    @property
    def memory_bytes(self) -> int:
        return self.rows.nbytes + self.features.nbytes + self.positions.nbytes + self.gone.nbytes

    @property
    def staleness(self) -> float:
        """Rows that make searches slower than those of a new copy would be / rows that match."""
        later = self.size - self.ordered if self.ordered else 0
        return (len(self.gone) + later) / max(len(self), 1)

    def followed(self, table: TableSnapshot, eligible: EligibleRows) -> RowCopy | None:
        """The same at a later moment; None: it cannot follow. For one thread.

        Cost: O(changed rows) over many changes; O(rows of the table) after a compaction.
        """
        copy, before = self, self.eligible
        if before.table_number != table.number:
            # Two compactions since: the way of the rows is known only for the last.
            if table.renumbered is None or table.renumbered.number != before.table_number:
                return None
            position = table.renumbered.positions.astype(np.int64)
            copy, before = copy._moved(position, table.rows), renumbered(before, position, table)
        # a long arm came, so the table is scanned in float64 from now on
        if copy.features.dtype != table.working.dtype:
            return None
        return copy._changed(table, eligible, eligible.since(before))

    def _changed(self, table: TableSnapshot, eligible: EligibleRows, change: Change) -> RowCopy:
        came, went = change.came, change.went
        if not len(came) and not len(went):
            return replace(self, eligible=eligible)
        used, size = self.size, self.size + len(came)
        left = np.sort(self.positions[went]).astype(np.int64)
        rows, features = grown(self.rows, size, used=used), self.features
        if len(rows) > len(features):
            features = aligned_empty(len(rows), table.dim, features.dtype)
            features[:used] = self.features[:used]
        rows[used:size] = came
        features[used:size] = table.working[came]
        positions = grown(self.positions, table.rows, used=len(self.positions))
        positions[went] = -1
        positions[came] = np.arange(used, size)
        return replace(
            self,
            eligible=eligible,
            rows=rows,
            features=features,
            positions=positions,
            size=size,
            gone=np.insert(self.gone, self.gone.searchsorted(left), left),
        )

    def _moved(self, position: Rows, table_rows: int) -> RowCopy:
        """The same after a compaction: row r is now ``position[r]``, -1 if it is gone."""
        rows = np.full(len(self.features), -1, dtype=np.int64)
        copied_rows = rows[: self.size]
        copied_rows[:] = position[self.rows[: self.size]]
        copied_rows[self.gone] = -1
        positions, gone = positions_of(copied_rows, table_rows), np.flatnonzero(copied_rows < 0)
        return replace(self, rows=rows, positions=positions, gone=gone)

    def search(self, snapshot: Snapshot, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """The best ``k`` of the rows outside ``exclude``, which match. Cost: at most m d reads in a row."""
        table = snapshot.table
        rows = self._contenders(table, query, k + len(exclude))
        if len(exclude):
            rows = rows[not_in(rows, exclude)]
        return ranked(rows, k, table.features, query)

    def _contenders(self, table: TableSnapshot, query: Vector, k: int) -> Rows:
        """Rows that could be the best ``k``."""
        scaled, query_norm = unit_scale(query)
        slope, offset = table.error_line
        error = slope * query_norm + offset
        scaled = scaled.astype(self.features.dtype, copy=False)
        scores = reused_scores(self.size, self.features.dtype)
        first = self._score(scaled, scores, self.ordered, self.size)
        for start, norm in self.blocks:
            kth = kth_largest_or_less(scores[first:], k) if first < self.size else -math.inf
            # Rounded up: the product of two norms may be too small by its own rounding.
            if norm * query_norm * _ROUND_UP < kth - error:
                break
            first = self._score(scaled, scores, start, first)
        found = candidates(scores[first:], error, k)
        return self.rows[found + first if first else found]

    def _score(self, scaled: Working, scores: Working, start: int, stop: int) -> int:
        """Write the approximate scores of these positions, -inf for those that are gone."""
        if start < stop:
            np.matmul(self.features[start:stop], scaled, out=scores[start:stop])
            if len(self.gone):
                scores[self.gone[self.gone.searchsorted(start) : self.gone.searchsorted(stop)]] = -np.inf
        return start
