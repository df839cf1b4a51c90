"""From which sizes on a filter is planned, and how often."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterLimits:
    """Numbers are of the arms matched by a filter.

    ``small_numbers``   scanned in some microseconds: copied at once, and nothing measured
    ``quick_numbers``   comparing so many takes no longer than asking the index
    ``most_asked``      a request for a larger share of the index's arms takes longer than comparing all
    ``cooldown``        pause before another plan: times the duration of the last one
    ``after_failure_s`` pause before another plan after a failed one
    """

    small_numbers: int = 65_536
    quick_numbers: int = 500_000
    most_asked: float = 0.05
    cooldown: float = 20.0
    after_failure_s: float = 60.0
