"""Costs of a search besides a plain scan, as numbers from the caller: plans are chosen by them.

Notation
    n, N        number of arms, of coordinates
    scan        reading all coordinates of all arms, in a row; n N coordinates
    unit        all costs are in the time in which a scan reads one coordinate of one arm

The costs differ from machine to machine. ``mips.measured_costs`` measures them. Without them every
read costs 1 and nothing else costs anything: then a plan is the one with the fewest reads.
"""

from __future__ import annotations

from dataclasses import dataclass

# The least sample takes this many times the overhead of its query. With a smaller one the query would take
# hardly less time, and know less.
_LEAST_SAMPLE = 2.4


@dataclass(frozen=True, slots=True)
class ReadCosts:
    """Costs in units of the module.

    ``picked``: a coordinate of an arm read without its neighbours; at least 1. ``whole``: a coordinate of an
    arm read in full, from its first coordinate on. ``query``, ``coordinate``, ``arm``: the overhead of a
    query, for itself, for each of its N coordinates and for each of the n arms. ``decision``: deciding what
    to read next, when few arms are left. ``check``: comparing all arms once in a race. ``large``: where a
    scan reads fewer coordinates than this, a search is so short that overhead and checks are left out of
    account.
    """

    picked: float = 1.0
    whole: float = 1.0
    query: float = 0.0
    coordinate: float = 0.0
    arm: float = 0.0
    decision: float = 0.0
    check: float = 0.0
    large: float = 0.0

    def reading(self, left: int, n: int) -> float:
        """Return the cost of one coordinate of ``left`` of the ``n`` arms: picked, or with all others."""
        return min(n, left * self.picked)

    def finishing(self, left: int, t: float, n: int, dim: int) -> float:
        """Return the cost of reading ``left`` of ``n`` arms from ``t`` to all ``dim`` coordinates."""
        return min(self.reading(left, n) * (dim - t), left * self.whole * dim)

    def overhead(self, n: int, dim: int) -> float:
        """Return what a query costs on top of its reads."""
        return self.query + self.coordinate * dim + self.arm * n if n * dim >= self.large else 0.0

    def checking(self, n: int, dim: int) -> float:
        """Return what a check of a race costs on top of its reads."""
        return self.check if n * dim >= self.large else 0.0

    def least_sample(self, n: int, dim: int) -> float:
        """Return the least number of coordinates that is worth sampling, of ``n`` arms; at most N / 4."""
        return max(1.0, min(dim / 4.0, _LEAST_SAMPLE * self.overhead(n, dim) / n))


READS_ALONE = ReadCosts()
"""Every read costs 1, and nothing else costs anything."""
