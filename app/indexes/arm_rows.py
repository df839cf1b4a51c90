"""Which arm each row of a table belongs to, and which rows got tags or metadata since a moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from app.filters.arrays import NO_STRINGS, MappedStrings, grown
from shortlist.types import Rows

_ID_BYTES = 200


class ArmIds(Sequence[str]):
    """The id of every row that was ever appended. One thread appends; any may read.

    ``first``: those of the first rows, each once. ``mapped``: how many these are.
    """

    def __init__(self, first: MappedStrings = NO_STRINGS) -> None:
        self._first = first
        self.mapped = len(first)
        self._own: list[str] = []
        self._last: dict[str, int] = {}
        self._earlier: dict[int, int] = {}

    def __len__(self) -> int:
        return self.mapped + len(self._own)

    @overload
    def __getitem__(self, row: int) -> str: ...

    @overload
    def __getitem__(self, row: slice) -> list[str]: ...

    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return [self[number] for number in range(*row.indices(len(self)))]
        if row >= self.mapped:
            return self._own[row - self.mapped]
        if row < 0:
            return self[row + len(self)]
        return self._first[row]

    def extend(self, ids: Sequence[str]) -> None:
        """Rows were appended for these ids, each once."""
        first = len(self)
        if self.mapped or not self._last.keys().isdisjoint(ids):
            rows = enumerate(self.last_rows(ids), first)
            self._earlier.update((row, before) for row, before in rows if before is not None)
        self._last.update(zip(ids, range(first, first + len(ids)), strict=True))
        self._own += ids

    def last_row(self, arm_id: str) -> int | None:
        """The last row that was appended for an id, None if there is none."""
        row = self._last.get(arm_id)
        return row if row is not None or not self.mapped else self._first.number_of(arm_id)

    def last_rows(self, ids: Sequence[str]) -> list[int | None]:
        """The last row of each: quicker than one by one."""
        rows = [self._last.get(arm_id) for arm_id in ids]
        if self.mapped:
            others = [number for number, row in enumerate(rows) if row is None]
            for other, row in zip(
                others, self._first.numbers_of([ids[other] for other in others]), strict=True
            ):
                rows[other] = row
        return rows

    def strings_of(self, rows: Rows) -> MappedStrings:
        """The ids of these rows, which ascend and are of one arm each. Shape: (n,)."""
        first = self._first
        if not np.array_equal(rows[: self.mapped], np.arange(self.mapped)):
            first = NO_STRINGS
        others = rows[len(first) :].tolist()
        return first.followed_by(MappedStrings.of((self[row] for row in others), len(others)))

    def row_before(self, row: int) -> int | None:
        """The row that was an arm's last before this one, None if this was its first."""
        return self._earlier.get(row)

    @property
    def memory_bytes(self) -> int:
        """About the memory of what is not mapped."""
        return _ID_BYTES * len(self._own)


@dataclass(frozen=True, slots=True, eq=False)
class DescribedUntil:
    """Some descriptions: rows (n,) in their order. ``marks``: the first so many are in a version."""

    rows: Rows
    marks: tuple[tuple[int, int], ...]
    folds: int

    def after(self, version: int) -> Rows:
        """Rows that may have been described after this version, each once. Shape: -> (m,)."""
        described = max((count for mark, count in self.marks if mark <= version), default=0)
        return np.unique(self.rows[described:])


class DescribedRows:
    """See the module. One thread changes it. Memory: 24 bytes for each row at most, or 1 MB.

    ``most``: so many are noted before each row is kept once.
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
        """All that was noted is in this version of the catalogue."""
        if self._marks and version < self._marks[-1][0]:
            self._marks.clear()  # the store has lost writes
        if not self._marks or self._marks[-1][1] < self._count:
            self._marks.append((version, self._count))

    def until_now(self) -> DescribedUntil:
        return DescribedUntil(self._rows[: self._count], tuple(self._marks), self._folds)

    def since(self, before: DescribedUntil) -> Rows:
        """Rows that were noted after that, each once, and possibly others. Shape: -> (m,)."""
        first = len(before.rows) if before.folds == self._folds else 0
        return np.unique(self._rows[first : self._count])

    def after(self, version: int, position: Rows) -> DescribedRows:
        """What may be later than a version alone, of rows r that are now ``position[r]`` >= 0."""
        later_rows = DescribedRows(self._least_most)
        rows = position[self.until_now().after(version)]
        later_rows.note(rows[rows >= 0])
        return later_rows
