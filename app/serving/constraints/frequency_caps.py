"""Frequency caps (the setting ``repeats``): how often a key, or a visitor of a global bandit, sees an arm.

The store keeps what each key was shown, the last ``MOST_KEPT`` arms or values of a field
(``exposure_history``). A process chooses by what it last read of a key; then one script writes what is shown,
unless some of it would exceed the cap. In that case the choice is made again, with what the script answered.
So the cap is never exceeded, and costs one round trip for a choice. A rule that counts rewards reads the
history before the choice instead.

If the store has no room for more, a choice goes on, is not remembered, and is counted
(``Metrics.unlimited``): to refuse it would let anybody lock visitors out by inventing keys.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from app.bandits.bandit import Bandit
from app.bandits.exposure_history import MOST_KEPT, kept_of, left_of_values, value_of, values_of
from app.bandits.settings import BY_ARM, RepeatsRule
from app.indexes.snapshot import Snapshot
from app.platform.cache import BoundedCache
from app.platform.deadlines import yield_to_others
from app.platform.errors import Invalid, Unavailable
from app.platform.metrics import Metrics
from app.policies.limits import AtMost, CappedValues, Limit
from app.policies.selection import SelectionRequest
from app.records.left_out import NOT_KEPT
from app.serving.constraints.base import Constraint, ConstraintFields, LogRecord, Shown, View
from app.storage.choices import Choices
from app.storage.types import Had, LearnerId

CACHE_BYTES = 16 << 20
HAD_BYTES = 120


class FrequencyCapKey(NamedTuple):
    """A cap, and the key or visitor that it applies to."""

    rule: RepeatsRule
    key: LearnerId


class CapState(NamedTuple):
    """Whom a choice is for, and the arms or values that were shown to them so often that they are out."""

    subject: FrequencyCapKey
    over: Sequence[str]


class CapCharge(NamedTuple):
    """What was shown to a key, as ``kept_of`` makes it."""

    subject: FrequencyCapKey
    shown: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Exposure:
    """An arm, or a value as it is stored, that a key had ``count`` times, last at ``last_ms``; from
    ``until_ms`` on the first of them does not count any more.
    """

    what: str
    count: int
    last_ms: int
    until_ms: int


class FrequencyCaps(Constraint):
    """The frequency cap of the bandit."""

    counts = is_in_row = True

    def __init__(self, store: Choices, metrics: Metrics) -> None:
        self._store = store
        self._unlimited = metrics.unlimited.labels("shown")
        # What was shown, and until when it counts, in monotonic seconds.
        self._known: BoundedCache[LearnerId, Sequence[tuple[str, float]]] = BoundedCache(CACHE_BYTES)

    async def view(self, choice: ConstraintFields, request: SelectionRequest) -> View:
        """Raises Invalid (no cap uses the visitor), Unavailable."""
        subject = subject_of(request.bandit, request.learner, choice.visitor)
        if subject is None:
            return View()
        counts = await self.exposures(subject, dry_run=request.dry_run)
        return view_of(subject, counts, request, request.bandit.catalogue.index.snapshot())

    async def exposures(self, subject: FrequencyCapKey, *, dry_run: bool) -> Mapping[str, int]:
        """How often it was shown each arm or value, as far as this process knows. Raises Unavailable."""
        if dry_run or subject.rule.counts == "rewarded":
            # With nothing to write: the same script reads, so both have one form of the answer.
            self._refresh(subject, await self._store.take_repeats(subject.key, [], **_terms(subject.rule)))
            await yield_to_others()  # one read of the store may bring what many choices waited for
        moment = time.monotonic()
        # By this process's clock: what it knows is only a first guess, and the script decides by the store's.
        return Counter(what for what, until in self._known.get(subject.key) or () if until > moment)

    async def charge(self, view: View, shown: Shown) -> CapCharge | tuple[()] | None:
        """Record what is shown; the same counts once. Raises Unavailable: whether it counts is not known."""
        state: CapState | None = view.state
        if state is None:
            return ()
        subject, whole = state.subject, shown.whole
        new = kept_of(subject.rule, whole, shown.decision, [*map(whole.id_of, shown.rows)])
        if subject.rule.counts != "shown":
            return CapCharge(subject, new)
        taken = await self._store.take_repeats(subject.key, new, **_terms(subject.rule))
        self._refresh(subject, taken)
        if not taken.remembered:
            self._unlimited.inc()
        return CapCharge(subject, new) if taken.allowed else None

    async def refund(self, charge: CapCharge) -> None:
        if charge.subject.rule.counts == "shown" and charge.shown:
            with contextlib.suppress(Unavailable):
                await self._store.drop_repeats(charge.subject.key, charge.shown)
                self._known.drop(charge.subject.key)

    def record(self, view: View, charge: Any, shown: Shown, ttl_ms: int) -> LogRecord:
        """What was over the cap. In a list, arms of one value may have left out each other."""
        state: CapState | None = view.state
        if state is None:
            return LogRecord()
        rule = state.subject.rule
        is_hard = rule.counts == "shown" and rule.by != BY_ARM and bool(charge and charge.shown)
        return LogRecord(NOT_KEPT if is_hard and len(shown.rows) > 1 else "", state.over)

    async def history(self, bandit: Bandit, rule: RepeatsRule, name: str) -> list[Exposure]:
        """What counts for the cap of a key or visitor now, what it had last first, as the store has it.

        Raises Unavailable.
        """
        key, found = LearnerId(bandit.uid, name), dict[str, list[int]]()
        for what, at_ms in (await self._store.take_repeats(key, [], **_terms(rule))).arms:
            named = value_of(what)
            if (named[0] if named else BY_ARM) == rule.by:
                found.setdefault(what, []).append(at_ms)
        last_first = sorted(found.items(), key=lambda each: -max(each[1]))
        return [
            Exposure(what, len(times), max(times), min(times) + rule.within_ms) for what, times in last_first
        ]

    def forget(self, learner: LearnerId) -> None:
        """Forget what this learner was shown."""
        self._known.drop(learner)

    def forget_all(self) -> None:
        self._known.clear()

    def _refresh(self, subject: FrequencyCapKey, had: Had) -> None:
        moment, within_ms = time.monotonic(), subject.rule.within_ms
        known = [(what, moment + (at_ms + within_ms - had.now_ms) / 1_000) for what, at_ms in had.arms]
        size = HAD_BYTES * (1 + len(known)) + sum(len(what) for what, _ in known)
        self._known.put(subject.key, known, size)


def subject_of(bandit: Bandit, learner: LearnerId, visitor: str | None) -> FrequencyCapKey | None:
    """The key or visitor that the cap applies to; None: none. Raises Invalid: no cap uses the visitor."""
    rule = bandit.record.repeats
    if visitor is not None and (rule is None or bandit.record.scope == "per_key"):
        raise Invalid("visitor needs a bandit of scope global that has repeats", path=("visitor",))
    if rule is None or (bandit.record.scope == "global" and visitor is None):
        return None
    return FrequencyCapKey(rule, learner if visitor is None else LearnerId(bandit.uid, visitor))


def over_cap(rule: RepeatsRule, counts: Mapping[str, int]) -> list[str]:
    """The arms, or values, that were shown so often that they are not eligible."""
    by = None if rule.by == BY_ARM else rule.by
    fields = {
        what: (value_of(what) or (None, None))[0] for what, count in counts.items() if count >= rule.most
    }
    return [what for what, field in fields.items() if field == by]


def view_of(
    subject: FrequencyCapKey, counts: Mapping[str, int], request: SelectionRequest, whole: Snapshot
) -> View:
    """What the cap leaves: nothing that was shown too often, pinned arms included."""
    rule, over = subject.rule, over_cap(subject.rule, counts)
    state = CapState(subject, over)
    if rule.by == BY_ARM:
        return View(exclude=over, unpinned=set(over) if request.pins else (), state=state)
    # Arms of one list count together: it has no more arms of a value than the cap leaves.
    unpinned, taken = set[str](), Counter(counts)
    rows = whole.table.row_of_each(request.pinned)
    is_hard = rule.counts == "shown"
    for arm, values in zip(request.pinned, values_of(rule.by, whole.attributes, rows), strict=True):
        if all(taken[value] < rule.most for value in values):
            taken.update(values if is_hard else ())
        else:
            unpinned.add(arm)
    limits, left = list[Limit](), left_of_values(rule, counts)
    if is_hard and rule.most < request.k + len(request.pins):
        limits.append(AtMost(rule.by, rule.most))
    left = left if is_hard else [each for each in left if not each[1]]
    if left:
        limits.append(CappedValues(rule.by, left))
    return View(limits=limits, unpinned=unpinned, state=state)


def _terms(rule: RepeatsRule) -> dict[str, int]:
    most = rule.most if rule.counts == "shown" else 0
    return {"within_ms": rule.within_ms, "most": most, "kept": MOST_KEPT}
