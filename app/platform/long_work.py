"""Long computations in threads, and mostly waiting work in the event loop. All are limited in number.

A computation in a thread lets the event loop go on. A begun computation keeps its place until it ends,
whether its client has left or not; a waiting one is not begun if its client has left. Beyond the limit
requests get an error at once, not a place in a queue without end. Requests never compute in the default
threads of asyncio: rewards are folded there, and a few long requests would stop the fold.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from app.platform.deadlines import caller, check
from app.platform.errors import Unavailable

T = TypeVar("T")


class LongWork:
    """``threads`` computations run at a time, ``waiting`` others wait for their turn, more are refused."""

    def __init__(self, *, threads: int, waiting: int, name: str = "long-work") -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._places = threading.BoundedSemaphore(threads + waiting)

    async def run(self, work: Callable[[], T]) -> T:
        """Return ``work()``, called in a thread.

        Raises Unavailable at once when all places are taken, CallerLeft if it was not begun.
        """
        waits = caller()
        check(waits)
        if not self._places.acquire(blocking=False):
            raise Unavailable("too many long computations at once; try again soon")

        def begin() -> T:
            check(waits)
            try:
                return work()
            except StopIteration as error:  # asyncio hands it to nobody: the caller would wait for ever
                raise RuntimeError("a computation raised StopIteration") from error

        future = self._pool.submit(begin)
        # Released when the thread ends, not when the caller leaves: the core is busy until then.
        future.add_done_callback(lambda _: self._places.release())
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Drop the waiting computations. Begun ones end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)


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
        # Counted apart from the semaphore, which would let any number wait.
        if not self._left:
            raise Unavailable(f"too many {self._what} at once; try again soon")
        self._left -= 1
        try:
            async with self._free:
                yield
        finally:
            self._left += 1
