"""Long computations beside the event loop: a few at a time, and a few that wait; more are turned away.

A client that leaves does not stop a computation that has begun, so places are counted by computations.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from app.errors import Unavailable

T = TypeVar("T")


class LongWork:
    """``threads`` computations run, ``waiting`` others wait for their turn."""

    def __init__(self, *, threads: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="long-work")
        self._places = threading.BoundedSemaphore(threads + waiting)

    async def run(self, work: Callable[[], T]) -> T:
        """Return ``work()``. Raises Unavailable at once when all places are taken."""
        if not self._places.acquire(blocking=False):
            raise Unavailable("too many long computations at once; try again soon")
        future = self._pool.submit(work)
        future.add_done_callback(self._done)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Drop what waits; what has begun ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _done(self, _: Future[T]) -> None:
        self._places.release()
