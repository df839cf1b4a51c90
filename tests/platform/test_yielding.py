"""Long loops on the event loop: what others can do between their steps."""

import asyncio
from itertools import pairwise

import pytest

from app.platform import deadlines
from app.platform.deadlines import yield_to_others

pytestmark = pytest.mark.anyio


@pytest.fixture
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice is over as soon as it begins: every step is a long one."""
    monkeypatch.setattr(deadlines, "SLICE_S", 0.0)
    monkeypatch.setattr(deadlines._Slice, "ends", 0.0)


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
async def test_a_step_goes_on_in_the_end_though_others_use_up_each_slice():
    turns, done = 0, asyncio.Event()

    async def others() -> None:
        nonlocal turns
        while not done.is_set() and turns < 2 * deadlines.MOST_TURNS:
            turns += 1
            deadlines._Slice.ends = -turns  # begun, and used up
            await asyncio.sleep(0)

    busy = asyncio.create_task(others())
    await yield_to_others()
    done.set()
    await busy
    assert 1 < turns <= deadlines.MOST_TURNS + 1


async def test_steps_follow_each_other_within_a_slice(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(deadlines._Slice, "ends", float("inf"))
    others = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(others.set_result, None)
    for _ in range(1_000):
        await yield_to_others()
    assert not others.done()
