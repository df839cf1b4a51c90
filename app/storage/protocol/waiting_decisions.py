"""Decisions that are logged, since an arm without a reward in time gets a default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from app.storage.learner_id import DecisionId

Activated = Literal["activated", "duplicate", "forgotten"]


@dataclass(frozen=True, slots=True)
class DefaultWrite:
    """The default of one arm of a logged decision: appended unless a reward with this decision key came."""

    decision: DecisionId
    decision_key: str
    issued_ms: int
    ttl_ms: int
    payload: bytes


class WaitingDecisions(Protocol):
    """What bandits need that wait for rewards, or activate decisions later. Records are opaque."""

    async def log_decision(self, decision: DecisionId, record: bytes, *, due_ms: int) -> None:
        """Keep the decision until its defaults are appended, from ``due_ms`` on."""

    async def activate(
        self, decision: DecisionId, *, issued_ms: int, ttl_ms: int, record: bytes | None, due_ms: int
    ) -> Activated:
        """Say that the decision was shown, for ``ttl_ms``, and log it if there is a record."""
        ...

    async def is_active(self, decision: DecisionId) -> bool: ...
