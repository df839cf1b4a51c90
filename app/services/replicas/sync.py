"""Following what other processes do: catalogues, bandits and learners, by the store's change logs.

A look asks for the version of everything at once, and reads what has changed since the last look. It is done
every ``every_s``, and when somebody must know more: who was asked for what is not there, and who was paused
and has not looked for ``BOUND_S``. Nothing is pushed, so a process that was cut off needs no repair: its next
look brings everything. Where more has changed than the logs hold, everything is read.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from app.errors import Unavailable
from app.services.bandits.bandits import Bandits
from app.services.catalogues.catalogues import Catalogues
from app.services.learning.learners import Learners
from app.storage.changes import LearnerChanges
from app.storage.protocol import Store

log = logging.getLogger("shortlist.following")

BOUND_S = 1.0
PATIENCE_S = 0.2


class Following:
    """``moved`` is told of every partition, at every look."""

    def __init__(
        self,
        store: Store,
        catalogues: Catalogues,
        bandits: Bandits,
        learners: Learners,
        *,
        every_s: float,
        moved: Callable[[int, LearnerChanges], None],
    ) -> None:
        self._store = store
        self._catalogues = catalogues
        self._bandits = bandits
        self._learners = learners
        self._every_s = every_s
        self._moved = moved
        self._registry_version = -1
        self._looking = asyncio.Lock()
        self._began = self._confirmed = -float("inf")
        self._in_vain = False

    def stale_s(self) -> float:
        """For how long nothing was heard of other processes; 0 within ``BOUND_S``."""
        age = time.monotonic() - self._confirmed
        return age if age > BOUND_S else 0.0

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self.look()
            except Unavailable as error:
                if not self._in_vain:
                    log.warning("the store is not available, nothing is heard of others: %s", error.detail)
                self._in_vain = True
            except Exception:
                log.exception("a look at the store failed")
                self._in_vain = True

    async def look(self) -> None:
        """Return after a look that began after this call. Raises Unavailable."""
        asked = time.monotonic()
        async with self._looking:
            if self._began < asked:
                await self._look()

    async def confirm(self, patience_s: float = PATIENCE_S) -> float:
        """As ``stale_s``, after a look, unless it takes longer than that, or the last ones were in vain."""
        if not self._in_vain:
            task = asyncio.ensure_future(self.look())
            task.add_done_callback(_consume)
            await asyncio.wait({task}, timeout=patience_s)
            self._in_vain = bool(self.stale_s())
        return self.stale_s()

    async def look_further(self) -> bool:
        """A look for what is not here; False when that takes too long."""
        return not self._in_vain and not await self.confirm(BOUND_S)

    async def _look(self) -> None:
        self._began = began = time.monotonic()
        await self._follow_registry()
        outcomes = await asyncio.gather(
            *map(self._catalogues.follow, self._catalogues),
            *map(self._follow_log, range(self._store.partitions)),
            return_exceptions=True,
        )
        for failure in filter(None, outcomes):
            raise failure
        self._confirmed, self._in_vain = began, False

    async def _follow_registry(self) -> None:
        if await self._store.registry_version() == self._registry_version:
            return
        async with self._catalogues.changing, self._bandits.changing:
            registry = await self._store.registry()
            await self._catalogues.replace(registry.catalogues)
            self._bandits.replace(registry.bandits)
        self._registry_version = registry.version

    async def _follow_log(self, partition: int) -> None:
        self._moved(partition, await self._learners.follow(partition))


def _consume(task: asyncio.Future[None]) -> None:
    """A look that failed is tried again soon; say nothing here."""
    if not task.cancelled():
        task.exception()
