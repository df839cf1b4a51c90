"""From which sizes on a filter is planned, and how often."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterLimits:
    """Numbers are those of the arms that a filter matches.

    ``small_numbers``   scanned in some microseconds: copied at once, and nothing measured
    ``quick_numbers``   comparing so many takes no longer than asking the index
    ``most_asked``      an index that is asked for a larger share of its arms takes longer than comparing all
    ``cooldown``        before it is planned again: times what planning took
    ``after_failure_s`` before it is planned again after planning failed
    """

    small_numbers: int = 65_536
    quick_numbers: int = 500_000
    most_asked: float = 0.05
    cooldown: float = 20.0
    after_failure_s: float = 60.0
