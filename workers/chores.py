"""What becomes due by the clock: defaults of decisions without a reward, learners that were idle for too
long, and what is still kept of forgotten ones.

Any number of processes may do it at the same time: every step is one script that looks again before it acts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from app.errors import Unavailable
from app.services.formats.records import RewardPayload, pack
from app.services.learning.decisions import DEDUPE_MARGIN_MS, defaults_of
from app.storage.protocol import LearnerId, Store

log = logging.getLogger("shortlist.chores")

EVERY_S = 1.0
BATCH = 200
FORGET = pack(RewardPayload(b""))


class Chores:
    """``wake(partition)`` is called when something was appended; ``done(kind, count)`` counts for metrics."""

    def __init__(
        self,
        store: Store,
        *,
        token_ttl_ms: int,
        wake: Callable[[int], None],
        done: Callable[[str, int], None] = lambda kind, count: None,  # noqa: ARG005
    ) -> None:
        self._store = store
        self._ttl_ms = token_ttl_ms + DEDUPE_MARGIN_MS
        self._wake = wake
        self._done = done

    async def run(self) -> None:
        """Until it is cancelled. An unreachable store is waited for."""
        while True:
            try:
                await self.finish_deletions()
                await asyncio.gather(*map(self.sweep, range(self._store.partitions)))
            except Unavailable as error:
                log.warning("the store is not available, chores wait: %s", error.detail)
            except Exception:
                log.exception("chores failed, and are tried again")
            await asyncio.sleep(EVERY_S)

    async def finish_deletions(self) -> None:
        if finished := await self._store.finish_deletions():
            self._done("deletions_finished", finished)

    async def sweep(self, partition: int) -> None:
        """Do everything that is due in a partition."""
        more = True
        while more:
            now_ms = time.time_ns() // 1_000_000
            chores = await self._store.chores(partition, now_ms, BATCH)
            if chores.decisions:
                due = [decision for decision, _ in chores.decisions]
                writes = defaults_of(chores.decisions, now_ms)
                if await self._store.append_defaults(partition, due, writes):
                    self._wake(partition)
                self._done("waited_for", len(due))
            for learner in chores.idle:
                await self._expire(partition, learner, now_ms)
            for learner, entry_id in chores.erase.items():
                self._done("erased", await self._store.erase(learner, entry_id))
            more = BATCH in (len(chores.decisions), len(chores.idle))

    async def _expire(self, partition: int, learner: LearnerId, now_ms: int) -> None:
        entry = await self._store.expire(learner, payload=FORGET, now_ms=now_ms, ttl_ms=self._ttl_ms)
        if entry is not None:
            self._wake(partition)
            self._done("expired", 1)
