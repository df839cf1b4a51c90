"""Housekeeping: work that becomes due by the clock, or that was broken off.

Decisions whose time is over get their defaults, learners that were idle for too long are forgotten, what is
still kept of forgotten learners and of deleted bandits and catalogues is erased.

Any number of processes may do this at the same time. Every step is one script, which checks again whether
there is something to do.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

from app.errors import Unavailable
from app.services.learning.decisions import DEDUPE_MARGIN_MS, defaults_of
from app.services.learning.forgetting import Forgetting
from app.services.learning.idle_rules import IdleRules
from app.storage.protocol import DueWork, LearnerId, LearnerSideData, RegistryStore

log = logging.getLogger("shortlist.housekeeping")

EVERY_S = 1.0
BATCH = 200


class HousekeepingStore(DueWork, LearnerSideData, RegistryStore, Protocol):
    """What housekeeping need of the store."""


class Housekeeping:
    """Does what is due, again and again.

    ``wake(partition)``     is called when something was appended to the log of the partition
    ``done(kind, count)``   is told how much was done, for metrics
    """

    def __init__(
        self,
        store: HousekeepingStore,
        forgetting: Forgetting,
        *,
        wake: Callable[[int], None],
        done: Callable[[str, int], None] = lambda kind, count: None,  # noqa: ARG005
    ) -> None:
        self._store = store
        self._forgetting = forgetting
        self._idle_rules = IdleRules(store)
        self._wake = wake
        self._done = done

    async def run(self) -> None:
        """Until it is cancelled. An unreachable store is waited for."""
        while True:
            try:
                await self.finish_deletions()
                now_ms = time.time_ns() // 1_000_000
                partitions = range(self._store.partitions)
                await asyncio.gather(*(self.sweep(partition, now_ms) for partition in partitions))
            except Unavailable as error:
                log.warning("the store is not available, housekeeping wait: %s", error.detail)
            except Exception:
                log.exception("housekeeping failed, and are tried again")
            await asyncio.sleep(EVERY_S)

    async def finish_deletions(self) -> None:
        """Remove the remains of deleted catalogues and bandits."""
        for uid, kind in (await self._store.deletions()).items():
            if kind == "bandit":
                await self._forgetting.erase_bandit(uid)
            else:
                await self._store.erase_catalogue(uid)
            self._done("deletions_finished", 1)

    async def sweep(self, partition: int, now_ms: int) -> None:
        """Do everything that is due in a partition by ``now_ms``."""
        more = True
        while more:
            found = await self._store.due(partition, now_ms, BATCH)
            if found.decisions:
                decisions = [decision for decision, _ in found.decisions]
                writes = defaults_of(found.decisions)
                if await self._store.append_defaults(partition, decisions, writes):
                    self._wake(partition)
                self._done("waited_for", len(decisions))
            for learner in found.idle:
                await self._end_of_idle(learner, now_ms)
            for learner, entry_id in found.erase.items():
                self._done("erased", await self._forgetting.erase(learner, entry_id))
            more = BATCH in (len(found.decisions), len(found.idle))
        while await self._store.drop_expired(partition, margin_ms=DEDUPE_MARGIN_MS, count=BATCH) >= BATCH:
            pass

    async def _end_of_idle(self, learner: LearnerId, now_ms: int) -> None:
        """Forget a learner whose time has come, unless its bandit gives it more by now."""
        until_ms = await self._idle_rules.lives_until(learner.bandit_uid, now_ms)
        if until_ms > now_ms:
            await self._store.touch(learner, expires_ms=until_ms)
        else:
            self._done("expired", await self._forgetting.expire(learner, now_ms))
