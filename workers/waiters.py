"""Who waits for which entry of the reward log to be applied."""

from __future__ import annotations

import asyncio

from app.storage.types import entry_order


class Waiters:
    """Callers that wait, by partition."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[tuple[tuple[int, int], asyncio.Future[bool]]]] = {}

    @property
    def any(self) -> bool:
        """Whether there are some."""
        return bool(self._waiting)

    async def wait(self, partition: int, entry_id: str, timeout_s: float) -> bool:
        """True once ``reached`` says so; False when it does not within ``timeout_s``."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(partition, []).append((entry_order(entry_id), future))
        try:
            return await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            return False

    def reached(self, partition: int, watermark: str) -> None:
        """The watermark of the partition is here now: calls that wait for an entry up to it return."""
        if partition not in self._waiting:
            return
        order = entry_order(watermark)
        waiting = []
        for wanted, future in self._waiting.pop(partition):
            if wanted > order:
                waiting.append((wanted, future))
            elif not future.done():
                future.set_result(True)
        if waiting:
            self._waiting[partition] = [item for item in waiting if not item[1].done()]
