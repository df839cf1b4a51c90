"""Long computations are counted until they end; functions that wait do so in the event loop."""

import asyncio
import threading

import pytest

from app.platform.deadlines import Caller, CallerLeft, set_caller, task_for_all
from app.platform.errors import Unavailable
from app.platform.long_work import LongWork

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


@pytest.mark.rest
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


@pytest.mark.rest
async def test_an_error_is_the_callers_and_frees_the_place():
    work = LongWork(threads=1, waiting=0)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await work.run(lambda: 1 // 0)
    with pytest.raises(RuntimeError, match="StopIteration"):  # which no future of asyncio takes
        await work.run(lambda: next(iter(())))
    work.close()


async def test_what_waits_is_not_begun_once_its_caller_has_left():
    work, gate, begun = LongWork(threads=1, waiting=2), threading.Event(), threading.Event()
    done: list[str] = []

    def held() -> None:
        begun.set()
        assert gate.wait(10)
        done.append("held")

    caller = Caller()

    async def asked(name: str, by: Caller | None) -> None:
        set_caller(by)
        await work.run(lambda: done.append(name))

    set_caller(caller)
    running = asyncio.create_task(work.run(held))
    await asyncio.to_thread(begun.wait)
    left = asyncio.create_task(asked("of one who left", caller))
    stays = asyncio.create_task(asked("of one who stays", Caller()))
    await asyncio.sleep(0)
    caller.left = True
    gate.set()
    await running  # what was begun goes on
    with pytest.raises(CallerLeft):
        await left
    await stays
    with pytest.raises(CallerLeft):  # and takes no place
        await work.run(lambda: done.append("later"))
    assert done == ["held", "of one who stays"]
    work.close()


@pytest.mark.rest
async def test_what_several_wait_for_goes_on_when_the_first_one_leaves():
    work, caller = LongWork(threads=1, waiting=0), Caller()
    set_caller(caller)
    task = task_for_all(work.run(lambda: 1))
    caller.left = True
    assert await task == 1
    work.close()
