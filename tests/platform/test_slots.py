"""Slots: so many at a time, the next ones wait, more are refused."""

from __future__ import annotations

import asyncio

import pytest

from app.platform.errors import Unavailable
from app.platform.long_work import Slots


@pytest.mark.anyio
async def test_some_run_some_wait_and_more_are_refused():
    places, goes_on, running = Slots("reports", running=2, waiting=3), asyncio.Event(), 0

    async def hold() -> None:
        nonlocal running
        async with places.one():
            running += 1
            try:
                await goes_on.wait()
            finally:
                running -= 1

    tasks = [asyncio.create_task(hold()) for _ in range(5)]
    await asyncio.sleep(0)
    assert running == 2
    with pytest.raises(Unavailable, match="too many reports"):
        await hold()
    tasks[4].cancel()
    await asyncio.gather(tasks[4], return_exceptions=True)
    tasks[4] = asyncio.create_task(hold())  # the place of one that left is free
    tasks[0].cancel()
    await asyncio.gather(tasks[0], return_exceptions=True)
    await asyncio.sleep(0)
    assert running == 2
    goes_on.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert running == 0
    await hold()
