"""Entries of the reward log, and the states of learners, which the folded part of the log determines.

A learner is stored as a checkpoint, its whole state at some entry, and a tail: the entries folded since. A
reader who folds the tail into the checkpoint has the state, bit for bit.
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
    """The signal of an entry, where a decision and arm have several rewards. Earlier ones are kept by
    ``decision_key``.

    ``decision_key``   names the decision and arm
    ``place``      of the signal, from 0 to 25; 0 where there is one
    ``aggregate``  of several rewards of the signal the first counts, and others are duplicates; or their sum;
                   or the last by ``at_ms``, and the largest of those at the same time
    """

    decision_key: str
    place: int
    value: float
    aggregate: Literal["first", "sum", "last"] = "first"
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class RewardWrite:
    """One entry for the reward log.

    ``known_entry``    number of the newest log entry known to the decision: the reward is refused if a later
                       entry forgot the learner
    ``payload``        opaque
    ``dedupe_key``     the entry is a duplicate when the learner has had this key. None: ``signal`` tells
                       duplicates, unless they are summed
    ``expires_ms``     when the decision can no longer be rewarded. Its keys are kept until the store refuses
                       all rewards of this age (``drop_expired``), whatever its clock does meanwhile. None
                       without a decision: then there is no ``signal`` either
    ``ttl_ms``         without a decision: how long the dedupe key is kept, by the clock of the store
    ``signal``         where not only the first reward of a decision and arm counts, or a default does
    ``logged``         the decision log's part, written in the same step; None: the decision is not logged
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
    """The outcome of one RewardWrite.

    ``entry_id``: of the accepted entry; for a duplicate the newest entry, which its first copy cannot be
    after; else empty. ``revised``: accepted in the place of a reward above 0.
    """

    status: Literal["accepted", "duplicate", "forgotten", "expired"]
    entry_id: str = ""
    revised: bool = False


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of a reward log.

    ``payload``    as it was written
    ``first``      no reward and no default of its decision and arm came before
    ``came``       signals of its decision and arm before this entry: their places and values
    ``origin``     its id as a dead letter; empty if it never was one
    """

    entry_id: str
    learner: LearnerId
    payload: bytes
    first: bool = True
    came: tuple[tuple[int, float], ...] = ()
    origin: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An entry which could not be folded, and the reason."""

    entry: LogEntry
    reason: str


@dataclass(frozen=True, slots=True)
class Lag:
    """The delay of the fold: age of the oldest unfolded entry, and number of dead letters."""

    age_s: float
    dead: int


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The outcome of one step of trimming.

    ``more``   there may be more to drop: the step did not look at all entries
    ``needing_checkpoint``   learners whose tails need some of the entries: a checkpoint frees these
    """

    more: bool
    needing_checkpoint: Sequence[LearnerId] = ()


def entry_order(entry_id: str) -> tuple[int, int]:
    """Entry ids compare as pairs of numbers."""
    milliseconds, _, number = entry_id.partition("-")
    return int(milliseconds), int(number)


@dataclass(frozen=True, slots=True)
class FoldedCounts:
    """Numbers of folded entries of a bandit: all, and those which forgot a learner or set its state."""

    entries: int = 0
    replaced: int = 0


@dataclass(frozen=True, slots=True)
class StoredLearner:
    """The stored state of one learner.

    ``checkpoint``  its state at some entry of the log, opaque bytes; None: no entry came before the tail
    ``tail``        the entries folded since, in log order
    ``continues``   the caller named an entry of the tail: ``tail`` begins after this entry, without
                    checkpoint
    """

    checkpoint: bytes | None = None
    tail: Sequence[LogEntry] = ()
    continues: bool = False


@dataclass(frozen=True, slots=True)
class CarriedWrite:
    """The state of a learner in a later space, in place of the state as read.

    ``checkpoint``, ``tail``   as read: the state, and the number of entries in its tail
    ``state``                  opaque; None: no state is left
    """

    name: str
    checkpoint: bytes | None
    tail: int
    state: bytes | None


@dataclass(frozen=True, slots=True)
class LearnerChanges:
    """Changes in a partition since a watermark known to the caller.

    ``watermark``   the current one
    ``newest``      entry id of the newest entry of the log
    ``learners``    learners with changed states; None: unknown
    ``removed``     learners whose states were removed in between, also those who came back
    """

    watermark: str
    newest: str
    learners: Sequence[LearnerId] | None = ()
    removed: Sequence[LearnerId] = ()
