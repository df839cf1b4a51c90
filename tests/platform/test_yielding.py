"""Long loops on the event loop: what others can do between their steps."""

import asyncio
from itertools import pairwise

import pytest

from app.platform import deadlines
from app.platform.deadlines import yield_to_others
from time_slices import let_no_time_be_left

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


@pytest.fixture
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice is over as soon as it begins: every step is a long one."""
    let_no_time_be_left(monkeypatch)


@pytest.mark.usefixtures("no_time")
async def test_one_step_is_made_between_two_looks_at_the_network_whatever_the_number_of_requests():
    seen, done = [], asyncio.Event()

    async def looks() -> None:
        while not done.is_set():
            seen.append("look")
            await asyncio.sleep(0)

    async def long(name: str) -> None:
        for _ in range(20):
            await yield_to_others()
            seen.append(name)

    others = asyncio.create_task(looks())
    await asyncio.gather(*(long(name) for name in "abc"))
    done.set()
    await others
    assert [seen.count(name) for name in "abc"] == [20, 20, 20]
    assert "look" in seen
    assert all("look" in pair for pair in pairwise(seen)), seen


@pytest.mark.usefixtures("no_time")
async def test_of_many_that_wait_one_goes_on_in_each_turn_and_in_the_order_in_which_they_came():
    """Also those that wait for hundreds of turns; one that is cancelled takes none."""
    turns, went, done = 0, list[tuple[int, int]](), asyncio.Event()

    async def others() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0)

    async def step(number: int) -> None:
        await yield_to_others()
        went.append((turns, number))

    busy = asyncio.create_task(others())
    steps = [asyncio.create_task(step(number)) for number in range(1_000)]
    await asyncio.sleep(0)
    steps[700].cancel()
    await asyncio.gather(*steps, return_exceptions=True)
    done.set()
    await busy
    assert [number for _, number in went] == [number for number in range(1_000) if number != 700]
    assert all(later - earlier == 1 for (earlier, _), (later, _) in pairwise(went))


@pytest.mark.usefixtures("no_time")
async def test_a_step_goes_on_though_others_use_up_each_slice():
    turns, done = 0, asyncio.Event()

    async def others() -> None:
        nonlocal turns
        while not done.is_set() and turns < 100:
            turns += 1
            deadlines._Slice.ends = -turns  # begun, and used up
            await asyncio.sleep(0)

    busy = asyncio.create_task(others())
    await yield_to_others()
    done.set()
    await busy
    assert turns <= 3


@pytest.mark.usefixtures("no_time")
async def test_who_comes_while_others_wait_goes_after_them_though_a_slice_has_begun():
    """Else clients that ask again as soon as they are answered go before all that wait."""
    order = list[str]()

    async def step(name: str) -> None:
        await yield_to_others()
        order.append(name)

    early = [asyncio.create_task(step(name)) for name in ("first", "second")]
    await asyncio.sleep(0)
    deadlines._Slice.ends = float("inf")  # somebody else has begun it
    await step("late")
    await asyncio.gather(*early)
    assert order == ["first", "second", "late"]
