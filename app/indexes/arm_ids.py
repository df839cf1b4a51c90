"""The ids of the rows of a table: which arm a row is of, and which row is an arm's last.

Ids are only ever appended. The first of them may be in a file that several processes map (``MappedIds``): a
list and a dictionary of a million ids take 170 MB of each process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import overload

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
_HASH_BYTES = 8
_ID_BYTES = 200


@dataclass(frozen=True, slots=True, eq=False)
class MappedIds:
    """Ids of rows, each once, as arrays without an object for each.

    Shapes: text (b,), the ids in UTF-8 one after the other; ends (n + 1,), where each begins and ends;
    hashes (n,) ascending; rows (n,), that of each hash.
    """

    text: Bytes
    ends: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    rows: NDArray[np.int32]

    @classmethod
    def of(cls, ids: Iterator[str], count: int) -> MappedIds:
        """Of ``count`` ids. Cost: about a microsecond for each."""
        text = bytearray()
        ends, hashes = np.zeros(count + 1, dtype=np.int64), np.empty(count, dtype=np.uint64)
        for row, arm_id in enumerate(ids):
            key = arm_id.encode()
            text += key
            ends[row + 1] = len(text)
            hashes[row] = _hash(key)
        order = np.argsort(hashes, kind="stable")
        return cls(np.frombuffer(text, dtype=np.uint8), ends, hashes[order], order.astype(np.int32))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> str:
        begin, end = self.ends[row : row + 2].tolist()
        return self.text[begin:end].tobytes().decode()

    def row_of(self, arm_id: str) -> int | None:
        key = arm_id.encode()
        wanted = _hash(key)
        at = int(self.hashes.searchsorted(np.uint64(wanted)))
        while at < len(self.rows) and self.hashes.item(at) == wanted:
            row = self.rows.item(at)
            if self[row] == arm_id:
                return row
            at += 1
        return None


class ArmIds(Sequence[str]):
    """The id of every row that was ever appended. One thread appends; any may read.

    ``first``: those of the first rows, each once. ``mapped``: how many these are.
    """

    def __init__(self, first: MappedIds | None = None) -> None:
        self._first = first if first is not None else MappedIds.of(iter(()), 0)
        self.mapped = len(self._first)
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
            return [self[each] for each in range(*row.indices(len(self)))]
        if row >= self.mapped:
            return self._own[row - self.mapped]
        if row < 0:
            return self[row + len(self)]
        return self._first[row]

    def extend(self, ids: Iterable[str]) -> None:
        """Rows were appended for these ids."""
        row = len(self)
        for arm_id in ids:
            before = self.last_row(arm_id)
            if before is not None:
                self._earlier[row] = before
            self._last[arm_id] = row
            self._own.append(arm_id)
            row += 1

    def last_row(self, arm_id: str) -> int | None:
        """The last row that was appended for an id, None if there is none."""
        row = self._last.get(arm_id)
        return row if row is not None or not self.mapped else self._first.row_of(arm_id)

    def row_before(self, row: int) -> int | None:
        """The row that was an arm's last before this one, None if this was its first."""
        return self._earlier.get(row)

    @property
    def memory_bytes(self) -> int:
        """About the memory of what is not mapped."""
        return _ID_BYTES * len(self._own)


def _hash(key: bytes) -> int:
    return int.from_bytes(blake2b(key, digest_size=_HASH_BYTES).digest(), "little")
