"""Retention of the decision log: rows go when their time is over, and the oldest when there are too many.

Any number of processes may do it at the same time: every step is one script that drops a few hundred rows.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from app.errors import Unavailable
from app.services.bandits.versions import StoredVersions
from app.storage.protocol import DecisionRows, Holdings, RegistryStore

log = logging.getLogger("shortlist.decision_log")

EVERY_S = 10.0
STEP = 500
SLICES = 64  # of the time that the log spans: the oldest is dropped, again and again, until there is room


class RetentionStore(DecisionRows, Holdings, RegistryStore, Protocol):
    """What retention needs of the store."""


class LogRetention:
    """Drops rows, again and again.

    ``most_bytes``          that all rows may take together
    ``done(kind, count)``   is told how many rows were dropped, for metrics
    """

    def __init__(
        self,
        store: RetentionStore,
        *,
        most_bytes: int,
        done: Callable[[str, int], None] = lambda kind, count: None,  # noqa: ARG005
    ) -> None:
        self._store = store
        self._versions = StoredVersions(store)
        self._most_bytes = most_bytes
        self._done = done

    async def run(self) -> None:
        """Until it is cancelled. An unreachable store is waited for."""
        while True:
            try:
                await self.sweep(time.time_ns() // 1_000_000)
            except Unavailable as error:
                log.warning("the store is not available, rows stay for now: %s", error.detail)
            except Exception:
                log.exception("retention of the decision log failed, and is tried again")
            await asyncio.sleep(EVERY_S)

    async def sweep(self, now_ms: int) -> None:
        """Drop all rows whose time is over by ``now_ms``, then the oldest while there are too many."""
        logs = await self._logs()
        for (partition, uid), keep_ms in logs.items():
            await self._trim(partition, uid, now_ms - keep_ms, keep_ms)
        while (await self._store.holdings())["log"] > self._most_bytes:
            ages = {place: await self._store.oldest_row(*place) for place in logs}
            heads = {place: oldest_ms for place, oldest_ms in ages.items() if oldest_ms is not None}
            if not heads:
                return
            oldest_ms = min(heads.values())
            before_ms = oldest_ms + 1 + max(0, now_ms - oldest_ms) // SLICES
            for place, head_ms in heads.items():
                if head_ms < before_ms:
                    await self._trim(*place, before_ms)

    async def _logs(self) -> Mapping[tuple[int, str], int]:
        """How long rows are kept, by partition and bandit; of one that no longer logs, as long as before."""
        versions = await self._versions.all()
        found = {}
        for partition in range(self._store.partitions):
            for uid, keep_ms in (await self._store.row_logs(partition)).items():
                version = versions.get(uid)
                rule = None if version is None else version.record.log
                found[partition, uid] = keep_ms if rule is None else rule.keep_ms
        return found

    async def _trim(self, partition: int, uid: str, before_ms: int, keep_ms: int | None = None) -> None:
        dropped = STEP
        while dropped == STEP:
            dropped = await self._store.trim_rows(
                partition, uid, before_ms=before_ms, count=STEP, keep_ms=keep_ms
            )
            self._done("rows_dropped", dropped)
