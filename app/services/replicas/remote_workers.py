"""Waiting for rewards that other processes apply."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable

from app.errors import Unavailable
from app.services.learning.workers import WAIT_S
from app.storage.protocol import LearnerChanges, entry_order

POLL_S = 0.005


class RemoteWorkers:
    """Rewards are applied by other processes. They need no waking; the watermark tells how far they are.

    ``sync`` makes known here what was applied in a partition, and returns its watermark.
    """

    def __init__(self, sync: Callable[[int], Awaitable[LearnerChanges]]) -> None:
        self._sync = sync
        self._reached: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self._polling: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    def wake(self, partition: int) -> None:
        """Do nothing: other processes poll their logs."""

    async def wait_applied(self, partition: int, entry_id: str) -> bool:
        """True once the entry is applied, False after ``WAIT_S``. Waiters of a partition share its polls."""
        try:
            async with asyncio.timeout(WAIT_S):
                while self._reached[partition] < entry_order(entry_id):
                    async with self._polling[partition]:
                        if self._reached[partition] < entry_order(entry_id):
                            await asyncio.sleep(POLL_S)
                            watermark = (await self._sync(partition)).watermark
                            self._reached[partition] = entry_order(watermark)
        except (TimeoutError, Unavailable):
            return False
        return True
