"""What a constraint is: the class that each extends, and how several are combined.

A constraint decides which arms one choice may have. Only ``view`` has no default. Policies take their arms
from ``Candidates``, and need nothing. A choice calls its constraints in this order:

1. The table of ``order`` says which apply. A choice pays nothing for the others. If one names a key in
   ``turn_of``, the choice waits for others of that key in this process.
2. ``view``, in the order of the table: what the constraint leaves, within what those before it left.
3. The policy ranks what is left.
4. ``charge``, of those that count, in the opposite order: what is about to be shown is counted. If one
   refuses, the others are refunded, and the choice begins again at 2.
5. ``record``, if the decision is logged: which arms were not eligible.
6. ``refund``, if nobody sees the choice after all: the caller has gone, a batch fails, or another choice was
   made for the same event.

``forget`` and ``forget_all`` come at any time, of those that remember learners.

A dry run stops after 3. A choice that is made again, to explain it, takes what constraints that count left
from the row of its decision, and asks the others again.

An evaluation reads what constraints left from the row too: filter, exclusions and pins of the request, and
``record`` of those that count. What another one left (``at_most``: which arms were still allowed after the
first) depends on attributes as they were, and is not in the row. So decisions in which it had a say are left
out of evaluations, unless it says ``is_in_row``: one that counts says so as it is recorded, and of the others
the table is asked again, with the exclusions, filter and rules of the row. What quotas and frequency caps
would have left if another policy had chosen from the start is in no row: an evaluation is of single choices,
within what was left then.
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
    """What one constraint leaves for a choice. ``combined`` says how several go together.

    ``arm_filter``  arms that it does not match are not eligible
    ``exclude``     ids of arms that are not eligible; unknown ones are ignored
    ``limits``      how many arms of some groups the list may have: of ``selection.limits``, ``AtMost`` of
                    each value of a field, ``CappedValues`` of some values, or another ``Limit``
                    (of a list as a whole: which arms stand beside each other is nothing that a view says)
    ``pins``        arms that stand at their places, instead of as many that the policy chooses
    ``unpinned``    ids of pinned arms that may not stand there: the policy chooses for their places
    ``quotas``      quotas at one moment: arms of those used up are not eligible
    ``state``       what ``charge`` and ``record`` need to know of it
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

    Filters: an arm must pass each. Exclusions: an arm that one excludes is out. Limits: an arm that is taken
    counts for each, pinned arms first. Pins stand whatever filters and exclusions say; a pin that some
    constraint does not allow is left out, and the policy chooses one more arm. So the number of places is
    always that of the request.
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
        # The policy chooses for the places of pins that may not stand, so a list is never shorter for one.
        changed["k"] = request.k + len(request.pins) - len(pins)
    if view.quotas is not None:
        changed["quotas"] = view.quotas
    return msgspec.structs.replace(request, **changed) if changed else request


class Shown(msgspec.Struct, frozen=True, eq=False):
    """What a choice is about to show: ``rows`` of ``whole``, by a decision with this id.

    ``deferred``: it is shown only if it is activated later.
    """

    request: SelectionRequest
    whole: Snapshot
    rows: Sequence[int]
    decision: str
    deferred: bool = False


class LogRecord(msgspec.Struct, frozen=True):
    """What the row of a decision says of arms that were not eligible.

    ``closed``   the last change of quotas that was heard, and when: those that were closed then
    ``had``      ids of arms, and values as ``exposure_limits.exposures`` writes them
    ``is_told``  these are all of them
    """

    closed: tuple[str, int] | None = None
    had: Sequence[str] = ()
    is_told: bool = True


class Constraint(ABC):
    """Decides which arms a choice may have. One object serves all bandits, in the event loop.

    ``counts``: whether it depends on what was shown before. Then it is charged, and it says in ``record``
    what it left out, for nobody can find that out later. One that does not count depends on the request, the
    settings of the bandit and the catalogue alone, and is asked again when the choice is made again.

    ``is_in_row``: whether the row of a decision says all that it left, see the module.
    """

    counts: ClassVar[bool] = False
    is_in_row: ClassVar[bool] = False

    @property
    def leaves_none(self) -> str:
        """Why no arm is left, where this constraint left none: what the caller is told."""
        return "a constraint leaves none"

    @abstractmethod
    async def view(self, choice: ChooseRequest, request: SelectionRequest) -> View:
        """What it leaves. It may wait for the store, and draws nothing.

        ``choice``   as the caller sent it
        ``request``  what is asked of the policy so far: bandit, learner, what the constraints before left,
                     the time of the decision, and whether it is a dry run, which may take nothing

        Raises Invalid (naming a field of the request), Unavailable.
        """

    def turn_of(self, choice: ChooseRequest, request: SelectionRequest) -> LearnerId | None:
        """Whose choices a process makes one after the other, from ``view`` to ``charge``; None: nobody's.

        For one that refuses a choice by what the same key was shown meanwhile.
        """
        return None

    async def charge(self, view: View, shown: Shown) -> Any:
        """Count what is shown. Returns what ``refund`` needs, ``()`` for nothing; None: used up meanwhile.

        All of it is counted, or nothing: also if the store fails, or the caller leaves.
        """
        return ()

    async def refund(self, charge: Any) -> None:  # noqa: B027 - of those that count
        """Nobody sees the choice. While the store is away it cannot be undone: then it counts."""

    def record(self, view: View, charge: Any, shown: Shown) -> LogRecord:
        """Which arms were not eligible."""
        return LogRecord()

    def forget(self, learner: LearnerId) -> None:  # noqa: B027 - of those that remember
        """A learner, or visitor of a global bandit, is forgotten: drop what this process remembers of it."""

    def forget_all(self) -> None:  # noqa: B027 - as above
        """It is not known who was forgotten: drop what this process remembers of all."""


class ConstraintRow(NamedTuple):
    """A constraint, and whether it applies in a choice of a bandit: asked for every choice."""

    constraint: Constraint
    applies: Callable[[ChooseRequest, Bandit], bool]


class Applied(msgspec.Struct, eq=False):
    """A constraint that a choice keeps to, what it left, and what it was charged: () for nothing."""

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
    """What the row of the decision says of all of them together."""
    counting = [item for item in applied if item.constraint.counts]
    records = [item.constraint.record(item.view, item.charge, shown) for item in counting]
    had = [name for record in records for name in record.had]
    is_told = all(record.is_told for record in records) and len(had) <= MOST_LOGGED_HAD
    if not is_told or not all(item.constraint.is_in_row for item in counting):
        return LogRecord(is_told=False)
    return LogRecord(next((record.closed for record in records if record.closed), None), had)
