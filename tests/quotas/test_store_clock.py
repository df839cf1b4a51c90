"""Shares of several processes while the clock of the store jumps."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from test_ledger import UID, processes, quota_of

from app.storage.store import Store
from clock_shim import Clocks
from redis_process import Redis
from store_server import ON_CLUSTER, patient_store
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


@dataclass
class Jumping:
    """A store, and its clock."""

    store: Store
    clocks: Clocks

    async def jump_to(self, offset_s: int) -> None:
        self.clocks.store.jump_to(offset_s)
        await wait_until(lambda: self._is_at(offset_s), what="the store sees the new time")

    async def _is_at(self, offset_s: int) -> bool:
        now_ms, _ = await self.store.quotas.share(UID, "nobody", 1, [])
        return abs(now_ms / 1_000 - time.time() - offset_s) < 30.0


@pytest.fixture
async def jumping(tmp_path: Path, clocks: Clocks) -> AsyncIterator[Jumping]:
    if sys.platform != "linux":
        pytest.skip("a library put before the system's: Linux only")
    if ON_CLUSTER:
        pytest.skip("the clock of one server")
    redis = Redis(tmp_path / "redis", preload=clocks.store.settings)
    store = patient_store(redis.url)
    try:
        await store.open()
        yield Jumping(store, clocks)
    finally:
        await store.close()
        redis.close()


async def test_the_clock_of_the_store_jumps(jumping: Jumping):
    """Forth and back over the ends of windows: what was counted in one stays, and none comes twice."""
    draw, rule = random.Random(5), quota_of(40, per_s=3_600)
    alive = await processes(jumping.store, 3, rule)
    for step in range(60):
        await jumping.jump_to(200 * step + draw.choice([0, 0, 0, 1_800, -3_600, -86_400]))
        for process in alive:
            process.ahead_s = draw.choice([0.0, 3_600.0])
            await process.shares.sync_with_store()
            for _ in range(3):
                await process.show()
    shown = sum((process.shown for process in alive), Counter[int]())
    assert 3 <= len(shown) <= 5
    assert max(shown.values()) <= 40
    assert shown.total() > 80


async def test_what_others_spend_is_heard_without_what_was_spent_in_the_window_before(jumping: Jumping):
    """An even pace goes by it: it would think that less than nothing was shown."""
    one, other = await processes(jumping.store, 2, quota_of(20, per_s=3_600))
    for _ in range(3):
        await one.show()
    await one.shares.sync_with_store()
    await jumping.jump_to(3_600)
    await other.show()
    await other.shares.sync_with_store()
    await one.shares.sync_with_store()
    assert one.live.state.others == 1
