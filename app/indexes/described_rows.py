"""The rows of a table with new tags or metadata since a moment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shortlist.index.arrays import grown
from shortlist.types import Rows


@dataclass(frozen=True, slots=True, eq=False)
class DescribedUntil:
    """Some descriptions: rows (n,) in their order. ``marks``: the first so many are in a version."""

    rows: Rows
    marks: tuple[tuple[int, int], ...]
    folds: int

    def after(self, version: int) -> Rows:
        """Rows with possible descriptions after this version, each once. Shape: -> (m,)."""
        described = max((count for mark, count in self.marks if mark <= version), default=0)
        return np.unique(self.rows[described:])


class DescribedRows:
    """See the module. One thread changes it. Memory: 24 bytes for each row at most, or 1 MB.

    ``most``: number of notes after which each row is kept once.
    """

    def __init__(self, most: int) -> None:
        self._least_most = most
        self._rows, self._count = np.empty(0, dtype=np.int64), 0
        self._marks: list[tuple[int, int]] = []
        self._folds, self._most = 0, most

    def note(self, rows: Rows) -> None:
        """These were described now. Shape: (n,)."""
        last = self._count + len(rows)
        self._rows = grown(self._rows, last, used=self._count)
        self._rows[self._count : last] = rows
        self._count = last
        if last > self._most:
            self._fold()

    def _fold(self) -> None:
        """Keep each row once. In which versions they were described is forgotten: any may be later."""
        self._rows = np.unique(self._rows[: self._count])
        self._count, self._marks = len(self._rows), []
        self._folds, self._most = self._folds + 1, max(2 * self._count, self._least_most)

    def reached(self, version: int) -> None:
        """All notes so far are in this version of the catalogue."""
        if self._marks and version < self._marks[-1][0]:
            self._marks.clear()  # the store has lost writes
        if not self._marks or self._marks[-1][1] < self._count:
            self._marks.append((version, self._count))

    def until_now(self) -> DescribedUntil:
        return DescribedUntil(self._rows[: self._count], tuple(self._marks), self._folds)

    def since(self, before: DescribedUntil) -> Rows:
        """Rows noted after that moment, each once, and possibly others. Shape: -> (m,)."""
        first = len(before.rows) if before.folds == self._folds else 0
        return np.unique(self._rows[first : self._count])

    def after(self, version: int, position: Rows) -> DescribedRows:
        """Rows possibly later than a version alone, renumbered: row r is now ``position[r]`` >= 0."""
        later_rows = DescribedRows(self._least_most)
        rows = position[self.until_now().after(version)]
        later_rows.note(rows[rows >= 0])
        return later_rows
