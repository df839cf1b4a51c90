"""Decisions that are logged, since an arm without a reward in time gets a default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from app.storage.protocol.decision_rows import RowWrite
from app.storage.protocol.learner_id import DecisionId

Activated = Literal["activated", "duplicate", "forgotten", "expired"]


@dataclass(frozen=True, slots=True)
class DefaultWrite:
    """The default of one arm of a logged decision: appended unless a reward with this decision key came.

    ``issued_ms``, ``expires_ms``, ``known_entry``: of the decision, as in ``RewardWrite``.
    ``logged``: what is put at the end of the decision's row in the decision log; nothing if it has none.
    """

    decision: DecisionId
    decision_key: str
    issued_ms: int
    expires_ms: int
    payload: bytes
    known_entry: int | None = None
    logged: bytes = b""


class WaitingDecisions(Protocol):
    """What bandits need that wait for rewards, or activate decisions later. Records are opaque.

    ``issued_ms``, ``expires_ms``, ``known_entry``: of the decision, as in ``RewardWrite``. One whose rewards
    the store refuses as expired is neither logged nor activated.
    """

    async def log_decision(
        self,
        decision: DecisionId,
        record: bytes,
        *,
        due_ms: int,
        expires_ms: int,
        known_entry: int | None = None,
        row: RowWrite | None = None,
    ) -> None:
        """Keep the decision until its defaults are appended, from ``due_ms`` on; and its row."""

    async def activate(
        self,
        decision: DecisionId,
        *,
        issued_ms: int,
        expires_ms: int,
        known_entry: int | None = None,
        ttl_ms: int,
        record: bytes | None,
        due_ms: int,
        row: RowWrite | None = None,
    ) -> Activated:
        """Say that the decision was shown, for ``ttl_ms``, and log it if there is a record; keep its row."""
        ...

    async def is_active(self, decision: DecisionId) -> bool: ...
