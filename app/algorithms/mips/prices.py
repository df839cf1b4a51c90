"""What a search takes beside a scan: all times are in coordinates of arms that are read in a row.

Measured on one core where a scan reads eight million coordinates a millisecond: docs/papers/bounded-me.md.
"""

from __future__ import annotations

from typing import NamedTuple

# Where a scan takes less than a millisecond or two time is no object, and reads decide.
LARGE = 2**24
# What a query costs beside its reads: for itself, for each of its coordinates, and for each arm.
_QUERY, _COORDINATE, _ARM = 950_000, 60, 200
# The least sample, in multiples of that.
_MULTIPLE = 2.4


class Prices(NamedTuple):
    """The time that a coordinate takes: of arms that are ``picked``, and of those that are read ``whole``,
    from their first coordinate on.
    """

    picked: float
    whole: float

    def reading(self, left: int, n: int) -> float:
        """The time that a coordinate takes of ``left`` of ``n`` arms, picked or with all others."""
        return min(n, left * self.picked)

    def finishing(self, left: int, t: float, n: int, dim: int) -> float:
        """The time that reading ``left`` arms from ``t`` coordinates to the end takes."""
        return min(self.reading(left, n) * (dim - t), left * self.whole * dim)


AS_THEY_LIE = Prices(1.0, 1.0)
BLOCKED = Prices(3.5, 3.0)


def beside(n: int, dim: int) -> float:
    """What a query costs beside its reads; nothing where time is no object."""
    return _QUERY + _COORDINATE * dim + _ARM * n if n * dim >= LARGE else 0.0


def least_sample(n: int, dim: int) -> float:
    """The least number of coordinates of n arms that is worth reading: with fewer a query takes hardly less
    time, and most of that is not spent on reading.
    """
    return max(1.0, min(dim / 4.0, _MULTIPLE * beside(n, dim) / n))
