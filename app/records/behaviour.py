"""Catalogues whose features are an embedding of behaviour: they follow another catalogue, arm by arm.

Notation
    t           features of an arm in the catalogue that is followed (T,)
    x, n        embedding of an arm by behaviour (d,), and how many keys liked it; absent of most new arms
    W, b, k     what places an arm by its fields: (d, T), (d,), and how many likes that is worth

Features are (n x + k (W t + b)) / (n + k), after t itself where the embedding stands beside the table.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from shortlist.embedding.table_map import TableMap
from shortlist.types import Matrix


class BehaviourRecord(msgspec.Struct, frozen=True):
    """What a catalogue is an embedding of. It is stored with the catalogue, and never changes.

    ``follows``, ``follows_uid``    the catalogue that it follows
    ``linear``, ``shift``           W row by row, and b: float32
    ``kappa``                       k
    ``rewards``, ``keys``, ``arms`` how much behaviour there was, and of how many arms
    ``without``                     how many arms had none
    ``beside``                      whether the features begin with those of the table
    ``held_out``                    the squared error on rewards that were held out, before and after
    ``made_for``                    the id of the job that judged a log; it begins with the uid of the bandit;
                                    "": it was made by hand
    """

    follows: str
    follows_uid: str
    linear: bytes
    shift: bytes
    kappa: float
    rewards: int
    keys: int
    arms: int
    without: int
    beside: bool = False
    held_out: tuple[float, float] | None = None
    made_for: str = ""


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
    """What is stored of each arm: n and x, float32. Shapes: (k,), (k, d)."""
    return [row.tobytes() for row in np.column_stack((likes, vectors)).astype("<f4")]
