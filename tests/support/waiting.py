"""Waiting for a condition, with a deadline: the tests do not sleep and hope."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_S = 60.0
POLL_S = 0.005


async def wait_until(condition: Callable[[], Awaitable[T]], *, what: str) -> T:
    """Return the first true value of ``condition``; fail after ``DEADLINE_S``."""
    deadline = time.monotonic() + DEADLINE_S
    while not (value := await condition()):
        assert time.monotonic() < deadline, f"not within {DEADLINE_S:g} s: {what}"
        await asyncio.sleep(POLL_S)
    return value


def wait_until_sync(condition: Callable[[], T], *, what: str) -> T:
    """Return the first true value of ``condition``; fail after ``DEADLINE_S``."""
    deadline = time.monotonic() + DEADLINE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {DEADLINE_S:g} s: {what}"
        time.sleep(POLL_S)
    return value
