"""The entries replaced by later ones of the same row: attributes of arms are only ever appended."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shortlist.index.arrays import grown


class Earlier:
    """For every entry its predecessor, -1 without one. Snapshots share the array; empty without
    predecessors.
    """

    def __init__(self) -> None:
        self.entries = np.empty(0, dtype=np.int32)

    def note(self, entries: NDArray[np.int32], replaced: NDArray[np.int32]) -> None:
        """Shapes: (n,), (n,)."""
        self.entries = grown(self.entries, int(entries.max()) + 1, used=len(self.entries))
        self.entries[entries] = replaced

    def of(self, entry: int) -> int:
        return int(self.entries[entry]) if entry < len(self.entries) else -1
