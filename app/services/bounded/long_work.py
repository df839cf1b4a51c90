"""Long computations in threads, so that the event loop goes on. They are limited in number.

A client that disconnects does not stop a computation that has begun: it keeps its place until it ends.
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
    """``threads`` computations run at a time, ``waiting`` others wait for their turn, more are refused."""

    def __init__(self, *, threads: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="long-work")
        self._places = threading.BoundedSemaphore(threads + waiting)

    async def run(self, work: Callable[[], T]) -> T:
        """Return ``work()``, called in a thread. Raises Unavailable at once when all places are taken."""
        if not self._places.acquire(blocking=False):
            raise Unavailable("too many long computations at once; try again soon")
        future = self._pool.submit(work)
        future.add_done_callback(self._done)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Drop the computations that wait. Those that have begun end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _done(self, _: Future[T]) -> None:
        self._places.release()
