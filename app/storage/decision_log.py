"""The part of ``protocol.Store`` for decisions that are logged, and for learners that go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Activated = Literal["activated", "duplicate", "forgotten"]


@dataclass(frozen=True, slots=True)
class DefaultWrite:
    """The default of one arm of a logged decision: appended unless a reward with this ``first`` word came."""

    member: str
    bandit_uid: str
    learner: str
    first: str
    issued_ms: int
    ttl_ms: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Chores:
    """What time has made due in a partition.

    ``decisions``: logged ones whose time to be rewarded is over, as (member, record); ``idle``: members of
    learners whose time to live is over; ``erase``: members of forgotten learners, with the entry that did it.
    """

    decisions: Sequence[tuple[str, bytes]]
    idle: Sequence[str]
    erase: Mapping[str, str]


class DecisionLog(Protocol):
    """What bandits need that wait for rewards, activate decisions later, or let idle learners go.

    A ``member`` names a learner or a decision within a partition: "<bandit uid>/<learner>[/<decision id>]".
    """

    async def log_decision(self, partition: int, member: str, record: bytes, *, due_ms: int) -> None:
        """Remember the decision until its defaults are appended. Repeated before that, it changes nothing."""

    async def activate(
        self, partition: int, member: str, *, issued_ms: int, ttl_ms: int, record: bytes | None, due_ms: int
    ) -> Activated:
        """Say that the decision was shown, and log it if there is a record."""
        ...

    async def is_active(self, partition: int, member: str) -> bool: ...

    async def append_defaults(
        self, partition: int, members: Sequence[str], writes: Sequence[DefaultWrite]
    ) -> str | None:
        """Append what these decisions still owe, and remove them from the log; the last entry id, if any."""
        ...

    async def touch(self, partition: int, member: str, *, expires_ms: int) -> None:
        """The learner lives at least until then."""

    async def expire(
        self, partition: int, member: str, *, payload: bytes, now_ms: int, ttl_ms: int
    ) -> str | None:
        """``append_forget``, if the learner's time to live is over by ``now_ms``; else None."""
        ...

    async def chores(self, partition: int, now_ms: int, count: int) -> Chores:
        """At most about ``count`` of each kind."""
        ...

    async def put_event(self, partition: int, member: str, event: str, value: bytes, *, ttl_ms: int) -> bytes:
        """``put_once`` under a name that goes when the learner is erased."""
        ...

    async def get_event(self, partition: int, member: str, event: str) -> bytes | None: ...

    async def erase(self, partition: int, member: str, entry_id: str) -> bool:
        """Remove what is kept of a forgotten learner: log entries, logged decisions, events.

        In small steps, and safe to repeat; False (nothing is done) while ``entry_id`` is not yet folded.
        """
        ...
