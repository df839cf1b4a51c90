"""From which sizes on a filter is planned, and how much faster a strategy has to be to serve it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterLimits:
    """Numbers are those of the arms that a filter matches.

    ``small_numbers``   scanned in some microseconds: copied at once, and nothing measured
    ``quick_numbers``   a strategy that takes no longer than a scan of these is quick enough
    ``most_asked``      a graph that is asked for a larger share of its arms takes longer than comparing all
    ``least_speedup``   a strategy serves that is so many times as fast as the one it is compared with
    ``renewal_rest``    times what it took to make a strategy again
    """

    small_numbers: int = 65_536
    quick_numbers: int = 500_000
    most_asked: float = 0.05
    least_speedup: float = 1.25
    renewal_rest: float = 2.0
