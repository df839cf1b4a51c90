"""Choices of one key one after the other.

A constraint with a memory of a key refuses a choice if another one of the key was shown meanwhile. Of many at
once all but one would then begin again, and of 64 the last one 63 times. In turn none is refused, but by
choices of other processes. Likewise of a bandit, for choices refused twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from weakref import WeakValueDictionary

from app.platform.deadlines import caller, check
from app.platform.errors import Unavailable
from app.storage.types import LearnerId

MAX_TURN_S = 5.0  # as long as one answer of the store: while it is silent, a queue must not wait for each


class Turns:
    """For one event loop. There is a lock for each key with a choice under way."""

    def __init__(self, max_wait_s: float = MAX_TURN_S) -> None:
        self._max_wait_s = max_wait_s
        self._locks: WeakValueDictionary[LearnerId, asyncio.Lock] = WeakValueDictionary()

    def of(self, key: LearnerId | None) -> AbstractAsyncContextManager[None]:
        """While held, no other choice of the key is made. Raises Unavailable, CallerLeft (while it
        waited).
        """
        return nullcontext() if key is None else self._of(key)

    @asynccontextmanager
    async def _of(self, key: LearnerId) -> AsyncIterator[None]:
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with asyncio.timeout(self._max_wait_s):
                await lock.acquire()
        except TimeoutError:
            message = "other choices of this key or bandit take too long; try again"
            raise Unavailable(message) from None
        try:
            check(caller())
            yield
        finally:
            lock.release()
