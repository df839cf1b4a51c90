"""The part of ``protocol.Store`` for decisions that are logged, and for learners that go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from app.storage.learner_id import LearnerId

Activated = Literal["activated", "duplicate", "forgotten"]


class DecisionId(NamedTuple):
    """One decision of one learner; it is kept where its learner is."""

    learner: LearnerId
    id: str

    @property
    def member(self) -> str:
        """How the decision is named among the members of a key: "<bandit uid>/<learner>/<decision id>"."""
        return f"{self.learner.member}/{self.id}"

    @classmethod
    def of_member(cls, member: str) -> DecisionId:
        """Inverse of ``member``: the id of a decision has no slash."""
        learner, _, decision = member.rpartition("/")
        return cls(LearnerId.of_member(learner), decision)


@dataclass(frozen=True, slots=True)
class DefaultWrite:
    """The default of one arm of a logged decision: appended unless a reward with this ``first`` word came."""

    decision: DecisionId
    first: str
    issued_ms: int
    ttl_ms: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Chores:
    """What time has made due in a partition.

    ``decisions``: logged ones whose time to be rewarded is over, with their records; ``idle``: learners whose
    time to live is over; ``erase``: forgotten learners, with the entry that did it.
    """

    decisions: Sequence[tuple[DecisionId, bytes]]
    idle: Sequence[LearnerId]
    erase: Mapping[LearnerId, str]


class DecisionLog(Protocol):
    """What bandits need that wait for rewards, activate decisions later, or let idle learners go."""

    async def log_decision(self, decision: DecisionId, record: bytes, *, due_ms: int) -> None:
        """Remember the decision until its defaults are appended. Repeated before that, it changes nothing."""

    async def activate(
        self, decision: DecisionId, *, issued_ms: int, ttl_ms: int, record: bytes | None, due_ms: int
    ) -> Activated:
        """Say that the decision was shown, and log it if there is a record."""
        ...

    async def is_active(self, decision: DecisionId) -> bool: ...

    async def append_defaults(
        self, partition: int, decisions: Sequence[DecisionId], writes: Sequence[DefaultWrite]
    ) -> str | None:
        """Append what these decisions of a partition still owe, and remove them from the log.

        Returns the last entry id, if any.
        """
        ...

    async def touch(self, learner: LearnerId, *, expires_ms: int) -> None:
        """The learner lives at least until then."""

    async def expire(self, learner: LearnerId, *, payload: bytes, now_ms: int, ttl_ms: int) -> str | None:
        """``append_forget``, if the learner's time to live is over by ``now_ms``; else None."""
        ...

    async def chores(self, partition: int, now_ms: int, count: int) -> Chores:
        """At most about ``count`` of each kind."""
        ...

    async def put_event(self, learner: LearnerId, event: str, value: bytes, *, ttl_ms: int) -> bytes:
        """``put_once`` under a name that goes when the learner is erased."""
        ...

    async def get_event(self, learner: LearnerId, event: str) -> bytes | None: ...

    async def erase(self, learner: LearnerId, entry_id: str) -> bool:
        """Remove what is kept of a forgotten learner: log entries, logged decisions, events.

        In small steps, and safe to repeat; False (nothing is done) while ``entry_id`` is not yet folded.
        """
        ...
