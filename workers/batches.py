"""Folding a batch of the log into states as they are stored: from bytes to bytes, without I/O."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.services.formats.records import LearnerState, bytes_to_state, state_to_bytes
from app.services.learning.fold import fold, reason_of
from app.storage.protocol import DeadLetter, LearnerId, LogEntry

log = logging.getLogger("shortlist.worker")

MOST_NUMBERS = 1 << 22  # in the states of one batch, 32 MiB: at least one state, whatever its dimension
SHORT_FOLD = 4_000_000  # sum of squared payload bytes: about 55 entries of dimension 32, or 4 of 128

States = Mapping[LearnerId, LearnerState | None]
Stored = Mapping[LearnerId, bytes | None]


@dataclass(frozen=True, slots=True)
class Folded:
    """What becomes of a batch: the new states, the same as they are stored, and the entries left out."""

    states: States
    stored: Stored
    dead: Sequence[DeadLetter]


def is_short(entries: Sequence[LogEntry]) -> bool:
    """Whether folding takes about a millisecond: then handing it to a thread would cost more."""
    return sum(len(entry.payload) ** 2 for entry in entries) <= SHORT_FOLD


def batches(entries: Sequence[LogEntry]) -> Iterator[Sequence[LogEntry]]:
    """Cut the entries where the states of a batch would take more memory than ``MOST_NUMBERS``."""
    start, numbers = 0, 0
    learners = set[LearnerId]()
    for place, entry in enumerate(entries):
        learner, needed = entry.learner, (len(entry.payload) // 8) ** 2
        if learner not in learners and learners and numbers + needed > MOST_NUMBERS:
            yield entries[start:place]
            start, numbers, learners = place, 0, set()
        if learner not in learners:
            learners.add(learner)
            numbers += needed
    if entries:
        yield entries[start:]


def fold_stored(before: Stored, entries: Sequence[LogEntry]) -> Folded:
    """Fold a batch into the states of all ``learners_of`` its entries.

    A state that cannot be read stays as it is, and all entries of its learner are left out.
    """
    dead: dict[str, DeadLetter] = {}

    def leave_out(entry: LogEntry, reason: str) -> None:
        log.error("entry %s is a dead letter: %s", entry.entry_id, reason)
        dead[entry.entry_id] = DeadLetter(entry, reason)

    states, broken = _read(before)
    for entry in entries:
        if reason := broken.get(entry.learner):
            leave_out(entry, reason)
    after = fold(states, [entry for entry in entries if entry.learner not in broken], leave_out)
    stored = {learner: state_to_bytes(state) if state else None for learner, state in after.items()}
    return Folded(after, stored, [dead[entry.entry_id] for entry in entries if entry.entry_id in dead])


def _read(before: Stored) -> tuple[dict[LearnerId, LearnerState | None], dict[LearnerId, str]]:
    """The states, and the reason for each that cannot be read."""
    states: dict[LearnerId, LearnerState | None] = {}
    broken: dict[LearnerId, str] = {}
    for learner, data in before.items():
        try:
            states[learner] = bytes_to_state(data) if data else None
        except Exception as error:
            broken[learner] = f"the learner's state cannot be read: {reason_of(error)}"
    return states, broken
