"""Intervals of the mean rewards of two groups and of their difference, of values that come one at a time.

The unit, which is what was drawn into a group, is a decision or a key:

    decision    ``ValueSequence``: a bounded confidence sequence while values have bounds, else the asymptotic
                one of the same values
    key         ``KeyIntervals``: a user who came a thousand times is one draw, not a thousand. So what counts
                is by key: how many decisions it had, and the sum of their rewards

Where the share of the groups changed, they are compared within each stage of one share (``stages``).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from shortlist.evaluation import asymptotic_confidence_sequence as asymptotic
from shortlist.evaluation import clustered_t_sequence as clustered
from shortlist.evaluation import confidence_sequence as bounded
from shortlist.evaluation.asymptotic_confidence_sequence import Missing, Unbounded
from shortlist.evaluation.clustered_t_sequence import KeyTable, Looks, Summary
from shortlist.evaluation.confidence_sequence import Bounded
from shortlist.evaluation.stages import weights as stage_weights
from shortlist.types import Rows, Vector

GroupNumber = Literal[0, 1]
IntervalKind = Literal["bounded", "asymptotic"]
Interval = tuple[float, float]

_LEAST_NEW = 10_000
_ROUNDING = 1e-9  # by how much a value may miss its bounds, in parts of their distance


class GroupIntervals(NamedTuple):
    """Intervals of both groups and of their difference, the first less the other; None where there is none.

    ``decisions``   they are of the first so many decisions of both groups
    ``missing``     why a group has no interval
    ``needed``      how many of its unit a group needs at least for one, by what was seen
    ``next_look``   at how many decisions there will be others; None: at each
    ``weights``     how much each stage counts; they sum to 1
    """

    kind: IntervalKind
    decisions: int
    groups: Sequence[Interval | None]
    difference: Interval | None
    missing: Sequence[Missing | None]
    needed: Sequence[int | None] = (None, None)
    next_look: int | None = None
    weights: Sequence[float] = (1.0,)


@dataclass(slots=True)
class ValueSequence:
    """Values of one group in their order. ``bounded``: None while empty, and once a value has no bounds.

    The bounds are the widest of any value so far.
    """

    bounded: Bounded | None = None
    unbounded: Unbounded = field(default_factory=Unbounded)
    has_bounds: bool = True
    _waiting: list[float] = field(default_factory=list)

    def add(self, value: float, bounds: Interval | None) -> None:
        """Count a value that lies within ``bounds``; None: it has none. ``settle`` makes what follows."""
        self._waiting.append(self._within(value, bounds) if self.has_bounds else value)

    def settle(self) -> None:
        """Take up the values that were added. Cost: O(1) for each."""
        values = np.array(self._waiting, dtype=np.float64)
        self._waiting.clear()
        self.unbounded = asymptotic.add(self.unbounded, values)
        if self.bounded is not None:
            self.bounded = bounded.add(self.bounded, values)

    def _within(self, value: float, bounds: Interval | None) -> float:
        """The value, which the bounds hold then; there are none from now on if it has none."""
        low, high = bounds or (0.0, 0.0)
        slack = _ROUNDING * (high - low)
        if not low < high or not low - slack <= value <= high + slack:
            self.has_bounds, self.bounded = False, None
            return value
        known = self.bounded
        if known is None:
            self.bounded = bounded.start(low, high)
        elif low < known.low or high > known.high:
            self.settle()
            low, high = min(low, known.low), max(high, known.high)
            self.bounded = bounded.widened(self.bounded or known, low, high)
        return min(max(value, low), high)


def intervals(one: ValueSequence, other: ValueSequence, *, level: float = 0.95) -> GroupIntervals:
    """Intervals that hold at all times together, of settled values. Cost: O(1). Raises: InvalidParameter."""
    decisions = one.unbounded.count + other.unbounded.count
    if one.has_bounds and other.has_bounds:
        groups = [
            _plain(group.bounded.interval(level=level)) if group.bounded else None for group in (one, other)
        ]
        apart = None
        if one.bounded and other.bounded:
            apart = bounded.difference(one.bounded, other.bounded, level=level)
        return GroupIntervals("bounded", decisions, groups, _plain(apart), (None, None))
    return GroupIntervals(
        kind="asymptotic",
        decisions=decisions,
        groups=[_plain(group.unbounded.interval(level=level)) for group in (one, other)],
        difference=_plain(asymptotic.difference(one.unbounded, other.unbounded, level=level)),
        missing=[group.unbounded.missing for group in (one, other)],
        needed=[group.unbounded.needed for group in (one, other)],
    )


def joined_intervals(
    stages: Sequence[tuple[ValueSequence, ValueSequence]], *, level: float = 0.95
) -> GroupIntervals:
    """``intervals`` of groups that are compared within stages: asymptotic where several count.

    Cost: O(S). Raises: InvalidParameter.
    """
    counts = np.array([[group.unbounded.count for group in stage] for stage in stages], dtype=float)
    counts = counts.reshape(-1, 2)
    weights = stage_weights(counts, counts.min(axis=1) >= asymptotic.MIN_REWARDS)
    if np.count_nonzero(weights) <= 1:
        stage = stages[int(np.argmax(weights))] if len(weights) else (ValueSequence(), ValueSequence())
        interval = intervals(*stage, level=level)
    else:
        one, other = (
            ValueSequence(
                unbounded=asymptotic.joined([stage[number].unbounded for stage in stages], weights),
                has_bounds=False,
            )
            for number in (0, 1)
        )
        interval = intervals(one, other, level=level)
    return interval._replace(decisions=int(counts.sum()), weights=weights.tolist())


def _plain(interval: Interval | None) -> Interval | None:
    """The interval with Python's numbers."""
    return None if interval is None else (float(interval[0]), float(interval[1]))


class KeySums:
    """The number of decisions and the sum of rewards of one group, by key, in compact arrays.

    ``least_new``: least number of decisions added to the others together. Takes 24 bytes a key, and five
    times that for a moment. A key is known by a hash of 64 bits: two of a million have the same one with
    probability 3e-8, and would count as one.
    """

    def __init__(self, least_new: int = _LEAST_NEW) -> None:
        self._least_new = least_new
        self._keys: Rows = np.empty(0, dtype=np.int64)
        self._counts: Vector = np.empty(0)
        self._sums: Vector = np.empty(0)
        self._new_keys, self._new_values = array("q"), array("d")

    def add(self, key: str | None, value: float) -> None:
        """Count a decision of ``key``. Cost: O(log n), amortised, for n keys."""
        self._new_keys.append(hash(key))
        self._new_values.append(value)
        if len(self._new_keys) >= max(self._least_new, len(self._keys) // 4):
            self._sum_up()

    def table(self) -> KeyTable:
        """All that was added. Cost: O(n log n)."""
        self._sum_up()
        return KeyTable(self._keys, self._counts, self._sums)

    def _sum_up(self) -> None:
        """Add what is new to what each key had."""
        keys = np.concatenate([self._keys, np.asarray(self._new_keys)])
        counts = np.concatenate([self._counts, np.ones(len(self._new_keys))])
        sums = np.concatenate([self._sums, np.asarray(self._new_values)])
        self._new_keys, self._new_values = array("q"), array("d")
        self._keys, positions = np.unique(keys, return_inverse=True)
        self._counts = np.bincount(positions, counts, len(self._keys)).astype(np.float64)
        self._sums = np.bincount(positions, sums, len(self._keys)).astype(np.float64)


class KeyIntervals:
    """Intervals of two groups and of their difference, renewed when the number of decisions has doubled.

    While all values have bounds, no interval leaves the widest of them. ``least_new``: see ``KeySums``.
    Stages are numbered as they come.
    """

    def __init__(self, *, level: float = 0.95, least_new: int = _LEAST_NEW) -> None:
        self._level = level
        self._bounds: Interval | None = (math.inf, -math.inf)
        self._least_new = least_new
        self._stages: list[tuple[KeySums, KeySums]] = []
        self._weights: Sequence[float] = ()
        self._decisions = self._looked_at = 0
        self._summaries = (Summary(), Summary())
        self._groups = (Looks(), Looks())
        self._difference = Looks()

    def add(
        self,
        group: GroupNumber,
        key: str | None,
        value: float,
        bounds: Interval | None = None,
        *,
        stage: int = 0,
    ) -> bool:
        """Count a decision of a group, whose value lies within ``bounds``. Whether it was time to look."""
        if bounds is None or not bounds[0] <= value <= bounds[1]:
            self._bounds = None
        elif self._bounds is not None:
            self._bounds = min(self._bounds[0], bounds[0]), max(self._bounds[1], bounds[1])
        while len(self._stages) <= stage:
            self._stages.append((KeySums(self._least_new), KeySums(self._least_new)))
        self._stages[stage][group].add(key, value)
        self._decisions += 1
        if not clustered.is_look(self._decisions):
            return False
        self._look()
        return True

    def intervals(self) -> GroupIntervals:
        """The intervals of the looks so far."""
        return GroupIntervals(
            kind="asymptotic",
            decisions=self._looked_at,
            groups=[self._within(group.interval) for group in self._groups],
            difference=self._within(self._difference.interval, apart=True),
            missing=[group.missing for group in self._summaries],
            needed=[group.needed for group in self._summaries],
            next_look=2 * self._looked_at or 1,
            weights=self._weights,
        )

    def _within(self, interval: Interval | None, *, apart: bool = False) -> Interval | None:
        """The possible part of an interval. ``apart``: of a difference."""
        if interval is None or self._bounds is None:
            return interval
        low, high = self._bounds
        least, most = (low - high, high - low) if apart else (low, high)
        return min(max(interval[0], least), most), min(max(interval[1], least), most)

    def _look(self) -> None:
        self._looked_at = self._decisions
        tables = [(one.table(), other.table()) for one, other in self._stages]
        counts = np.array([[table.counts.sum() for table in stage] for stage in tables])
        keys = np.array([[len(table.keys) for table in stage] for stage in tables])
        weights = stage_weights(counts, keys.min(axis=1) >= clustered.MIN_KEYS)
        one, other = (clustered.joined([stage[number] for stage in tables], weights) for number in (0, 1))
        self._weights, self._summaries = weights.tolist(), (one.summary, other.summary)
        level, (first, others) = self._level, self._groups
        self._groups = (
            clustered.look(first, one.summary, level=level),
            clustered.look(others, other.summary, level=level),
        )
        # In one stage no key is in both groups.
        shared = clustered.covariance(one, other) if np.count_nonzero(weights) > 1 else 0.0
        self._difference = clustered.look(
            self._difference, one.summary, other.summary, level=level, covariance=shared
        )
