"""Many names side by side: of each its bytes and 12 more, where a dictionary of texts takes 200."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from shortlist.types import Rows

MANY = 1_000  # names that are found faster by a dictionary of all,
SHARE = 10  # where they are one in so many of them


class PackedNames:
    """Names that do not change, each once."""

    def __init__(self, names: Sequence[str]) -> None:
        encoded = [name.encode() for name in names]
        self._text = b"".join(encoded)
        self._ends = np.zeros(len(encoded) + 1, dtype=np.uint32)
        np.cumsum([len(encoded_name) for encoded_name in encoded], out=self._ends[1:])
        hashes = np.fromiter(map(crc32, encoded), np.uint32, len(encoded))
        self._order = np.argsort(hashes, kind="stable").astype(np.uint32)
        self._hashes: NDArray[np.uint32] = hashes[self._order]

    @property
    def nbytes(self) -> int:
        return len(self._text) + self._ends.nbytes + self._order.nbytes + self._hashes.nbytes

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, row: int) -> str:
        begin, end = self._ends[row : row + 2].tolist()
        return self._text[begin:end].decode()

    def __iter__(self) -> Iterator[str]:
        ends = self._ends.tolist()
        for begin, end in pairwise(ends):
            yield self._text[begin:end].decode()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PackedNames):
            return NotImplemented
        return self._text == other._text and np.array_equal(self._ends, other._ends)

    __hash__ = None  # type: ignore[assignment]

    def places_of(self, names: Sequence[str]) -> Rows:
        """Where each of some names is, -1 of one that is not there. Shape: (n,). Cost: O(log K) for each."""
        if len(names) > MANY and SHARE * len(names) > len(self):
            places = {name: row for row, name in enumerate(self)}
            return np.array([places.get(name, -1) for name in names], dtype=np.int64)
        hashes = np.fromiter((crc32(name.encode()) for name in names), np.uint32, len(names))
        starts = self._hashes.searchsorted(hashes).tolist()
        rows = [
            self._place_of(name, hashed, start)
            for name, hashed, start in zip(names, hashes.tolist(), starts, strict=True)
        ]
        return np.array(rows, dtype=np.int64)

    def _place_of(self, name: str, hashed: int, start: int) -> int:
        # Of equal hashes each is compared: among 200,000 names there are some five such pairs.
        while start < len(self._hashes) and self._hashes[start] == hashed:
            row = int(self._order[start])
            if self[row] == name:
                return row
            start += 1
        return -1
