"""Tasks end when they are told to, also when the first telling gets lost."""

import asyncio

import pytest

from app import background

pytestmark = pytest.mark.anyio


async def test_all_have_ended_and_those_that_had_are_left_alone() -> None:
    over = asyncio.ensure_future(asyncio.sleep(0))
    await over
    waiting = [asyncio.ensure_future(asyncio.Event().wait()) for _ in range(3)]
    await background.end([over, *waiting])
    assert [task.cancelled() for task in (over, *waiting)] == [False, True, True, True]
    await background.end([])


async def test_a_cancellation_that_gets_lost_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "PATIENCE_S", 0.001)
    lost = 0

    async def deaf() -> None:
        nonlocal lost
        while lost < 3:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                lost += 1

    task = asyncio.ensure_future(deaf())
    await asyncio.sleep(0)
    await background.end([task])
    assert task.done()
    assert lost == 3
