"""Slots for work that takes long and mostly waits, so that little of it is done at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.errors import Unavailable


class Slots:
    """``running`` tasks hold a place at a time, ``waiting`` others wait for one, more are refused.

    ``what``: what is done there, for the error: "reports".
    """

    def __init__(self, what: str, *, running: int, waiting: int) -> None:
        self._what = what
        self._free = asyncio.Semaphore(running)
        self._left = running + waiting

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Hold a place inside of the block. Raises Unavailable at once when nobody else may wait."""
        if not self._left:
            raise Unavailable(f"too many {self._what} at once; try again soon")
        self._left -= 1
        try:
            async with self._free:
                yield
        finally:
            self._left += 1
