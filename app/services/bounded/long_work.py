"""Long computations in threads, so that the event loop goes on. They are limited in number.

A computation that has begun keeps its place until it ends, whether its client has left or not. One that waits
for its turn is not begun if its client has left.

Requests never compute in the default threads of asyncio: rewards are folded there.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from app.errors import Unavailable
from app.services.bounded.caller import Caller, caller, check

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
        future = self._pool.submit(partial(_begin, work, waits))
        future.add_done_callback(self._done)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Drop the computations that wait. Those that have begun end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _done(self, _: Future[T]) -> None:
        self._places.release()


def _begin(work: Callable[[], T], waits: Caller | None) -> T:
    check(waits)
    return work()


_THREADS = max(2, min(8, os.cpu_count() or 1))  # more would keep the interpreter from the event loop
_WAITING = 256

# For what a request computes itself, up to some tenths of a second.
REQUESTS = LongWork(threads=_THREADS, waiting=_WAITING, name="requests")
# For searches that wait for another process, and take no time of this one's cores.
SEARCHES = LongWork(threads=64, waiting=1_024, name="searches")
# For what learners are made of: sums and posteriors, O(d^3).
LEARNERS = LongWork(threads=_THREADS, waiting=_WAITING, name="learners")
# For pages of the decision log, of which only so many are read at once.
MEASURING = LongWork(threads=4, waiting=_WAITING, name="measuring")
