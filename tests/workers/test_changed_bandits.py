"""Work that waits for changed bandits ends when it is cancelled, whatever comes at the same moment."""

import asyncio

import pytest

from workers.changed_bandits import ChangedBandits

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


@pytest.mark.parametrize("turns", range(6))
async def test_a_cancellation_is_not_lost_when_news_comes_at_the_same_moment(turns: int) -> None:
    changed = ChangedBandits()

    async def work() -> None:
        while True:
            await changed.wait(60.0)
            changed.uids.clear()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    changed.add(["1a2b"])
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task}, timeout=10.0)
    was_cancelled = task.cancelled()
    task.cancel()
    assert was_cancelled
