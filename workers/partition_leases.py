"""Leases of workers: each partition is folded by one of them.

    >>> # workers a, b and c hold a lease; partitions 0..15
    >>> # a: 0, 3, 6, ...   b: 1, 4, 7, ...   c: 2, 5, 8, ...

A lease is renewed every quarter of its time. A killed or paused worker loses its lease when the time is over,
and the others share its partitions. For a while workers may not agree, and a partition may be folded by two
of them or by none. The watermark keeps the results right, and the next renewals end the disagreement.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from app.platform.background import end, repeat
from app.platform.errors import Unavailable
from app.replication.sync import RemoteWorkers
from app.storage.store import Store
from app.storage.types import LearnerChanges
from workers.reward_ingestion import RewardWorker

log = logging.getLogger("shortlist.worker")

RENEWALS = 4
# Shorter, and a busy worker with late renewals loses its partitions; longer, and the partitions of a killed
# one wait longer.
LEASE_S = 2.0


class Leases:
    """The lease of the worker ``name``, for ``LEASE_S`` seconds at a time."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self.owned: frozenset[int] = frozenset()

    def owns(self, partition: int) -> bool:
        return partition in self.owned

    async def run(self) -> None:
        """Hold the lease until cancelled. While the store does not answer, the partitions stay the same."""
        await repeat(self.renew, every_s=LEASE_S / RENEWALS)

    async def renew(self) -> None:
        """Renew the lease, and find out which partitions are this worker's. Raises Unavailable."""
        names = sorted(await self._store.leases.join(self._name, round(1_000 * LEASE_S)))
        # All workers sort the same names, so they agree without asking each other. Where they have read
        # different lists, two may apply one partition for a moment: only one of them can move the watermark.
        mine = names.index(self._name)
        owned = frozenset(range(mine, self._store.partitions, len(names)))
        if owned != self.owned:
            self.owned = owned
            log.info("%d workers; this one has partitions %s", len(names), sorted(owned))

    async def leave(self) -> None:
        """Leave all partitions to the other workers, at once."""
        self.owned = frozenset()
        with contextlib.suppress(Unavailable):
            await self._store.leases.leave(self._name)


class OnlyWorker:
    """In place of ``Leases`` where there can be no other worker: it has every partition, without a lease."""

    def owns(self, partition: int) -> bool:  # noqa: ARG002 - as ``Leases`` asks it
        return True

    async def run(self) -> None:
        """There is nothing to hold."""

    async def renew(self) -> None:
        """There is nothing to find out."""

    async def leave(self) -> None:
        """Nobody is there to leave the partitions to."""


class SharedWorker:
    """Implements ``app.fold.checkpoints.Workers``. ``start`` before use, ``stop`` afterwards.

    ``worker``   applies the partitions of this process
    ``leases``   say which these are
    ``remote``   waits for the partitions of other processes
    """

    def __init__(self, worker: RewardWorker, leases: Leases | OnlyWorker, remote: RemoteWorkers) -> None:
        self._worker = worker
        self.leases = leases
        self._remote = remote
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self.leases.renew()
        self._tasks = [asyncio.create_task(self._worker.run()), asyncio.create_task(self.leases.run())]

    async def stop(self) -> None:
        """Finish the current batch, and leave the rest to other workers."""
        if self._tasks:
            working, holding = self._tasks
            self._worker.stop()
            await working
            await end([holding])
            # after the last batch, else another worker folds the same entries for nothing
            await self.leases.leave()

    def wake(self, partition: int) -> None:
        self._worker.wake(partition)

    def changed(self, partition: int, changes: LearnerChanges) -> None:
        """Take the changes found by a poll of the store in the partition."""
        # Unfolded entries: ``owns`` says who folds them.
        if changes.newest != changes.watermark:
            self._worker.wake(partition)
        self._worker.reached(partition, changes.watermark)

    async def wait_applied(self, partition: int, entry_id: str) -> bool:
        """True once the entry is applied; False when it is not in time."""
        if self.leases.owns(partition):
            return await self._worker.wait_applied(partition, entry_id)
        return await self._remote.wait_applied(partition, entry_id)
