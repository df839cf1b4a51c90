"""The set of living arms of one learner, with one bit for each arm.

Notation
    K               number of rows of the catalogue with room in the set
    row             position of an arm in the catalogue; a row is never used for a second arm
    bits            (ceil(K / 8),) bytes; bit ``row % 8`` of byte ``row // 8`` is set for a living arm

The set is a value: every change makes a copy, so another thread may go on reading its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist.types import Rows

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class LivingArms:
    """``bits`` as in the module, ``count`` living arms. Each change copies K / 8 bytes."""

    bits: Bytes
    count: int

    def mask(self, rows: Rows) -> NDArray[np.bool_]:
        """Say of each of ``rows`` whether it lives. Shapes: (m,) -> (m,)."""
        shifted = self.bits.take(rows >> 3, mode="clip") >> (rows & 7).astype(np.uint8)
        is_alive: NDArray[np.bool_] = (shifted & 1).view(np.bool_)
        if len(rows) and rows[rows.argmax()] >= 8 * len(self.bits):
            is_alive &= rows < 8 * len(self.bits)
        return is_alive

    def among(self, rows: Rows) -> Rows:
        """Return those of ``rows`` that live, in their order."""
        return rows[self.mask(rows)]

    def with_rows(self, rows: Rows) -> LivingArms:
        """Return the set with ``rows``, distinct and so far not in it."""
        if not len(rows):
            return self
        bits = np.zeros(max(len(self.bits), int(rows.max()) // 8 + 1), dtype=np.uint8)
        bits[: len(self.bits)] = self.bits
        np.bitwise_or.at(bits, rows >> 3, _masks(rows))
        return LivingArms(bits, self.count + len(rows))

    def without(self, rows: Rows) -> LivingArms:
        """Return the set without ``rows``, distinct and so far in it."""
        if not len(rows):
            return self
        bits = self.bits.copy()
        np.bitwise_and.at(bits, rows >> 3, ~_masks(rows))
        return LivingArms(bits, self.count - len(rows))

    def rows(self) -> Rows:
        """Return all living rows in ascending order. Cost: O(K)."""
        return np.flatnonzero(np.unpackbits(self.bits, bitorder="little"))


NO_ARMS = LivingArms(np.zeros(1, dtype=np.uint8), 0)


def _masks(rows: Rows) -> Bytes:
    return np.left_shift(np.uint8(1), (rows & 7).astype(np.uint8))
