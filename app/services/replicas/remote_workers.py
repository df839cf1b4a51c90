"""Waiting for rewards that other processes apply."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable

from app.errors import Unavailable
from app.services.learning.rewards import WAIT_S, entry_order
from app.storage.changes import LearnerChanges

POLL_S = 0.005


class RemoteWorkers:
    """Rewards are applied by other processes: nothing to wake, and the watermark tells when it is done.

    ``follow`` gives the watermark of a partition, after making what was applied known here.
    """

    def __init__(self, follow: Callable[[int], Awaitable[LearnerChanges]]) -> None:
        self._follow = follow
        self._reached: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self._looking: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    def wake(self, partition: int) -> None:
        """Workers look by themselves."""

    async def wait_applied(self, partition: int, entry_id: str) -> bool:
        """One of all who wait for a partition looks at it, again and again."""
        try:
            async with asyncio.timeout(WAIT_S):
                while self._reached[partition] < entry_order(entry_id):
                    async with self._looking[partition]:
                        if self._reached[partition] < entry_order(entry_id):
                            await asyncio.sleep(POLL_S)
                            watermark = (await self._follow(partition)).watermark
                            self._reached[partition] = entry_order(watermark)
        except (TimeoutError, Unavailable):
            return False
        return True
