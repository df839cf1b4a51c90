"""Long computations are counted until they end."""

import asyncio
import threading

import pytest

from app.errors import Unavailable
from app.services.bounded.long_work import LongWork

pytestmark = pytest.mark.anyio


async def test_too_many_computations_are_turned_away_and_a_lost_client_keeps_its_place():
    work, gate = LongWork(threads=1, waiting=1), threading.Event()
    begun = threading.Event()

    def held() -> int:
        begun.set()
        assert gate.wait(10)
        return 1

    running = asyncio.create_task(work.run(held))
    await asyncio.to_thread(begun.wait)
    waiting = asyncio.create_task(work.run(lambda: 2))
    await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await work.run(lambda: 3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    with pytest.raises(Unavailable):
        await work.run(lambda: 3)
    gate.set()
    assert await waiting == 2
    assert await work.run(lambda: 4) == 4
    work.close()


async def test_a_computation_that_waits_and_is_given_up_frees_its_place():
    work, gate, begun = LongWork(threads=1, waiting=1), threading.Event(), threading.Event()

    def held() -> int:
        begun.set()
        assert gate.wait(10)
        return 1

    running = asyncio.create_task(work.run(held))
    await asyncio.to_thread(begun.wait)
    waiting = asyncio.create_task(work.run(lambda: 2))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    third = asyncio.create_task(work.run(lambda: 3))
    gate.set()
    assert (await running, await third) == (1, 3)
    work.close()


async def test_an_error_is_the_callers_and_frees_the_place():
    work = LongWork(threads=1, waiting=0)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await work.run(lambda: 1 // 0)
    work.close()
