"""Constraints of plug-ins: a bandit names those that its choices keep to, each with its options.

"constraints": {"fresh": {"days": 30}}
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import Any, ClassVar, Self

import msgspec

from app.bandits.bandit import Bandit
from app.bandits.settings import MAX_WITHIN_S, BanditRecord
from app.frequency_caps.caps import key_of
from app.frequency_caps.notes import KeyNotes, Note, NoteStore, WrittenNote
from app.platform import plugins
from app.platform.documents import Document, errors_of
from app.platform.errors import FieldPath, StartupError, Unavailable
from app.policies.registry import POLICIES
from app.policies.request import ChooseRequest
from app.policies.selection import SelectionRequest
from app.records.left_out import NOT_KEPT
from app.serving.constraints.base import Constraint, LogRecord, Shown, View
from app.storage.types import LearnerId


class PluginConstraint(Constraint):
    """Base of the constraints of plug-ins. The name of the entry point is the one that bandits use.

    ``own_options``: a ``Document`` of the options, each field with its type, bounds and default.
    """

    own_options: ClassVar[type[Document]] = Document
    name: str

    @property
    def leaves_none(self) -> str:
        return f"the constraint {self.name} leaves none"

    def options_of(self, request: SelectionRequest) -> Any:
        """Its options for the bandit of a choice. Cost: some microseconds."""
        options = (request.bandit.record.constraints or {})[self.name]
        return msgspec.convert(options, self.own_options)

    def with_store(self, notes: NoteStore) -> Self:
        """The constraint of one service, whose notes are these."""
        return self


class RememberingConstraint(PluginConstraint):
    """One that depends on what its key was shown before: "in at most 2 of the last 5 choices", for example.

    With each choice it notes a text of the key, or of the visitor of a global bandit, and it is asked with
    the notes before. These are in the store, bounded together with what frequency caps remember: 1,000 of a
    key, SHORTLIST_MAX_REPEATS_MB of all; without room for a new key nothing is noted of it. They are
    forgotten and erased with their key, stay in moves, and are copied by ``shortlist copy``. A process makes
    the choices of a key one after the other; one that other processes overtake 100 times is 503. A bandit has
    one such constraint, or ``repeats``.

    ``remembers_s``: for how many seconds, at most 366 days.

    Cost: a round trip to the store before the policy, and one after it.
    """

    counts = is_in_row = True
    remembers_s: ClassVar[int]
    _notes: NoteStore

    @abstractmethod
    def allow(self, notes: Sequence[Note], choice: ChooseRequest, request: SelectionRequest) -> View:
        """What it leaves, by what was noted of the key, the oldest first. Its ``state`` is not kept."""

    @abstractmethod
    def note(self, shown: Shown) -> str:
        """What to note of this choice: at most 300 bytes, and at most once for a decision."""

    def with_store(self, notes: NoteStore) -> Self:
        other = copy(self)
        other._notes = notes
        return other

    async def view(self, choice: ChooseRequest, request: SelectionRequest) -> View:
        key = self.turn_of(choice, request)
        if key is None:
            return View()
        notes = await self._notes.read(self.name, key, span_ms=self.remembers_s * 1_000)
        return msgspec.structs.replace(self.allow(notes.notes, choice, request), state=notes)

    def turn_of(self, choice: ChooseRequest, request: SelectionRequest) -> LearnerId | None:
        return key_of(request.bandit, request.learner, choice.visitor)

    async def charge(self, view: View, shown: Shown) -> WrittenNote | tuple[()] | None:
        if view.state is None:
            return ()
        return await self._notes.write(view.state, shown.decision, self.note(shown))

    async def refund(self, charge: WrittenNote) -> None:
        await self._notes.take_back(charge)

    def record(self, view: View, charge: object, shown: Shown, ttl_ms: int) -> LogRecord:
        """Excluded arms stand in the row as those of a frequency cap do; what else was left does not."""
        if view.arm_filter is not None or view.limits or view.pins or view.quotas is not None:
            return LogRecord(NOT_KEPT)
        return LogRecord(had=view.exclude)


class Missing(Constraint):
    """Refuses choices of bandits that need a plug-in which is not loaded."""

    async def view(self, choice: ChooseRequest, request: SelectionRequest) -> View:
        if missing := ", ".join(missing_of(request.bandit)):
            raise Unavailable(f"no loaded plug-in provides {missing}, which the bandit needs")
        return View()


def missing_of(bandit: Bandit) -> Sequence[str]:
    """What the choices of a bandit need and no loaded plug-in provides."""
    missing = missing_settings(bandit.record)
    needed = bandit.catalogue.missing_plugin
    return missing if needed is None else [*missing, needed]


def missing_settings(record: BanditRecord) -> Sequence[str]:
    """Of that, what its settings name."""
    missing = [] if record.policy in POLICIES else [f"the policy {record.policy}"]
    if record.constraints is not None:
        missing += [f"the constraint {name}" for name in record.constraints if name not in PLUGIN_CONSTRAINTS]
    return missing


def check_constraints(record: BanditRecord) -> Iterator[tuple[FieldPath, str]]:
    """What is wrong with the constraints of a bandit: field and rule."""
    for name, options in (record.constraints or {}).items():
        if name not in PLUGIN_CONSTRAINTS:
            yield ("constraints", name), "no loaded plug-in provides a constraint of this name"
        else:
            yield from errors_of(PLUGIN_CONSTRAINTS[name].own_options, options, ("constraints", name))
    remembering = _remembering(record.constraints or ())
    if len(remembering) + (record.repeats is not None) > 1:
        yield ("constraints", remembering[-1]), "a bandit has one constraint that remembers keys, or repeats"


def remembers_keys(record: BanditRecord) -> bool:
    """Whether choices depend on what a key, or a visitor, was shown before."""
    return record.repeats is not None or bool(_remembering(record.constraints or ()))


async def noted_of(notes: NoteStore, bandit: Bandit, name: str) -> KeyNotes | None:
    """What the constraint that remembers keys noted of a key or visitor; None: the bandit has none.

    Raises Unavailable.
    """
    for constraint in map(PLUGIN_CONSTRAINTS.get, bandit.record.constraints or ()):
        if isinstance(constraint, RememberingConstraint):
            key, span_ms = LearnerId(bandit.uid, name), constraint.remembers_s * 1_000
            return await notes.read(constraint.name, key, span_ms=span_ms)
    return None


def what_remembers_keys() -> str:
    """What a bandit may have so that its choices depend on that, for a message."""
    return " or ".join(["repeats", *(f"the constraint {name}" for name in _remembering(PLUGIN_CONSTRAINTS))])


def _remembering(names: Iterable[str]) -> list[str]:
    """Those of these constraints that remember keys."""
    return [name for name in names if isinstance(PLUGIN_CONSTRAINTS.get(name), RememberingConstraint)]


def _load() -> dict[str, PluginConstraint]:
    constraints = plugins.load("constraints", PluginConstraint)  # type: ignore[type-abstract]
    for name, constraint in constraints.items():
        constraint.name = name
        span_s = constraint.remembers_s if isinstance(constraint, RememberingConstraint) else 1
        if not 0 < span_s <= MAX_WITHIN_S:
            where = f"the constraint {name} of a plug-in"
            raise StartupError(f"{where} must remember keys for 1 to {MAX_WITHIN_S:,} seconds")
    return constraints


PLUGIN_CONSTRAINTS = _load()
