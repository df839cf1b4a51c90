"""Housekeeping: work due by the clock, or broken off.

Decisions whose time is over get their defaults, learners idle for too long are forgotten, records of
forgotten learners and of deleted bandits and catalogues are erased.

Any number of processes may do this at the same time. Every step is one script, which checks again whether
there is something to do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from app.bandits.versions import BanditVersion, StoredVersions
from app.platform.background import repeat
from app.platform.metrics import Metrics
from app.platform.pauses import Pauses
from app.rewards.decisions import DEDUPE_MARGIN_MS, defaults_of
from app.rewards.erasure import Erasure
from app.storage.store import Store
from app.storage.types import LearnerId

ROUNDS_TO_DROP = 10  # what has expired is in nobody's way: it is dropped every so many rounds
BATCH = 200
TOGETHER = 16  # learners that end side by side: the store syncs its disk once for them
LOOK_AGAIN_MS = 86_400_000


class Housekeeping:
    """Does what is due, every ``every_s``; while nothing is, half as often.

    ``wake(partition)``: called when something was appended to the log of the partition.
    """

    def __init__(
        self,
        store: Store,
        erasure: Erasure,
        metrics: Metrics,
        *,
        wake: Callable[[int], None],
        every_s: float = Pauses().housekeeping_s,
    ) -> None:
        self._every_s = every_s
        self._store = store
        self._erasure = erasure
        self._versions = StoredVersions(store)
        self._wake = wake
        self._done = metrics.housekeeping.labels
        self._rounds = 0

    async def run(self) -> None:
        """Work until cancelled. An unreachable store is waited for."""
        await repeat(
            self._round, every_s=self._every_s, idle_s=2.0 * self._every_s, waits="housekeeping waits"
        )

    async def _round(self) -> bool:
        """Do a round; return whether there was something to do."""
        deleted = await self.finish_deletions()
        now_ms = time.time_ns() // 1_000_000
        partitions = range(self._store.partitions)
        drops = self._rounds % ROUNDS_TO_DROP == 0
        swept = await asyncio.gather(
            *(self.sweep(partition, now_ms, drops=drops) for partition in partitions)
        )
        self._rounds += 1
        return deleted or any(swept)

    async def finish_deletions(self) -> bool:
        """Remove the remains of deleted catalogues and bandits; False: there were none."""
        deletions = await self._store.registry.deletions()
        for uid, kind in deletions.items():
            if kind == "bandit":
                await self._erasure.erase_bandit(uid)
            else:
                await self._store.registry.erase_catalogue(uid)
            self._done("deletions_finished").inc()
        return bool(deletions)

    async def sweep(self, partition: int, now_ms: int, *, drops: bool = True) -> bool:
        """Do all work due in a partition by ``now_ms``; False: there was none.

        ``drops``: also drop expired records.
        """
        more, did_something = True, False
        while more:
            result = await self._store.waiting.due(partition, now_ms, BATCH)
            if result.decisions:
                decisions = [decision for decision, _ in result.decisions]
                writes = defaults_of(result.decisions)
                if await self._store.waiting.append_defaults(partition, decisions, writes):
                    self._wake(partition)
                self._done("waited_for").inc(len(decisions))
            for first in range(0, len(result.idle), TOGETHER):
                versions = await self._versions.all()
                ends = (
                    self._end_of_idle(learner, versions.get(learner.bandit_uid), now_ms)
                    for learner in result.idle[first : first + TOGETHER]
                )
                await asyncio.gather(*ends)
            for learner, entry_id in result.erase.items():
                self._done("erased").inc(await self._erasure.erase(learner, entry_id))
            # a full batch: more may be due
            more = BATCH in (len(result.decisions), len(result.idle))
            did_something = did_something or bool(result.decisions or result.idle or result.erase)
        drop = partial(self._store.waiting.drop_expired, partition, margin_ms=DEDUPE_MARGIN_MS, count=BATCH)
        while drops and await drop() >= BATCH:
            pass
        return did_something

    async def _end_of_idle(self, learner: LearnerId, version: BanditVersion | None, now_ms: int) -> None:
        """Forget a learner whose idle time is over, unless its bandit gives it more time now."""
        until_ms = 0 if version is None else _lives_until(version, now_ms)
        if until_ms > now_ms:
            await self._store.side_data.touch(learner, expires_ms=until_ms)
        else:
            self._done("expired").inc(await self._erasure.expire(learner, now_ms))


def _lives_until(version: BanditVersion, now_ms: int) -> int:
    """The end of life of a learner whose time, by the ``idle_ttl_s`` of its last sign of life, has come.

    Where ``idle_ttl_s`` is unchanged or shorter the learner is idle: 0. Where longer the change counts as a
    sign of life. Without any the learner is looked at again after a day, as there may be one by then.
    """
    idle_ttl_s = version.record.idle_ttl_s
    if idle_ttl_s is None:
        return now_ms + LOOK_AGAIN_MS
    return version.idle_since_ms + round(1_000 * idle_ttl_s) if version.idle_since_ms else 0
