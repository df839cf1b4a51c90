"""Contract of a store: leases of workers."""

import pytest

from app.storage.protocol import Store
from waiting import until

pytestmark = pytest.mark.anyio

TTL_MS = 60_000


async def test_workers_know_each_other_until_their_lease_runs_out(store: Store):
    assert await store.join_workers("a", TTL_MS) == ["a"]
    assert set(await store.join_workers("b", TTL_MS)) == {"a", "b"}
    await store.leave_workers("a")
    assert await store.join_workers("b", TTL_MS) == ["b"]
    await store.leave_workers("b")
    await store.join_workers("dies", TTL_MS)

    async def alone():
        return await store.join_workers("lives", 1) == ["lives"]

    await until(alone, what="the lease of the dead worker runs out")
