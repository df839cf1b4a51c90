"""The reward worker: folds the reward log into the learners.

    >>> # one partition, whose watermark is entry 7-0, gets two more rewards for one learner
    >>> # read_log(after 7-0)      -> entries 8-0, 9-0
    >>> # states(learner)          -> version 5
    >>> # fold                     -> version 7
    >>> # apply(expected 7-0, watermark 9-0, states)  -> True: both states and watermark moved, or neither

Each entry takes effect exactly once. A crash before ``apply`` changes nothing. A second worker that was
faster makes ``apply`` false, and the entries are read again after the new watermark. A watermark that this
worker has not set was set by another one, or by a call of its own whose reply was lost: then whoever caches
states has to sync (``resync``). An entry that cannot be folded becomes a dead letter in the same step.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.errors import Unavailable
from app.services.learning.fold import learners_of
from app.services.learning.workers import WAIT_S
from app.storage.protocol import LearnerStates, LogEntry, RewardLog, entry_order
from workers.batches import Folded, States, Stored, batches, fold_stored, is_short
from workers.waiters import Waiters

log = logging.getLogger("shortlist.worker")

BATCH = 500
RETRY_S = 0.2
TRIM_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Step:
    """What one ``apply`` has done to a partition, between two watermarks."""

    partition: int
    before: str
    after: str
    states: States
    entries: int


class WorkerStore(RewardLog, LearnerStates, Protocol):
    """What the worker needs of the store."""


class RewardWorker:
    """Applies rewards of every partition as soon as it is woken, and every ``poll_s`` without being woken.

    ``applied(step)``      is called after each step
    ``resync(partition)``  is awaited when the watermark is not where this worker left it, and at its start
    ``reward_log_s``       for how long applied entries stay in the log
    ``owns(partition)``    whether to apply a partition; the others are left to other workers (``leases``).
                           That saves work: what keeps two from applying the same is the watermark alone
    """

    def __init__(
        self,
        store: WorkerStore,
        *,
        applied: Callable[[Step], None],
        resync: Callable[[int], Awaitable[object]],
        poll_s: float,
        reward_log_s: int,
        owns: Callable[[int], bool] = lambda partition: True,  # noqa: ARG005
    ) -> None:
        self._store = store
        self._applied = applied
        self._resync = resync
        self._poll_s = poll_s
        self._reward_log_s = reward_log_s
        self._owns = owns
        self._awake = asyncio.Event()
        self._folding = asyncio.Lock()
        self._due = set(range(store.partitions))
        self._watermarks: dict[int, str] = {}
        self._waiters = Waiters()
        self._stopping = False

    def wake(self, partition: int) -> None:
        """There is something new in the log of this partition."""
        self._due.add(partition)
        self._awake.set()

    def stop(self) -> None:
        """Finish the batch at hand, then return from ``run``."""
        self._stopping = True
        self._awake.set()

    async def wait_applied(self, partition: int, entry_id: str) -> bool:
        """True once the entry is applied; False when it is not within ``WAIT_S``."""
        if entry_order(self._watermarks.get(partition, "0-0")) >= entry_order(entry_id):
            return True
        return await self._waiters.wait(partition, entry_id, WAIT_S)

    async def run(self) -> None:
        """Work until ``stop``. An unreachable store is waited for."""
        trimmed = time.monotonic()
        while not self._stopping:
            try:
                await self.drain()
                if time.monotonic() - trimmed > TRIM_EVERY_S:
                    trimmed = time.monotonic()
                    await self._trim()
            except Unavailable as error:
                log.warning("the store is not available, rewards wait: %s", error.detail)
                self._due.update(range(self._store.partitions))
                await asyncio.sleep(RETRY_S)
                continue
            await self._wait_for_work()

    async def drain(self) -> None:
        """Apply everything that is in the log of the partitions that are due, all of them side by side."""
        while self._due and not self._stopping:
            due, self._due = set(filter(self._owns, self._due)), set()
            outcomes = await asyncio.gather(*map(self._try_to_advance, due), return_exceptions=True)
            for failure in filter(None, outcomes):
                raise failure

    async def _try_to_advance(self, partition: int) -> None:
        try:
            await self._advance(partition)
        except Unavailable:
            raise
        except Exception:  # the other partitions go on; this one is tried again after the next poll
            log.exception("the reward log of partition %d cannot be applied", partition)

    async def _advance(self, partition: int) -> None:
        """Apply what comes next in a partition; it stays due while there may be more."""
        watermark, entries = await self._read(partition)
        self._note_watermark(partition, watermark)
        for batch in batches(entries):
            if not await self._apply(partition, watermark, batch):
                self._due.add(partition)
                return
            watermark = batch[-1].entry_id
            self._note_watermark(partition, watermark)
        if len(entries) == BATCH:
            self._due.add(partition)

    async def _apply(self, partition: int, watermark: str, entries: Sequence[LogEntry]) -> bool:
        """False if the watermark is not ``watermark`` any more: nothing was applied."""
        learners = learners_of(entries)
        stored = await self._store.states(partition, learners)
        done = await self._fold(dict(zip(learners, stored, strict=True)), entries)
        last = entries[-1].entry_id
        applied = await self._store.apply(
            partition, expected=watermark, watermark=last, states=done.stored, dead=done.dead
        )
        if applied:
            self._applied(Step(partition, watermark, last, done.states, len(entries)))
        return applied

    async def _read(self, partition: int) -> tuple[str, Sequence[LogEntry]]:
        """The watermark, and the entries after it: read together, if this worker was the last to set it."""
        known = self._watermarks.get(partition, "0-0")
        watermark, entries = await asyncio.gather(
            self._store.watermark(partition), self._store.read_log(partition, known, BATCH)
        )
        if partition not in self._watermarks or watermark != known:
            await self._resync(partition)
        if watermark != known:
            entries = await self._store.read_log(partition, watermark, BATCH)
        return watermark, entries

    async def _fold(self, before: Stored, entries: Sequence[LogEntry]) -> Folded:
        """One partition at a time: several threads would keep requests from the interpreter."""
        async with self._folding:
            if not is_short(entries):
                return await asyncio.to_thread(fold_stored, before, entries)
            await asyncio.sleep(0)  # requests come between the folds of two partitions
            return fold_stored(before, entries)

    def _note_watermark(self, partition: int, watermark: str) -> None:
        self._watermarks[partition] = watermark
        self.reached(partition, watermark)

    async def _wait_for_work(self) -> None:
        self._awake.clear()
        if self._due or self._stopping:
            return
        try:
            await asyncio.wait_for(self._awake.wait(), self._poll_s)
        except TimeoutError:
            self._due.update(range(self._store.partitions))

    def reached(self, partition: int, watermark: str) -> None:
        """Whoever waits for an entry up to there need not wait any longer, whoever applied it."""
        self._waiters.reached(partition, watermark)

    async def _trim(self) -> None:
        before_ms = time.time_ns() // 1_000_000 - 1_000 * self._reward_log_s
        for partition in range(self._store.partitions):
            await self._store.trim_log(partition, before_ms)
