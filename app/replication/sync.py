"""Keeps this process in step with the others by polling the store; waits for rewards applied by other
workers.

A poll asks for the current versions and reads the changes since the last poll, of catalogues, bandits,
learners, priors, effects and quotas. Polls are made every ``every_s``; while nothing changes and nobody
chooses, the pauses double up to ``IDLE_S``. A caller may ask for a poll in between: one with a need of
something missing here, and one at a process without a poll for ``BOUND_S``, since it was paused or the store
was away. Nothing is pushed to a process, so a cut-off one needs no repair: its next poll brings everything.
If more has changed than the store's logs of changes hold, everything is read again.

``RemoteWorkers`` stands for the workers of other processes, where this one folds no rewards itself.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field

from app.bandits.served_bandits import Bandits
from app.catalogues.catalogue import Catalogue
from app.catalogues.catalogues import Catalogues
from app.exposure_limits.quotas import Quotas
from app.learners.learned_priors import LearnedPriors
from app.learners.learners import Learners
from app.learners.served_effects import ServedEffects
from app.platform.background import OUTAGES
from app.platform.deadlines import call_began, task_for_all
from app.platform.errors import Unavailable
from app.platform.pauses import Pauses
from app.storage.store import Store
from app.storage.types import LearnerChanges, entry_order

POLL_S = 0.005
log = logging.getLogger("shortlist.sync")
BOUND_S = 1.0
PATIENCE_S = 0.2
NEWS_S = 5.0  # without an answer by then nobody knows whether what is asked for exists
EVERY_S = 0.1  # five are sooner than half a second, which is promised; more often, and polls cost the store
IDLE_S = 0.25  # half of what is promised: a poll, and a busy machine, take time too

LearnersChanged = Callable[[int, LearnerChanges], None]
"""Is told what was written to the learners of a partition: workers and caches are to know of it."""


class RemoteWorkers:
    """Rewards are applied by other processes. They need no waking; the watermark tells how far they are.

    ``learners`` here takes over their states, and ``learners_changed`` is called.
    """

    def __init__(
        self, learners: Learners, learners_changed: LearnersChanged, *, wait_s: float = Pauses().applied_s
    ) -> None:
        self._learners = learners
        self._wait_s = wait_s
        self._learners_changed = learners_changed
        self._reached: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self._polling: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    def wake(self, partition: int) -> None:
        """Do nothing: other processes poll their logs."""

    async def sync(self, partition: int) -> LearnerChanges:
        """Take over what others have written to the learners of a partition. Raises Unavailable."""
        changes = (await self._learners.sync([partition]))[partition]
        self._learners_changed(partition, changes)
        return changes

    async def wait_applied(self, partition: int, entry_id: str) -> bool:
        """True once the entry is applied, False after ``wait_s``. Waiters of a partition share its polls."""
        try:
            async with asyncio.timeout(self._wait_s):
                while self._reached[partition] < entry_order(entry_id):
                    async with self._polling[partition]:
                        # Looked at again: the holder of the lock may have found the entry.
                        if self._reached[partition] < entry_order(entry_id):
                            await asyncio.sleep(POLL_S)
                            watermark = (await self.sync(partition)).watermark
                            self._reached[partition] = entry_order(watermark)
        except (TimeoutError, Unavailable):
            return False
        return True


@dataclass(slots=True, kw_only=True, eq=False)
class Sync:
    """Polls. Every poll calls ``learners_changed`` for every partition.

    ``confirmed_at``    the beginning of the last finished poll
    ``_began``          when the last poll began
    ``_is_quiet``       nothing has changed and nobody has asked since the last poll
    """

    store: Store
    catalogues: Catalogues
    bandits: Bandits
    learners: Learners
    quotas: Quotas
    priors: LearnedPriors
    effects: ServedEffects
    learners_changed: LearnersChanged
    every_s: float = EVERY_S
    confirmed_at: float = -math.inf
    is_failing: bool = False
    _began: float = -math.inf
    _is_quiet: bool = False
    _pause_s: float = 0.0
    _made_at: float = field(default_factory=time.monotonic)
    _registry_version: int = -1
    _polling: asyncio.Lock = field(default_factory=asyncio.Lock)

    def stale_s(self) -> float:
        """Seconds since this process was last known to be in step; 0 for up to ``BOUND_S``."""
        # A choice asks, so changes matter to somebody.
        self._is_quiet = False
        age = time.monotonic() - self.confirmed_at
        return age if age > BOUND_S else 0.0

    def confirmed_s(self) -> float:
        """When this process was last known to be in step, or was made, in seconds since 1970."""
        return time.time() - (time.monotonic() - max(self.confirmed_at, self._made_at))

    async def run(self) -> None:
        """Poll again and again, until cancelled."""
        while True:
            await asyncio.sleep(self.next_pause_s())
            try:
                await self.poll()
            except Unavailable as error:
                OUTAGES.warn("changes by other processes are not seen", error)
                self.is_failing = True
            except Exception:
                log.exception("a poll of the store failed")
                self.is_failing = True

    def next_pause_s(self) -> float:
        """The pause until the next poll."""
        longest_s = max(IDLE_S, self.every_s)
        self._pause_s = min(2.0 * self._pause_s, longest_s) if self._is_quiet else self.every_s
        self._is_quiet = True
        return self._pause_s

    async def poll(self) -> None:
        """Return after a poll that began after this call; callers share polls. Raises Unavailable."""
        asked = time.monotonic()
        async with self._polling:
            # A poll begun before the call may have read the store before the awaited write.
            if self._began < asked:
                await self._poll()

    async def confirm(self, patience_s: float = PATIENCE_S) -> float:
        """Poll for at most ``patience_s`` and return ``stale_s``. While polls fail, return at once."""
        if not self.is_failing:
            # A task of its own: after the patience of this caller the poll goes on, and the next caller finds
            # its result.
            task = task_for_all(self.poll())
            await asyncio.wait({task}, timeout=patience_s)
            self.is_failing = bool(self.stale_s())
        return self.stale_s()

    async def poll_for_news(self) -> bool:
        """Poll for something made before this call, and missing here: at most once a call.

        False when the store does not answer within ``NEWS_S``.
        """
        return await self._poll_since(call_began())

    async def poll_now(self) -> bool:
        """As ``poll_for_news``, for what may have been made during the call: always by a poll of its own."""
        return await self._poll_since(time.monotonic())

    async def _poll_since(self, asked: float) -> bool:
        # a poll begun after the request would have brought anything which exists
        if self.confirmed_at < asked and not self.is_failing:
            await self.confirm(NEWS_S)
        return self.confirmed_at >= asked

    async def missing(self, catalogue: Catalogue, ids: Sequence[str]) -> Collection[str]:
        """The missing ones of some arms. Arms just written by another process count as present."""
        return set(ids) - (await self.catalogues.features(catalogue, set(ids))).keys()

    async def _poll(self) -> None:
        self._began = began = time.monotonic()
        # In one exchange with the store.
        await _all(
            self._sync_registry(),
            self._sync_learners(),
            self.priors.sync(),
            self.effects.sync(),
            self.quotas.poll(self.bandits),
        )
        # After the registry: catalogues just made are among them.
        await _all(*map(self.catalogues.sync, await self.catalogues.behind()))
        # From its begin on: writes during the poll may be missing.
        self.confirmed_at, self.is_failing = began, False

    async def _sync_registry(self) -> None:
        if await self.store.registry.version() == self._registry_version:
            return
        self._is_quiet = False
        # Nobody here creates or deletes meanwhile: the registry as read would miss such a change, and undo
        # it.
        async with self.catalogues.changing, self.bandits.changing:
            registry = await self.store.registry.read()
            await self.catalogues.replace(registry.catalogues)
            self.bandits.replace(registry.bandits)
        await self.quotas.replace(registry.quotas)
        # Last: what failed on the way is done again at the next poll.
        self._registry_version = registry.version

    async def _sync_learners(self) -> None:
        for partition, changes in (await self.learners.sync(range(self.store.partitions))).items():
            if changes.learners is None or len(changes.learners):
                self._is_quiet = False
            self.learners_changed(partition, changes)


async def _all(*work: Awaitable[None]) -> None:
    """Return when all work has ended, or raise the first failure."""
    for failure in filter(None, await asyncio.gather(*work, return_exceptions=True)):
        raise failure
