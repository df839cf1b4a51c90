"""Which arm each row of a table belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np

from shortlist.index.arrays import NO_STRINGS, MappedStrings
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
