"""Frequency caps as a constraint on choices. What was shown to whom stands in ``app.exposure_limits``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from app.bandits.settings import BY_ARM
from app.exposure_limits.caps import FrequencyCapKey, FrequencyCaps
from app.exposure_limits.exposures import exposures_of, left_of_values, over_cap, values_of
from app.indexes.snapshot import Snapshot
from app.platform.errors import Invalid
from app.selection.list_limits import AtMost, CappedValues, Limit
from app.selection.request import ChooseRequest
from app.selection.selection import SelectionRequest
from app.serving.constraints.base import Constraint, LogRecord, Shown, View
from app.storage.types import LearnerId


class CapState(NamedTuple):
    """The key of a choice, and the arms or values shown to the key too often."""

    subject: FrequencyCapKey
    over: Sequence[str]


class CapCharge(NamedTuple):
    """The exposures of a key, as ``exposures_of`` makes them."""

    subject: FrequencyCapKey
    shown: Sequence[tuple[str, str]]


class FrequencyCapConstraint(Constraint):
    """The frequency cap of the bandit."""

    counts = is_in_row = True
    leaves_none = "all that are left were shown as often as repeats allows"

    def __init__(self, caps: FrequencyCaps) -> None:
        self._caps = caps

    def forget(self, learner: LearnerId) -> None:
        self._caps.forget(learner)

    def forget_all(self) -> None:
        self._caps.forget_all()

    async def view(self, choice: ChooseRequest, request: SelectionRequest) -> View:
        """Raises Invalid (nothing uses the visitor), Unavailable."""
        bandit, visitor = request.bandit, choice.visitor
        if visitor is not None and (bandit.record.repeats is None or bandit.record.scope == "per_key"):
            raise Invalid("visitor needs a bandit of scope global that has repeats", path=("visitor",))
        subject = FrequencyCapKey.of(bandit, request.learner, visitor)
        if subject is None:
            return View()
        counts = await self._caps.counts(subject, dry_run=request.dry_run)
        return view_of(subject, counts, request, request.whole)

    def turn_of(self, choice: ChooseRequest, request: SelectionRequest) -> LearnerId | None:
        subject = FrequencyCapKey.of(request.bandit, request.learner, choice.visitor)
        return None if subject is None or subject.rule.counts == "rewarded" else subject.key

    async def charge(self, view: View, shown: Shown) -> CapCharge | tuple[()] | None:
        """Record the shown arms; the same arm counts once. Raises Unavailable: whether they count is
        unknown.
        """
        state: CapState | None = view.state
        # Where rewards are counted, an exposure counts once rewarded.
        if state is None or state.subject.rule.counts == "rewarded":
            return ()
        arms = [*map(shown.whole.id_of, shown.rows)]
        exposures = exposures_of(state.subject.rule, shown.whole, shown.decision, arms, range(len(arms)))
        if not await self._caps.record(state.subject, exposures):
            return None
        return CapCharge(state.subject, exposures) if exposures else ()

    async def refund(self, charge: CapCharge) -> None:
        await self._caps.take_back(charge.subject, charge.shown)

    def record(self, view: View, charge: Any, shown: Shown) -> LogRecord:
        """The record of arms and values over the cap. In a list, arms of one value may have left out each
        other.
        """
        state: CapState | None = view.state
        if state is None:
            return LogRecord()
        is_by_field = state.subject.rule.by != BY_ARM and bool(charge)
        return LogRecord(had=state.over, is_told=not is_by_field or len(shown.rows) < 2)


def view_of(
    subject: FrequencyCapKey, counts: Mapping[str, int], request: SelectionRequest, all_arms: Snapshot
) -> View:
    """The arms left by the cap: none shown too often, pinned arms included."""
    rule, over = subject.rule, over_cap(subject.rule, counts)
    state = CapState(subject, over)
    if rule.by == BY_ARM:
        return View(exclude=over, unpinned=set(over) if request.pins else (), state=state)
    # Arms of one list count together: a list has no more arms of a value than the cap leaves.
    unpinned, pinned_counts = set[str](), Counter(counts)
    rows = all_arms.table.row_of_each(request.pinned)
    is_hard = rule.counts == "shown"
    for arm, values in zip(request.pinned, values_of(rule.by, all_arms.attributes, rows), strict=True):
        if all(pinned_counts[value] < rule.most for value in values):
            pinned_counts.update(values if is_hard else ())
        else:
            unpinned.add(arm)
    limits, left = list[Limit](), left_of_values(rule, counts)
    if is_hard and rule.most < request.k + len(request.pins):
        limits.append(AtMost(rule.by, rule.most))
    left = left if is_hard else [value_left for value_left in left if not value_left[1]]
    if left:
        limits.append(CappedValues(rule.by, left))
    return View(limits=limits, unpinned=unpinned, state=state)
