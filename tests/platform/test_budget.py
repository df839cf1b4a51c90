"""A budget that tasks share: never more than all of it is held, and everybody gets a turn."""

import asyncio

import pytest

from app.platform.answer_memory import Budget

pytestmark = pytest.mark.anyio


async def test_no_more_than_all_of_it_is_held():
    budget, held, most, done = Budget(10), 0, 0, []

    async def task(amount: int) -> None:
        nonlocal held, most
        async with budget.taken(amount):
            held += min(amount, 10)
            most = max(most, held)
            await asyncio.sleep(0)
            held -= min(amount, 10)
        done.append(amount)

    amounts = [3, 4, 0, 5, 10, 2, 25, 1, 6, 4]
    await asyncio.gather(*map(task, amounts))
    assert sorted(done) == sorted(amounts)
    assert most == 10


@pytest.mark.rest
async def test_a_task_that_fails_gives_back_what_it_held():
    budget = Budget(10)
    with pytest.raises(ValueError, match="mine"):
        async with budget.taken(8):
            raise ValueError("mine")
    async with asyncio.timeout(10), budget.taken(10):
        pass


@pytest.mark.rest
async def test_a_task_that_is_cancelled_while_it_waits_holds_nothing():
    budget = Budget(10)
    async with budget.taken(6):
        waiting = asyncio.create_task(budget.taken(6).__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    async with asyncio.timeout(10), budget.taken(10):
        pass


@pytest.mark.rest
@pytest.mark.parametrize("turns", range(6))
async def test_one_that_is_cancelled_as_it_is_woken_keeps_nobody_waiting(turns):
    budget = Budget(10)

    async def task(amount: int) -> None:
        async with budget.taken(amount):
            pass

    async with budget.taken(10):
        first, *others = [asyncio.create_task(task(amount)) for amount in (10, 6, 4, 10)]
        await asyncio.sleep(0)
    for _ in range(turns):
        await asyncio.sleep(0)
    first.cancel()
    async with asyncio.timeout(10):
        await asyncio.gather(*others)
        await asyncio.gather(first, return_exceptions=True)
