"""The arm of each row of a table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from shortlist.index.arrays import NO_STRINGS, MappedStrings
from shortlist.types import Rows

_ID_BYTES = 200
_BLOCK = 4_096  # ids


class ArmIds(Sequence[str]):
    """The id of every row that was ever appended. One thread appends; any may read.

    ``first``: those of the first rows, each once. ``mapped``: how many these are.
    """

    def __init__(self, first: MappedStrings = NO_STRINGS) -> None:
        self._first = first
        self.mapped = len(first)
        # Not one list: Python's garbage collector looks at each item of a list, and with 1,000,000 ids stops
        # everything for 37 ms. It does not look into arrays; and blocks need no copy to grow.
        self._blocks: list[NDArray[Any]] = []
        self._count = 0
        self._last: dict[str, int] = {}
        self._earlier: dict[int, int] = {}

    @classmethod
    def of_few(cls, ids: Sequence[str]) -> ArmIds:
        """The ids of few rows, without more to be appended: a block of their own size is made sooner."""
        if len(ids) > _BLOCK:
            named = cls()
            named.extend(ids)
            return named
        arm_ids = cls()
        arm_ids._blocks, arm_ids._count = [np.array(ids, dtype=object)], len(ids)
        arm_ids._last = dict(zip(ids, range(len(ids)), strict=True))
        return arm_ids

    def __len__(self) -> int:
        return self.mapped + self._count

    @overload
    def __getitem__(self, row: int) -> str: ...

    @overload
    def __getitem__(self, row: slice) -> list[str]: ...

    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return [self[number] for number in range(*row.indices(len(self)))]
        if row >= self.mapped + self._count:
            raise IndexError("there is no such row")
        if row >= self.mapped:
            block, offset = divmod(row - self.mapped, _BLOCK)
            arm_id: str = self._blocks[block].item(offset)
            return arm_id
        if row < 0:
            return self[row + len(self)]
        return self._first[row]

    def extend(self, ids: Sequence[str]) -> None:
        """Rows were appended for these ids, each once."""
        first = len(self)
        if self.mapped or not self._last.keys().isdisjoint(ids):
            rows = enumerate(self.last_rows(ids).tolist(), first)
            self._earlier.update((row, before) for row, before in rows if before >= 0)
        self._last.update(zip(ids, range(first, first + len(ids)), strict=True))
        appended = 0
        while appended < len(ids):
            offset = self._count % _BLOCK
            if not offset:
                self._blocks.append(np.empty(_BLOCK, dtype=object))
            part = ids[appended : appended + _BLOCK - offset]
            self._blocks[-1][offset : offset + len(part)] = part
            appended += len(part)
            self._count += len(part)

    def last_row(self, arm_id: str) -> int | None:
        """The last row that was appended for an id, None if there is none."""
        row = self._last.get(arm_id)
        return row if row is not None or not self.mapped else self._first.number_of(arm_id)

    def last_rows(self, ids: Sequence[str]) -> Rows:
        """The last row of each, -1 where there is none: quicker than one by one. Shape: (n,)."""
        rows = np.fromiter(map(self._last.get, ids, repeat(-1)), np.int64, len(ids))
        if self.mapped:
            others = np.flatnonzero(rows < 0).tolist()
            positions = self._first.numbers_of([ids[other] for other in others])
            for other, row in zip(others, positions, strict=True):
                if row is not None:
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
        return _ID_BYTES * self._count
