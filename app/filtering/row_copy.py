"""A copy of some rows of a table side by side, which follows the rows that a filter matches.

Notation
    m, d        rows that were ever copied, dimension
    position    where a row stands in the copy

Rows that come are appended, into capacity that is kept for them. So following a change takes time in
proportion to the change. The copy before it shares the arrays and stays true for searches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.indexes.eligible_rows import Change
from shortlist.index.arrays import grown
from shortlist.index.table import TableSnapshot, Working, aligned_empty, positions_of
from shortlist.mips.exact import candidates
from shortlist.types import NO_ROWS, Rows, Vector


@dataclass(frozen=True, slots=True, eq=False)
class RowCopy:
    """See the module. It may be searched in any thread, and be followed or moved once: its arrays go on.

    rows, features      (capacity,), (capacity, d), of which ``size`` are in use
    positions           (rows of the table or more,), -1 for rows that are not copied
    gone                (g,) positions of rows that no longer match, and are ignored
    Memory: 4 d + 8 bytes a row, and 4 bytes a row of the table.
    """

    rows: Rows
    features: Working
    positions: NDArray[np.int32]
    size: int
    gone: NDArray[np.int64]

    @classmethod
    def of_nothing(cls) -> RowCopy:
        """A copy of no row, which becomes one of the first rows that come."""
        return cls(NO_ROWS, np.empty((0, 0), dtype=np.float32), np.empty(0, dtype=np.int32), 0, NO_ROWS)

    @classmethod
    def of(cls, table: TableSnapshot, rows: Rows) -> RowCopy:
        """Copy ``rows`` (n,) of the table."""
        features = aligned_empty(len(rows), table.dim, table.working.dtype)
        features[:] = table.working[rows]
        return cls(rows, features, positions_of(rows, table.rows), len(rows), NO_ROWS)

    def __len__(self) -> int:
        """The rows that are not gone."""
        return self.size - len(self.gone)

    @property
    def memory_bytes(self) -> int:
        return self.rows.nbytes + self.features.nbytes + self.positions.nbytes + self.gone.nbytes

    def followed(self, table: TableSnapshot, change: Change) -> RowCopy:
        """The same after a change of what is let in; rows that went and were not copied are ignored.

        Cost: O(changed rows), over many changes.
        """
        came, went = change.came, change.went
        if not self.size:
            return RowCopy.of(table, came) if len(came) else self
        if not len(came) and not len(went):
            return self
        used, size = self.size, self.size + len(came)
        went = went[went < len(self.positions)]
        left = self.positions[went].astype(np.int64)
        rows, features = grown(self.rows, size, used=used), self.features
        if len(rows) > len(features):
            features = aligned_empty(len(rows), features.shape[1], features.dtype)
            features[:used] = self.features[:used]
        rows[used:size] = came
        features[used:size] = table.working[came]
        positions = grown(self.positions, table.rows, used=len(self.positions))
        positions[went] = -1
        positions[came] = np.arange(used, size)
        return RowCopy(rows, features, positions, size, np.concatenate((self.gone, left[left >= 0])))

    def moved(self, position: Rows, table_rows: int) -> RowCopy:
        """The same after a compaction: row r is now ``position[r]``, -1 if it is gone."""
        if not self.size:
            return self
        rows = np.full(len(self.features), -1, dtype=np.int64)
        copied_rows = rows[: self.size]
        copied_rows[:] = position[self.rows[: self.size]]
        copied_rows[self.gone] = -1
        return RowCopy(
            rows,
            self.features,
            positions_of(copied_rows, table_rows),
            self.size,
            np.flatnonzero(copied_rows < 0),
        )

    def contenders(self, table: TableSnapshot, query: Vector, k: int) -> Rows:
        """The rows that could be the best ``k`` of the copy for ``query`` (d,). Cost: m d reads in a row."""
        if not self.size:
            return NO_ROWS
        rows, features = self.rows, self.features
        if self.size < len(rows):
            rows, features = rows[: self.size], features[: self.size]
        scaled, error = table.scaled(query)
        approximate = features @ scaled
        if len(self.gone):
            approximate[self.gone] = -np.inf
        return rows[candidates(approximate, error, k)]
