"""Decisions that wait for rewards, since an arm without one in time gets a default; what time makes due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from app.storage.protocol.decision_rows import RowWrite
from app.storage.protocol.learner_id import DecisionId, LearnerId

Activated = Literal["activated", "duplicate", "forgotten", "expired"]


@dataclass(frozen=True, slots=True)
class DefaultWrite:
    """The default of one arm of a logged decision: appended unless a reward with this decision key came.

    ``issued_ms``, ``expires_ms``, ``known_entry``: of the decision, as in ``RewardWrite``.
    ``logged``: what is put at the end of the decision's row in the decision log; nothing if it has none.
    ``source``: as in ``RewardWrite``.
    """

    decision: DecisionId
    decision_key: str
    issued_ms: int
    expires_ms: int
    payload: bytes
    known_entry: int | None = None
    logged: bytes = b""
    source: bytes = b""


@dataclass(frozen=True, slots=True)
class Due:
    """What time has made due in a partition.

    ``decisions``   logged decisions whose time to be rewarded is over, with their records
    ``idle``        learners whose time to live is over
    ``erase``       learners that are forgotten and not erased yet, with the id of the entry that forgot them
    """

    decisions: Sequence[tuple[DecisionId, bytes]]
    idle: Sequence[LearnerId]
    erase: Mapping[LearnerId, str]


class WaitingDecisions(Protocol):
    """What bandits need that wait for rewards, or activate decisions later. Records are opaque.

    Any number of processes may do what is due at the same time.

    ``issued_ms``, ``expires_ms``, ``known_entry``: of the decision, as in ``RewardWrite``. One whose rewards
    the store refuses as expired is neither logged nor activated.
    """

    async def log(
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

    async def due(self, partition: int, now_ms: int, count: int) -> Due:
        """At most about ``count`` of each kind."""
        ...

    async def append_defaults(
        self, partition: int, decisions: Sequence[DecisionId], writes: Sequence[DefaultWrite]
    ) -> str | None:
        """Append the defaults that these decisions of a partition still owe, and remove them from the logged.

        Returns the last entry id, if any. Of several calls for one decision only one appends. Their dedupe
        keys are counted, and never refused: a decision that waits is owed its default.
        """
        ...

    async def drop_expired(self, partition: int, *, margin_ms: int, count: int) -> int:
        """Drop what is kept of decisions that expired ``margin_ms`` ago by the store's clock.

        Their dedupe keys go, and what is known of learners that were forgotten before all of them. In the
        same step, rewards of all decisions that may need any of it are refused from now on, for good. At most
        ``count`` of each kind; returns how many were dropped.
        """
        ...

    async def count_dedupe_keys(self, partition: int) -> int:
        """How many dedupe keys of decisions are kept. Cost: a step for each ten minutes of a token's life."""
        ...
