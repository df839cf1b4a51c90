"""Waiting for a condition, with a deadline: the tests do not sleep and hope."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_S = 120.0  # on a machine that does much else; a test may take 300 s
POLL_S, LONGEST_POLL_S = 0.004, 0.05  # to look is often a request: less and less often


async def wait_until(condition: Callable[[], Awaitable[T]], *, what: str) -> T:
    """Return the first true value of ``condition``; fail after ``DEADLINE_S``."""
    deadline, pause_s = time.monotonic() + DEADLINE_S, POLL_S
    while not (value := await condition()):
        assert time.monotonic() < deadline, f"not within {DEADLINE_S:g} s: {what}"
        await asyncio.sleep(pause_s)
        pause_s = min(1.3 * pause_s, LONGEST_POLL_S)
    return value


def wait_until_sync(condition: Callable[[], T], *, what: str) -> T:
    """Return the first true value of ``condition``; fail after ``DEADLINE_S``."""
    deadline, pause_s = time.monotonic() + DEADLINE_S, POLL_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {DEADLINE_S:g} s: {what}"
        time.sleep(pause_s)
        pause_s = min(1.3 * pause_s, LONGEST_POLL_S)
    return value
