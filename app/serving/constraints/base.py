"""Constraints: the base class of all, and the rules by which several are combined.

A constraint decides which arms one choice may have. Only ``view`` has no default. Policies take their arms
from ``Candidates``, and need nothing. A choice calls its constraints in this order:

1. The table of ``order`` says which apply. A choice pays nothing for the others. If one names a key in
   ``turn_of``, the choice waits for others of that key in this process.
2. ``view``, in the order of the table: the arms left by the constraint, among those left by the ones before.
3. The policy ranks the remaining arms.
4. ``charge``, of counting constraints, in the opposite order: the list about to be shown is counted. If one
   refuses, the others are refunded, and the choice begins again at 2.
5. ``record``, if the decision is logged: the arms which were not eligible.
6. ``refund``, if nobody sees the choice after all: the caller has gone, a batch fails, or another choice was
   made for the same event.

``forget`` and ``forget_all`` come at any time, of constraints with a memory of learners.

A dry run stops after 3. A choice made again, for an explanation, takes the result of counting constraints
from the row of its decision, and asks the others again.

An evaluation reads the results of constraints from the row too: filter, exclusions and pins of the request,
and ``record`` of the counting ones. The result of any other (``at_most``: the arms still allowed after the
first) depends on attributes of then, and is not in the row. So decisions with such a constraint are left out
of evaluations, unless the constraint says ``is_in_row``: a counting one says so when recorded, and for the
others the table is asked again, with the exclusions, filter and rules of the row. The arms left by quotas and
frequency caps if another policy had chosen from the start are in no row: an evaluation is of single choices,
among the arms left then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec

from app.bandits.bandit import Bandit
from app.exposure_limits.closed_arms import ClosedArms
from app.filters.filter import Filter
from app.indexes.snapshot import Snapshot
from app.selection.list_limits import Limit
from app.selection.request import ChooseRequest
from app.selection.rules import Pin
from app.selection.selection import SelectionRequest
from app.storage.types import LearnerId

MOST_LOGGED_HAD = 50  # arms and values that were not eligible, in the row of a decision


class View(msgspec.Struct, frozen=True, eq=False):
    """The arms left by one constraint for a choice. ``combined`` combines several.

    ``arm_filter``  other arms are not eligible
    ``exclude``     ids of further arms which are not eligible; unknown ones are ignored
    ``limits``      how many arms of some groups the list may have: of ``selection.list_limits``, ``AtMost``
                    of each value of a field, ``CappedValues`` of some values, or another ``Limit`` (of a list
                    as a whole: a view says nothing of neighbours)
    ``pins``        arms at fixed places, instead of as many of the policy's
    ``unpinned``    ids of pinned arms not allowed there: the policy chooses for their places
    ``quotas``      quotas at one moment: arms of those used up are not eligible
    ``state``       the constraint's data for ``charge`` and ``record``
    """

    arm_filter: Filter | None = None
    exclude: Sequence[str] = ()
    limits: Sequence[Limit] = ()
    pins: Sequence[Pin] = ()
    unpinned: Collection[str] = ()
    quotas: ClosedArms | None = None
    state: Any = None


def combined(request: SelectionRequest, view: View) -> SelectionRequest:
    """The request within one more view. These are all rules of how constraints go together.

    Filters: an arm must pass each. Exclusions: an arm excluded by one is out. Limits: a chosen arm counts for
    each, pinned arms first. Pins stand whatever filters and exclusions say; a pin not allowed by some
    constraint is left out, and the policy chooses one more arm. So the number of places is always the
    request's.
    """
    changed: dict[str, Any] = {}
    if view.arm_filter is not None:
        request_filter = request.arm_filter
        changed["arm_filter"] = (
            view.arm_filter if request_filter is None else request_filter.both(view.arm_filter)
        )
    if view.exclude:
        changed["exclude"] = [*request.exclude, *view.exclude]
    if view.limits:
        changed["limits"] = [*request.limits, *view.limits]
    if view.pins or view.unpinned:
        pins = [pin for pin in (*request.pins, *view.pins) if pin.arm not in view.unpinned]
        changed["pins"] = pins
        # The policy chooses for the places of forbidden pins, so a list is never shorter for one.
        changed["k"] = request.k + len(request.pins) - len(pins)
    if view.quotas is not None:
        changed["quotas"] = view.quotas
    return msgspec.structs.replace(request, **changed) if changed else request


class Shown(msgspec.Struct, frozen=True, eq=False):
    """A list about to be shown: ``rows`` of ``whole``, by a decision with this id.

    ``deferred``: shown only if activated later.
    """

    request: SelectionRequest
    whole: Snapshot
    rows: Sequence[int]
    decision: str
    deferred: bool = False


class LogRecord(msgspec.Struct, frozen=True):
    """The row's record of arms which were not eligible.

    ``closed``   the last known change of quotas, and its time: quotas closed then
    ``had``      ids of arms, and values as ``exposure_limits.exposures`` writes them
    ``is_told``  these are all of them
    """

    closed: tuple[str, int] | None = None
    had: Sequence[str] = ()
    is_told: bool = True


class Constraint(ABC):
    """Decides which arms a choice may have. One object serves all bandits, in the event loop.

    ``counts``: True for a constraint on earlier exposures. It is charged, and names the excluded arms in
    ``record``, for nobody can find them out later. Any other constraint depends on the request, the settings
    of the bandit and the catalogue alone, and is asked again when the choice is made again.

    ``is_in_row``: True if the row of a decision tells all arms left, see the module.
    """

    counts: ClassVar[bool] = False
    is_in_row: ClassVar[bool] = False

    @property
    def leaves_none(self) -> str:
        """Why no arm is left, where this constraint left none: what the caller is told."""
        return "a constraint leaves none"

    @abstractmethod
    async def view(self, choice: ChooseRequest, request: SelectionRequest) -> View:
        """The arms left by this constraint. It may wait for the store, and draws nothing.

        ``choice``   as the caller sent it
        ``request``  the request to the policy so far: bandit, learner, the arms left by the constraints
                     before, the time of the decision, and whether it is a dry run, which may take nothing

        Raises Invalid (naming a field of the request), Unavailable.
        """

    def turn_of(self, choice: ChooseRequest, request: SelectionRequest) -> LearnerId | None:
        """The learner whose choices a process makes one after the other, from ``view`` to ``charge``.

        None: nobody's. Named by constraints which refuse a choice by what the key was shown meanwhile.
        """
        return None

    async def charge(self, view: View, shown: Shown) -> Any:
        """Count the shown arms. Returns the argument of ``refund``, ``()`` for nothing; None: used up
        meanwhile.

        All are counted, or none: also if the store fails, or the caller leaves.
        """
        return ()

    async def refund(self, charge: Any) -> None:  # noqa: B027 - of those that count
        """Give a charge back: nobody sees the choice. While the store is away the charge cannot be undone,
        and counts.
        """

    def record(self, view: View, charge: Any, shown: Shown) -> LogRecord:
        """The arms which were not eligible."""
        return LogRecord()

    def forget(self, learner: LearnerId) -> None:  # noqa: B027 - of those that remember
        """A learner, or visitor of a global bandit, is forgotten: drop this process's memory of them."""

    def forget_all(self) -> None:  # noqa: B027 - as above
        """Drop this process's memory of all learners: which of them was forgotten is unknown."""


class ConstraintRow(NamedTuple):
    """A constraint, and whether it applies in a choice of a bandit: asked for every choice."""

    constraint: Constraint
    applies: Callable[[ChooseRequest, Bandit], bool]


class Applied(msgspec.Struct, eq=False):
    """A constraint of a choice, its view, and its charge: () for nothing."""

    constraint: Constraint
    view: View
    charge: Any = ()


async def narrowed(
    constraints: Sequence[Constraint], choice: ChooseRequest, request: SelectionRequest
) -> tuple[SelectionRequest, list[Applied]]:
    """The request within the views of all these constraints, and each with its view."""
    applied: list[Applied] = []
    for constraint in constraints:
        view = await constraint.view(choice, request)
        request = combined(request, view)
        applied.append(Applied(constraint, view))
    return request, applied


async def charged(applied: Sequence[Applied], shown: Shown) -> bool:
    """Charge all of them, or none: False, something was used up meanwhile."""
    stands = False
    try:
        # The last first: quotas are refused more often than caps, and then nothing is to be refunded.
        for item in reversed(applied):
            if item.constraint.counts:
                charge = await item.constraint.charge(item.view, shown)
                if charge is None:
                    return False
                item.charge = charge
        stands = True
    # also when the store fails or the caller leaves: what is not shown must not count
    finally:
        if not stands:
            await refund(applied)
    return True


async def refund(applied: Sequence[Applied]) -> None:
    """Nobody sees what was charged."""
    for item in applied:
        if item.charge:
            await item.constraint.refund(item.charge)


def recorded(applied: Sequence[Applied], shown: Shown) -> LogRecord:
    """The row's record of all of them together."""
    counting = [item for item in applied if item.constraint.counts]
    records = [item.constraint.record(item.view, item.charge, shown) for item in counting]
    over_cap = [name for record in records for name in record.had]
    is_told = all(record.is_told for record in records) and len(over_cap) <= MOST_LOGGED_HAD
    if not is_told or not all(item.constraint.is_in_row for item in counting):
        return LogRecord(is_told=False)
    return LogRecord(next((record.closed for record in records if record.closed), None), over_cap)
