"""Arrays that only ever grow, and which entry of an arm came before another."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", np.int32, np.int64)

_LEAST_CAPACITY = 64
_GROWTH = 1.5


class Earlier:
    """For every entry the one that it replaced, -1 for none. Snapshots share it; empty until one did."""

    def __init__(self) -> None:
        self.entries = np.empty(0, dtype=np.int32)

    def note(self, entries: NDArray[np.int32], replaced: NDArray[np.int32]) -> None:
        """Shapes: (n,), (n,)."""
        self.entries = grown(self.entries, int(entries.max()) + 1, used=len(self.entries))
        self.entries[entries] = replaced

    def of(self, entry: int) -> int:
        return int(self.entries[entry]) if entry < len(self.entries) else -1


def grown(array: NDArray[T], least: int, *, used: int) -> NDArray[T]:
    """``array`` if it holds ``least`` numbers, else a larger copy of the first ``used``, then -1."""
    if least <= len(array):
        return array
    larger = np.full(max(least, int(used * _GROWTH), _LEAST_CAPACITY), -1, dtype=array.dtype)
    larger[:used] = array[:used]
    return larger
