"""A budget of memory that tasks share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Budget:
    """Tasks take a part of ``total`` for a while. One that wants more than there is waits.

    One that wants more than all takes all, so it runs alone.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._left = total
        self._given_back = asyncio.Condition()

    @asynccontextmanager
    async def taken(self, amount: int) -> AsyncIterator[None]:
        """Hold ``amount`` inside of the block."""
        amount = min(amount, self._total)
        async with self._given_back:
            await self._given_back.wait_for(lambda: self._left >= amount)
            self._left -= amount
        try:
            yield
        finally:
            self._left += amount
            async with self._given_back:
                self._given_back.notify_all()
