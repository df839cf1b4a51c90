"""Features of arms by behaviour, as ``BehaviourRecord`` has them.

Notation
    T, d    numbers of an arm in the catalogue that is followed, and of its embedding
    n, x    how many keys liked an arm, and its embedding (d,); absent of most new arms
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shortlist.embedding.table_map import TableMap
from shortlist.types import Matrix
from shortlist_service.catalogues import BehaviourRecord


class BehaviourEncoding:
    """Makes features of arms of the catalogue that is followed. ``dim``: d + T with ``beside``, else d."""

    def __init__(self, record: BehaviourRecord) -> None:
        shift = np.frombuffer(record.shift, dtype="<f4").astype(np.float64)
        linear = np.frombuffer(record.linear, dtype="<f4").astype(np.float64).reshape(len(shift), -1)
        self._map = TableMap(linear, shift, record.kappa, 0.0)
        self._beside = record.beside
        self.table_dim = linear.shape[1]
        self.dim = len(shift) + record.beside * self.table_dim

    def features(self, table: Matrix, stored: Sequence[bytes | None]) -> Matrix:
        """The features of some arms. ``stored``: what ``behaviour_to_bytes`` made, None without behaviour.

        Shapes: table (k, T), -> (k, dim).
        """
        numbers = np.zeros((len(table), 1 + len(self._map.shift)))
        for number, data in enumerate(stored):
            if data is not None:
                numbers[number] = np.frombuffer(data, dtype="<f4")
        mixed = self._map.mix(table, numbers[:, 1:], numbers[:, 0])
        return np.hstack((table, mixed)) if self._beside else mixed


def behaviour_to_bytes(likes: NDArray[np.floating], vectors: NDArray[np.floating]) -> list[bytes]:
    """The stored bytes of each arm: n and x, float32. Shapes: (k,), (k, d)."""
    return [row.tobytes() for row in np.column_stack((likes, vectors)).astype("<f4")]
