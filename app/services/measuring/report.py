"""What the policy and the holdout have earned, and whether the difference can be chance.

Notation
    value       of a decision: the sum of the rewards of its arms (``outcomes``)
    unit        what is drawn for a group: the keys of a per_key bandit, the decisions of a global one
    ungrouped   decisions without a group: of a bandit without a holdout, of the time before it had one, and
                baselines that callers asked for

Only groups that were drawn at the same time are compared. So ungrouped decisions are those of the policy
where there are no others, and else they are counted apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from app.errors import Invalid
from app.services.bandits.bandits import Bandit, Bandits
from app.services.bounded.long_work import MEASURING
from app.services.bounded.slots import Slots
from app.services.decision_log.rows import CompleteLog, Row
from app.services.measuring.by_key import KeyIntervals
from app.services.measuring.outcomes import Terms, terms_then, value_of
from shortlist.evaluation import asymptotic_confidence_sequence as asymptotic
from shortlist.evaluation import clustered_t_sequence as by_keys
from shortlist.evaluation import confidence_sequence as bounded
from shortlist.evaluation.asymptotic_confidence_sequence import Missing, Unbounded
from shortlist.evaluation.confidence_sequence import Bounded

MAX_BUCKETS = 1_000
AT_ONCE, WAITING = 2, 16
ROUNDING = 1e-9  # by how much a sum may miss its bounds, in parts of their distance

GroupName = Literal["policy", "holdout"]
IntervalKind = Literal["bounded", "asymptotic"]
Unit = Literal["key", "decision"]
Interval = tuple[float, float]
GROUPS: tuple[GroupName, ...] = ("policy", "holdout")
REASONS: Mapping[Unit, Mapping[Missing, str]] = {
    "key": {
        "few": f"no interval below {by_keys.LEAST} keys",
        "alike": "no interval while all keys have earned the same",
        "uneven": "no interval while a few keys have most of the decisions, or of the rewards",
    },
    "decision": {
        "few": f"no interval below {asymptotic.LEAST} decisions",
        "alike": "no interval while all decisions have earned the same",
        "uneven": "no interval while few decisions are rewarded, or a few much more than others",
    },
}


class GroupCounts(msgspec.Struct, frozen=True):
    """``mean_reward``: None without decisions."""

    group: str
    decisions: int
    rewarded: int
    mean_reward: float | None


class GroupReport(GroupCounts, frozen=True):
    """``interval``: None where nothing can be said yet."""

    interval: Interval | None


class Lift(msgspec.Struct, frozen=True):
    """The mean reward of the policy less that of the holdout."""

    value: float | None
    interval: Interval | None


class Bucket(msgspec.Struct, frozen=True, rename={"from_ms": "from"}):
    """Decisions of a piece of time."""

    from_ms: int
    groups: list[GroupCounts]


class Report(msgspec.Struct, frozen=True):
    """``unit``: what intervals take as drawn.

    ``interval_decisions``  the intervals are of the first so many decisions of both groups
    ``ungrouped``           decisions that are in neither group
    ``warnings``            why a group with decisions has no interval
    ``complete_from``       when it begins, since rows from before are gone; None: it begins as asked for
    """

    groups: list[GroupReport]
    lift: Lift
    unit: Unit
    interval_kind: IntervalKind
    interval_decisions: int
    ungrouped: int
    buckets: list[Bucket]
    warnings: list[str]
    complete_from: int | None = None


class Intervals(NamedTuple):
    """What there is to say of both groups and of their difference, and why a group has no interval."""

    kind: IntervalKind
    decisions: int
    groups: Sequence[Interval | None]
    lift: Interval | None
    missing: Sequence[Missing | None]


@dataclass(slots=True)
class Counts:
    """Of some decisions."""

    decisions: int = 0
    rewarded: int = 0
    total: float = 0.0

    def add(self, value: float, *, rewarded: bool) -> None:
        self.decisions += 1
        self.rewarded += rewarded
        self.total += value

    def shown(self, group: GroupName) -> GroupCounts:
        mean = self.total / self.decisions if self.decisions else None
        return GroupCounts(group, self.decisions, self.rewarded, mean)


@dataclass(slots=True)
class Group:
    """Decisions of one group in their order. ``bounded``: None while empty, and once values have no bounds.

    The bounds are those of the decision with most arms so far.
    """

    counts: Counts = field(default_factory=Counts)
    bounded: Bounded | None = None
    unbounded: Unbounded = field(default_factory=Unbounded)
    has_bounds: bool = True
    buckets: dict[int, Counts] = field(default_factory=dict)
    _waiting: list[float] = field(default_factory=list)

    def add(self, value: float, bucket: int | None, *, rewarded: bool) -> None:
        """Count a decision."""
        self.counts.add(value, rewarded=rewarded)
        if bucket is not None:
            self.buckets.setdefault(bucket, Counts()).add(value, rewarded=rewarded)

    def add_in_order(self, value: float, terms: Terms, arms: int) -> None:
        """Count the place of a decision in the order. What follows from it is made by ``settle``."""
        if self.has_bounds:
            value = self._within(value, terms, arms)
        self._waiting.append(value)

    def settle(self) -> None:
        """Take up the values that were added."""
        values = np.array(self._waiting, dtype=np.float64)
        self._waiting.clear()
        self.unbounded = asymptotic.add(self.unbounded, values)
        if self.bounded is not None:
            self.bounded = bounded.add(self.bounded, values)

    def _within(self, value: float, terms: Terms, arms: int) -> float:
        """The value, which the bounds hold then; there are none from now on if it has none."""
        if terms.low is None or terms.high is None or not terms.low < terms.high:
            return self._unbound(value)
        low, high = arms * terms.low, arms * terms.high
        slack = ROUNDING * (high - low)
        if not low - slack <= value <= high + slack:
            return self._unbound(value)
        known = self.bounded
        if known is None:
            self.bounded = bounded.start(low, high)
        elif low < known.low or high > known.high:
            self.settle()
            low, high = min(low, known.low), max(high, known.high)
            self.bounded = None if self.bounded is None else bounded.widened(self.bounded, low, high)
        return min(max(value, low), high)

    def _unbound(self, value: float) -> float:
        self.has_bounds, self.bounded = False, None
        return value


class ReportFold:
    """Takes up rows in the order of time, and reports on those so far.

    Its memory is that of the buckets, and of the keys where they are the unit.

    ``bucket_ms``: how long a bucket is; None: no buckets are made. They begin at multiples of it.
    """

    def __init__(self, bucket_ms: int | None = None, unit: Unit = "decision") -> None:
        self._bucket_ms = bucket_ms
        self._unit = unit
        self._by_key, self._ungrouped_by_key = KeyIntervals(), KeyIntervals()
        self._groups: dict[str | None, Group] = {name: Group() for name in (*GROUPS, None)}
        self._first = self._last = 0

    def add(self, rows: Iterable[Row], terms: Mapping[int, Terms]) -> None:
        """Count decisions. ``terms``: by version of the bandit. Cost: some microseconds a row.

        Raises Invalid (bucket_s): there would be too many buckets.
        """
        for row in rows:
            bucket = None if self._bucket_ms is None else self._bucket_of(row, self._bucket_ms)
            value, rewarded = value_of(row, terms[row.bandit_version])
            self._groups[row.group].add(value, bucket, rewarded=rewarded)
            if self._unit == "decision":
                self._groups[row.group].add_in_order(value, terms[row.bandit_version], len(row.arms))
            elif row.group is None:
                self._ungrouped_by_key.add(0, row.key, value)
            else:
                self._by_key.add(0 if row.group == "policy" else 1, row.key, value)
        for group in self._groups.values():
            group.settle()

    def report(self) -> Report:
        """What there is to say so far. Cost: O(1), and the buckets."""
        groups, by_key, ungrouped = self._compared()
        found = _of_decisions(*groups) if self._unit == "decision" else _of_keys(by_key)
        one, other = (group.counts for group in groups)
        both = one.decisions > 0 and other.decisions > 0
        return Report(
            [_shown(*each) for each in zip(GROUPS, groups, found.groups, strict=True)],
            Lift(_mean(one) - _mean(other) if both else None, found.lift),
            self._unit,
            found.kind,
            found.decisions,
            ungrouped,
            self._buckets(groups),
            [
                f"{name}: {REASONS[self._unit][why]}"
                for name, group, why in zip(GROUPS, groups, found.missing, strict=True)
                if why and group.counts.decisions
            ],
        )

    def _compared(self) -> tuple[Sequence[Group], KeyIntervals, int]:
        """The groups of the report, and how many decisions are in neither."""
        policy, holdout, others = (self._groups[name] for name in (*GROUPS, None))
        if policy.counts.decisions or holdout.counts.decisions:
            return (policy, holdout), self._by_key, others.counts.decisions
        return (others, holdout), self._ungrouped_by_key, 0

    def _bucket_of(self, row: Row, bucket_ms: int) -> int:
        bucket = row.time // bucket_ms
        if not self._last:
            self._first = bucket
        self._last = max(self._last, bucket)
        if self._last - self._first >= MAX_BUCKETS:
            raise too_many_buckets()
        return bucket

    def _buckets(self, groups: Sequence[Group]) -> list[Bucket]:
        """From the first decision to the last, those without any among them."""
        if self._bucket_ms is None:
            return []
        used = [bucket for group in groups for bucket in group.buckets]
        if not used:
            return []
        named = list(zip(GROUPS, groups, strict=True))
        return [
            Bucket(
                bucket * self._bucket_ms,
                [group.buckets.get(bucket, Counts()).shown(name) for name, group in named],
            )
            for bucket in range(min(used), max(used) + 1)
        ]


class Reports:
    """Reports on bandits, a few at a time."""

    def __init__(self, bandits: Bandits, log: CompleteLog) -> None:
        self._bandits = bandits
        self._log = log
        self._places = Slots("reports", running=AT_ONCE, waiting=WAITING)

    async def report(
        self, bandit: Bandit, *, from_ms: int | None, to_ms: int | None, bucket_ms: int | None
    ) -> Report:
        """Report on the decisions from ``from_ms`` on and before ``to_ms``, where the log is complete.

        Cost: one pass over the log, in threads, with one page in memory and two numbers for each key. Raises
        Invalid (bucket_s), Unavailable (too many reports at once, the store).
        """
        unit: Unit = "key" if bandit.record.scope == "per_key" else "decision"
        fold, terms = ReportFold(bucket_ms, unit), dict[int, Terms]()
        async with self._places.one():
            complete_from = await self._log.complete_from(bandit, from_ms)
            async for page in self._log.pages(bandit, from_ms=complete_from or from_ms, to_ms=to_ms):
                for number in {row.bandit_version for row in page} - terms.keys():
                    terms[number] = await terms_then(self._bandits, bandit, number)
                await MEASURING.run(partial(fold.add, page, terms))
            return msgspec.structs.replace(fold.report(), complete_from=complete_from)


def too_many_buckets() -> Invalid:
    return Invalid(f"must make at most {MAX_BUCKETS:,} buckets", path=("bucket_s",))


def _mean(counts: Counts) -> float:
    return counts.total / counts.decisions


def _shown(name: GroupName, group: Group, interval: Interval | None) -> GroupReport:
    counts = group.counts.shown(name)
    return GroupReport(counts.group, counts.decisions, counts.rewarded, counts.mean_reward, interval)


def _of_decisions(one: Group, other: Group) -> Intervals:
    decisions = one.counts.decisions + other.counts.decisions
    if one.has_bounds and other.has_bounds:
        known = [each.bounded for each in (one, other) if each.bounded is not None]
        groups = [_plain(each.bounded.interval()) if each.bounded else None for each in (one, other)]
        lift = _plain(bounded.difference(*known)) if len(known) == 2 else None
        return Intervals("bounded", decisions, groups, lift, (None, None))
    groups = [_plain(each.unbounded.interval()) for each in (one, other)]
    missing = [each.unbounded.missing for each in (one, other)]
    lift = _plain(asymptotic.difference(one.unbounded, other.unbounded))
    return Intervals("asymptotic", decisions, groups, lift, missing)


def _of_keys(found: KeyIntervals) -> Intervals:
    groups = [each.interval for each in found.groups]
    missing = [each.missing for each in found.summaries]
    return Intervals("asymptotic", found.looked_at, groups, found.difference.interval, missing)


def _plain(interval: Interval | None) -> Interval | None:
    """Of numbers that can be written as JSON."""
    return None if interval is None else (float(interval[0]), float(interval[1]))
