"""A copy of the rows matched by a filter, side by side, which follows changes of the matches.

Many rows are copied in the order of their norms (``NormOrder``). New rows are appended, into spare capacity.
So following a change takes time in proportion to the change. The copy before the change shares the arrays and
stays true for searches. Below, m rows were ever copied.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from app.indexes.eligible_rows import Change, EligibleRows, renumbered
from app.indexes.filtered_search import reused_scores
from app.indexes.snapshot import Snapshot
from shortlist.index.arrays import grown
from shortlist.index.index import IndexKind
from shortlist.index.norm_pruned import NormOrder
from shortlist.index.table import TableSnapshot, aligned_empty, not_in, positions_of
from shortlist.mips.exact import ranked, unit_scale
from shortlist.types import NO_ROWS, Rows, TopK, Vector

_LEAST_ORDERED = 2_048  # rows: fewer are read at once


@dataclass(frozen=True, slots=True, eq=False)
class RowCopy:
    """See the module. A copy may be searched in any thread, and be followed once: its arrays go on.

    eligible    the rows at the copy's moment
    order       the rows and their features, with room for more
    positions   (rows of the table or more,), -1 for rows without a copy
    gone        (g,) positions of rows which no longer match, ascending
    Memory: 4 d + 8 bytes a row, and 4 bytes a row of the table.
    """

    eligible: EligibleRows
    order: NormOrder
    positions: NDArray[np.int32]
    gone: NDArray[np.int64] = field(default_factory=lambda: NO_ROWS)
    name: ClassVar[str] = "copy"
    kind: ClassVar[IndexKind] = "exact"
    is_exact: ClassVar[bool] = True

    @classmethod
    def of(cls, table: TableSnapshot, eligible: EligibleRows) -> RowCopy:
        """Copy the matching rows (n,). Cost: n d reads at random places, and to sort n norms."""
        order = NormOrder.of(table, eligible.rows, is_ordered=eligible.count > _LEAST_ORDERED)
        return cls(eligible, order, positions_of(order.rows, table.rows))

    def __len__(self) -> int:
        """The number of rows which are not gone."""
        return self.order.size - len(self.gone)

    @property
    def memory_bytes(self) -> int:
        return self.order.memory_bytes + self.positions.nbytes + self.gone.nbytes

    @property
    def staleness(self) -> float:
        """Rows which make searches slower than searches of a new copy / matching rows."""
        later = self.order.size - self.order.ordered if self.order.ordered else 0
        return (len(self.gone) + later) / max(len(self), 1)

    def followed(self, table: TableSnapshot, eligible: EligibleRows) -> RowCopy | None:
        """The copy at a later moment; None: this copy cannot follow. For one thread.

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
        if copy.order.later.dtype != table.working.dtype:
            return None
        return copy._changed(table, eligible, eligible.since(before))

    def _changed(self, table: TableSnapshot, eligible: EligibleRows, change: Change) -> RowCopy:
        came, went = change.came, change.went
        if not len(came) and not len(went):
            return replace(self, eligible=eligible)
        order, used, size = self.order, self.order.size, self.order.size + len(came)
        left = np.sort(self.positions[went]).astype(np.int64)
        rows, later, copied_later = grown(order.rows, size, used=used), order.later, used - order.ordered
        if copied_later + len(came) > len(later):
            later = aligned_empty(len(rows) - order.ordered, table.dim, later.dtype)
            later[:copied_later] = order.later[:copied_later]
        rows[used:size] = came
        later[copied_later : copied_later + len(came)] = table.working[came]
        positions = grown(self.positions, table.rows, used=len(self.positions))
        positions[went] = -1
        positions[came] = np.arange(used, size)
        order = replace(order, rows=rows, later=later, size=size)
        return RowCopy(eligible, order, positions, np.insert(self.gone, self.gone.searchsorted(left), left))

    def _moved(self, position: Rows, table_rows: int) -> RowCopy:
        """The copy after a compaction: row r is now ``position[r]``, -1 for a row which is gone."""
        rows, size = np.full(len(self.order.rows), -1, dtype=np.int64), self.order.size
        copied_rows = rows[:size]
        copied_rows[:] = position[self.order.rows[:size]]
        copied_rows[self.gone] = -1
        positions, gone = positions_of(copied_rows, table_rows), np.flatnonzero(copied_rows < 0)
        return replace(self, order=replace(self.order, rows=rows), positions=positions, gone=gone)

    def search(self, snapshot: Snapshot, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """The best ``k`` of the rows outside ``exclude``, which match. Cost: at most m d reads in a row."""
        table, order = snapshot.table, self.order
        slope, offset = table.error_line
        error = slope * unit_scale(query)[1] + offset
        scores = reused_scores(order.size, order.later.dtype)
        rows = order.contenders(query, k + len(exclude), error, self.gone, scores)
        if len(exclude):
            rows = rows[not_in(rows, exclude)]
        return ranked(rows, k, table.features, query)
