"""Entries of the reward log, and the states of learners, which the folded part of the log determines.

A learner is stored as a checkpoint, its whole state at some entry, and a tail: the entries of the log that
were folded since. A reader that folds the tail into the checkpoint has the state, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from app.storage.types.decisions import LearnerId, LoggedReward

NOT_DECIDED = 2**53 - 1  # a ``known_entry`` after all that is in the log: no decision came before it

Knew = Callable[[bytes], int | None]
"""From the record of a decision: number of the newest entry that was known then; None: it cannot be read."""


@dataclass(frozen=True, slots=True)
class SignalWrite:
    """Which of several rewards of a decision and arm an entry is. What has come is kept by ``decision_key``.

    ``decision_key``   names the decision and arm
    ``place``      of the signal, from 0 to 25; 0 where there is one
    ``aggregate``  of those that come of it the first counts, and others are duplicates; or their sum; or the
                   last, by ``at_ms``, and of those at the same time the largest
    """

    decision_key: str
    place: int
    value: float
    aggregate: Literal["first", "sum", "last"] = "first"
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class RewardWrite:
    """One entry for the reward log.

    ``known_entry``    number of the newest entry of the log that was known when it was decided: refused if
                       the learner was forgotten by a later one
    ``payload``        opaque
    ``dedupe_key``     the entry is a duplicate when the learner has had this key. None: ``signal`` tells it,
                       of a decision and of what is not summed
    ``expires_ms``     when the decision can no longer be rewarded. Its keys are kept until the store refuses
                       what they were needed for (``drop_expired``), whatever its clock does meanwhile.
                       None for what is no decision: then there is no ``signal`` either
    ``ttl_ms``         of what is no decision: how long the dedupe key is kept, by the clock of the store
    ``signal``         where not only the first reward of a decision and arm counts, or a default does
    ``logged``         what the decision log keeps of it, in the same step; None: the decision is not logged
    """

    learner: LearnerId
    known_entry: int
    payload: bytes
    dedupe_key: str | None
    expires_ms: int | None = None
    ttl_ms: int | None = None
    signal: SignalWrite | None = None
    logged: LoggedReward | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of one RewardWrite.

    ``entry_id`` is the entry's; of a duplicate it is that of the newest entry, which its first copy cannot be
    after; else empty. ``revised``: it is accepted, in the place of a reward above 0.
    """

    status: Literal["accepted", "duplicate", "forgotten", "expired"]
    entry_id: str = ""
    revised: bool = False


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of a reward log.

    ``payload``    as it was written
    ``first``      no reward and no default of its decision and arm came before
    ``came``       which signals of its decision and arm had come before it: their places and values
    ``origin``     the id it had when it was a dead letter; empty if it never was one
    """

    entry_id: str
    learner: LearnerId
    payload: bytes
    first: bool = True
    came: tuple[tuple[int, float], ...] = ()
    origin: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An entry that could not be folded, and why."""

    entry: LogEntry
    reason: str


@dataclass(frozen=True, slots=True)
class Lag:
    """How far folding is behind: age of the oldest entry that is not folded, and number of dead letters."""

    age_s: float
    dead: int


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What one step of trimming has left.

    ``more``   there may be more to drop: the entries that were looked at were not all
    ``held``   learners whose tails need some of the entries that were looked at: a checkpoint frees them
    """

    more: bool
    held: Sequence[LearnerId] = ()


def entry_order(entry_id: str) -> tuple[int, int]:
    """Entry ids compare as pairs of numbers."""
    milliseconds, _, number = entry_id.partition("-")
    return int(milliseconds), int(number)


@dataclass(frozen=True, slots=True)
class FoldedCounts:
    """How many entries of the log were folded for a bandit, and how many of them forgot a learner or gave it
    a state.
    """

    entries: int = 0
    replaced: int = 0


@dataclass(frozen=True, slots=True)
class StoredLearner:
    """What the store has of one learner.

    ``checkpoint``  its state at some entry of the log, opaque bytes; None: nothing came before the tail
    ``tail``        the entries that were folded since, in log order
    ``continues``   the caller named an entry of the tail: ``tail`` is what comes after it, without checkpoint
    """

    checkpoint: bytes | None = None
    tail: Sequence[LogEntry] = ()
    continues: bool = False


@dataclass(frozen=True, slots=True)
class CarriedWrite:
    """The state of a learner in a later space, in place of what was read of it.

    ``checkpoint``, ``tail``   what was read: the state, and how many entries its tail had
    ``state``                  opaque; None: nothing is left of it
    """

    name: str
    checkpoint: bytes | None
    tail: int
    state: bytes | None


@dataclass(frozen=True, slots=True)
class LearnerChanges:
    """What has changed in a partition since a watermark that the caller knows.

    ``watermark``   where it is now
    ``newest``      entry id of the newest entry of the log
    ``learners``    whose states have changed; None: not known whose
    ``removed``     whose states were removed in between, whatever became of them afterwards
    """

    watermark: str
    newest: str
    learners: Sequence[LearnerId] | None = ()
    removed: Sequence[LearnerId] = ()
