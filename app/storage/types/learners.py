"""Entries of the reward log, and the states of learners, which the folded part of the log determines.

A learner is stored as a checkpoint, its whole state at some entry, and a tail: the entries of the log that
were folded since. A reader that folds the tail into the checkpoint has the state, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from app.storage.types.decisions import LearnerId, LoggedReward

Knew = Callable[[bytes], int | None]
"""From the record of a decision: number of the newest entry that was known then; None: it cannot be read."""


@dataclass(frozen=True, slots=True)
class SignalWrite:
    """Which of several rewards of a decision and arm an entry is.

    ``place``      of the signal, from 0 to 25
    ``aggregate``  of those that come of it the first counts, and others are duplicates; or their sum; or the
                   last, by ``at_ms``, and of those at the same time the largest
    """

    place: int
    value: float
    aggregate: Literal["first", "sum", "last"] = "first"
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class RewardWrite:
    """One entry for the reward log.

    ``dedupe_key``     the entry is a duplicate when the learner has had this key
    ``decision_key``   names the decision and arm that are rewarded: the entry carries ``first=True`` when it
                       is the first with this key; None: it always does
    ``ttl_ms``         how long the dedupe key is kept, by the clock of the store; None with ``expires_ms``
    ``payload``        opaque
    ``expires_ms``     when the decision can no longer be rewarded. Its keys are kept until the store refuses
                       what they were needed for (``drop_expired``), whatever its clock does meanwhile.
                       None for what is no decision: then there is no ``decision_key`` either
    ``known_entry``    number of the newest entry of the log that was known when it was decided: refused if
                       the learner was forgotten by a later one
    ``logged``         what the decision log keeps of it, in the same step; None: the decision is not logged
    ``summed``         the reward, where those with its decision key are summed: see ``LogEntry.before``
    ``source``         what it is of; opaque, b"" where nothing is known
    ``signal``         of a bandit with several rewards, or of which the last counts, instead of ``summed``:
                       what has come of them is kept under the decision key, and so is what tells duplicates,
                       unless it is summed
    """

    learner: LearnerId
    dedupe_key: str
    decision_key: str | None
    known_entry: int
    ttl_ms: int | None
    payload: bytes
    expires_ms: int | None = None
    logged: LoggedReward | None = None
    summed: float | None = None
    source: bytes = b""
    signal: SignalWrite | None = None


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

    ``first``      whether it is the first with its decision key
    ``origin``     the id it had when it was a dead letter; empty if it never was one
    ``replaces``   a default was counted for this decision and arm, and this entry takes its place
    ``before``     the sum of the rewards with its decision key before it, where they are ``summed``; else 0
    ``source``     as it was written
    ``came``       which signals with its decision key had come before it: their places and values
    """

    entry_id: str
    learner: LearnerId
    first: bool
    payload: bytes
    origin: str = ""
    replaces: bool = False
    before: float = 0.0
    source: bytes = b""
    came: tuple[tuple[int, float], ...] = ()


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
