"""What is kept of a learner besides its state, and how all of it goes. The list: ``learning.forgetting``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from app.storage.protocol.learner_id import LearnerId

Knew = Callable[[bytes], int | None]
"""From the record of a decision: number of the newest entry of the log that was known then, None: unsaid."""


class LearnerSideData(Protocol):
    """Forgetting is an entry of the reward log: the state goes when it is folded, the rest by ``erase``."""

    async def touch(self, learner: LearnerId, *, expires_ms: int) -> None:
        """The learner is not idle before then. Never makes the time shorter."""

    async def append_forget(self, learner: LearnerId, *, payload: bytes, now_ms: int, ttl_ms: int) -> str:
        """Append an entry that forgets the learner, and return its id.

        In the same step all rewards of decisions from before are refused: for ``ttl_ms`` at least, and until
        the store refuses all that is as old (``drop_expired``). The learner is no longer idle, has taken no
        slot of a warm-up, and is noted as one to ``erase``. Idempotent by ``now_ms``: repeated, it returns
        the id of the first entry.
        """
        ...

    async def expire(self, learner: LearnerId, *, payload: bytes, now_ms: int, ttl_ms: int) -> str | None:
        """As ``append_forget`` if the learner is idle since before ``now_ms``, else None without effect."""
        ...

    async def erase(
        self, learner: LearnerId, entry_id: str, *, decision_knew: Knew, event_knew: Knew
    ) -> bool:
        """Remove log entries up to ``entry_id``, dead letters, rows, decisions that wait, choices for events.

        ``entry_id`` is that of the entry that forgot the learner. What was decided knowing of it stays: the
        learner may have come back before all is erased, and several processes may erase at the same time.
        ``decision_knew`` reads the record of a decision that waits, ``event_knew`` that of a choice for an
        event. In steps. False, and nothing is done, while that entry is not folded.
        """
        ...

    async def erase_bandit(self, uid: str) -> None:
        """Remove everything that is kept of all learners of a deleted bandit, under any key.

        In steps; ``RegistryStore.deletions`` names the bandit until all is gone. Costs a scan of all keys of
        the store, and of the logs of all partitions.
        """
