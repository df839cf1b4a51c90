"""The worker of this process as one of several: each applies the partitions that it owns."""

from __future__ import annotations

import asyncio

from app.background import end
from app.services.replicas.remote_workers import RemoteWorkers
from app.storage.protocol import LearnerChanges
from workers.leases import Leases
from workers.reward_ingestion import RewardWorker


class SharedWorker:
    """Implements ``app.services.learning.workers.Workers``. ``start`` before use, ``stop`` afterwards.

    ``worker``   applies the partitions of this process
    ``leases``   say which these are
    ``remote``   waits for the partitions of other processes
    """

    def __init__(self, worker: RewardWorker, leases: Leases, remote: RemoteWorkers) -> None:
        self._worker = worker
        self._leases = leases
        self._remote = remote
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self._leases.renew()
        self._tasks = [asyncio.create_task(self._worker.run()), asyncio.create_task(self._leases.run())]

    async def stop(self) -> None:
        """Finish the batch at hand, and leave the rest to other workers."""
        if self._tasks:
            working, holding = self._tasks
            self._worker.stop()
            await working
            await end([holding])
            await self._leases.leave()

    def wake(self, partition: int) -> None:
        self._worker.wake(partition)

    def changed(self, partition: int, changes: LearnerChanges) -> None:
        """What a poll of the store has found in the partition."""
        if changes.newest != changes.watermark:
            self._worker.wake(partition)
        self._worker.reached(partition, changes.watermark)

    async def wait_applied(self, partition: int, entry_id: str) -> bool:
        """True once the entry is applied; False when it is not in time."""
        if self._leases.owns(partition):
            return await self._worker.wait_applied(partition, entry_id)
        return await self._remote.wait_applied(partition, entry_id)
