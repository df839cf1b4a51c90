"""Quotas through kills of the store and jumps of its clock."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from test_quota_sweep import UID, Sweep, play

from clock_shim import Clocks
from deployment import Redis
from lossy_store import LossyStore
from store_server import ON_CLUSTER, patient_store
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


@pytest.mark.skipif(sys.platform != "linux", reason="a library put before the system's: Linux only")
@pytest.mark.skipif(ON_CLUSTER, reason="the clock of one server")
@pytest.mark.parametrize("seed", range(6))
async def test_also_through_kills_of_the_store_and_jumps_of_its_clock(
    tmp_path: Path, clocks: Clocks, seed: int
):
    redis = Redis(tmp_path / "redis", preload=clocks.store.settings)
    store = patient_store(redis.url)

    def kill() -> None:
        redis.kill()
        redis.restart()

    async def jump_to(offset_s: int) -> None:
        clocks.store.jump_to(offset_s)

        async def is_there() -> bool:
            now_ms = (await store.quotas.changes(UID, "")).now_ms
            return abs(now_ms / 1_000 - time.time() - offset_s) < 30.0

        await wait_until(is_there, what="the store sees the new time")

    try:
        await store.open()
        sweep = Sweep(100 + seed, LossyStore(store), kill_store=kill, jump_to=jump_to)
        await play(sweep, 600)
    finally:
        await store.close()
        redis.close()
