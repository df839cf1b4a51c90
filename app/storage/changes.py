"""What processes tell each other through the store: what has changed, who works, and what was left out.

The second half of ``protocol.Store``; every call is atomic. Changes are logs that name what changed, not how:
whoever follows one reads the thing as it is now, so a follower may come late and may see a change twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.storage.learner_id import LearnerId


@dataclass(frozen=True, slots=True)
class StoredArm:
    """One arm as stored."""

    id: str
    revision: int
    features: bytes


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of a reward log, in order; ``origin`` is the id it had when it was a dead letter.

    ``replaces``: the default was counted in its place, and goes.
    """

    entry_id: str
    learner: LearnerId
    first: bool
    payload: bytes
    origin: str = ""
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An entry that could not be folded, and why."""

    entry: LogEntry
    reason: str


@dataclass(frozen=True, slots=True)
class ArmChanges:
    """The version of a catalogue, and the arms changed since the known one; None: not known which."""

    version: int
    ids: Sequence[str] | None = ()


@dataclass(frozen=True, slots=True)
class LearnerChanges:
    """Watermark and newest entry of a partition, and the learners changed since; None: not known which.

    ``removed`` are those that were removed in between, whatever became of them afterwards.
    """

    watermark: str
    newest: str
    learners: Sequence[LearnerId] | None = ()
    removed: Sequence[LearnerId] = ()


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a partition is behind: age of the oldest entry that waits, and dead letters."""

    age_s: float
    dead: int


class Following(Protocol):
    """See the module."""

    async def registry_version(self) -> int: ...

    async def changed_arms(self, uid: str, since: int) -> ArmChanges:
        """What was written after the version ``since``; one that is above the version is not known."""
        ...

    async def arms(self, uid: str, ids: Sequence[str]) -> Sequence[StoredArm | None]:
        """These arms as they are now; None for those that are not there."""
        ...

    async def changed_learners(self, partition: int, since: str) -> LearnerChanges:
        """Whose states were written after the watermark ``since``; "" and one above it are not known."""
        ...

    async def all_states(self, partition: int, uids: Sequence[str]) -> tuple[str, Mapping[LearnerId, bytes]]:
        """The watermark, and the states of all learners of these bandits in a partition: for offline use."""
        ...

    async def lag(self, partition: int) -> Lag: ...

    async def dead_letters(self, partition: int) -> Sequence[DeadLetter]:
        """Entries that were left out and not replayed, in order."""
        ...

    async def replay_dead(self, partition: int, letters: Sequence[DeadLetter]) -> Sequence[str]:
        """Put dead letters at the end of the log: the new ids, or "forgotten" (dropped), or "missing"."""
        ...

    async def join_workers(self, name: str, lease_ms: int) -> Sequence[str]:
        """Begin a worker's lease anew; return the names of all that hold one."""
        ...

    async def leave_workers(self, name: str) -> None: ...
