"""Many names in one array: each takes as many bytes as the longest and 8 more; in a dictionary, 200."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from shortlist.types import Rows


class PackedNames:
    """Immutable names, each once; none is empty."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = np.array([name.encode() for name in names], dtype=np.bytes_)
        self._order = np.argsort(self._names)

    @property
    def nbytes(self) -> int:
        return self._names.nbytes + self._order.nbytes

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, row: int) -> str:
        return bytes(self._names[row]).decode()

    def __iter__(self) -> Iterator[str]:
        return (name.decode() for name in self._names.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PackedNames) and np.array_equal(self._names, other._names)

    __hash__ = None  # type: ignore[assignment]

    def places_of(self, names: Sequence[str]) -> Rows:
        """The place of each name, -1 for a missing one. Shape: (n,). Cost: O(log K) for each."""
        if not len(self):
            return np.full(len(names), -1, dtype=np.int64)
        # As numpy compares names of one length without a copy of all: a longer name is none of these.
        longest = self._names.itemsize
        texts = [text if len(text) <= longest else b"" for text in map(str.encode, names)]
        wanted = np.array(texts, dtype=self._names.dtype)
        ranks = self._names.searchsorted(wanted, sorter=self._order)
        places = self._order[np.minimum(ranks, len(self) - 1)]
        return np.where(self._names[places] == wanted, places, -1)
