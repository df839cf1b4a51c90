"""Tasks that run as long as the service: how they are repeated and stopped, and how the process ends."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NoReturn

from app.platform.errors import Unavailable

log = logging.getLogger("shortlist.background")

PATIENCE_S = 1.0
LONGEST_REST_S = 0.2
WARN_EVERY_S = 60.0


class BackgroundWork(ABC):
    """Work that a process does from the start of the service until its end."""

    @abstractmethod
    async def run(self) -> None:
        """Work until cancelled. An error ends the work: ``repeat`` logs errors, and goes on."""


class OutageLog:
    """Warnings that the store is not available: the first one at once, then one a minute with a count.

    A dozen kinds of work wait for the store, each in a loop of its own.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said_at = -math.inf
        self._unsaid = 0

    def warn(self, waits: str, error: Unavailable) -> None:
        """``waits``: what waits, or is not done, meanwhile."""
        clock_s = self._clock()
        if clock_s - self._said_at < WARN_EVERY_S:
            self._unsaid += 1
            return
        count = f" ({self._unsaid:,} more such warnings since the last one)" if self._unsaid else ""
        log.warning("the store is not available, %s: %s%s", waits, error.detail, count)
        self._said_at, self._unsaid = clock_s, 0


OUTAGES = OutageLog()


async def repeat(
    work: Callable[[], Awaitable[object]],
    *,
    every_s: float,
    waits: str | None = None,
    idle_s: float | None = None,
) -> None:
    """Do ``work`` again and again until cancelled, with a rest of ``every_s``; a failure is logged.

    ``waits``: what waits while the store does not answer, for the log. None: others say so.
    ``idle_s``: while ``work`` answers False, for there was nothing to do, the rests double up to this.
    """
    rest_s = every_s
    while True:
        try:
            # Only False: work that returns nothing, or a count, is not taken for idle.
            idle = await work() is False
            rest_s = min(2.0 * rest_s, idle_s) if idle and idle_s else every_s
        except Unavailable as error:
            if waits is not None:
                OUTAGES.warn(waits, error)
        except Exception:
            log.exception("work in the background failed, and is tried again")
        await asyncio.sleep(rest_s)


class Pace:
    """Keeps a long job to a ``share`` of the time: requests come between its parts.

    >>> # pace = Pace(0.25)
    >>> # for part in parts:
    >>> #     await work(part)      # 10 ms
    >>> #     await pace.rest()     # 30 ms
    """

    def __init__(self, share: float) -> None:
        self._rests = 1.0 / share - 1.0
        self._began = time.monotonic()

    async def rest(self) -> None:
        """Wait after each part, in proportion to its duration."""
        # By the clock, not by processor time: where the store is slow, it is busy with this part too.
        await asyncio.sleep(min(self._rests * (time.monotonic() - self._began), LONGEST_REST_S))
        self._began = time.monotonic()


async def end(tasks: Iterable[asyncio.Task[Any]], patience_s: float = PATIENCE_S) -> None:
    """Cancel tasks and return once all have ended.

    A cancellation can get lost: in ``asyncio.wait_for`` of Python 3.11, or in ``asyncio.gather`` where one of
    the tasks fails at the same moment. So tasks are cancelled again, every ``patience_s``.
    """
    running = {task for task in tasks if not task.done()}
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=patience_s)


def leave() -> NoReturn:
    """End the process with status 0, without a wait for other threads.

    One of them may be inside a library in C++. Should it come back while the interpreter is taken down,
    Python ends the thread by unwinding its stack, which C++ answers with SIGABRT.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
