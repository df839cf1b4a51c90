"""Contract of a store: leases of workers."""

import pytest

from app.storage.store import Store
from waiting import wait_until

pytestmark = pytest.mark.anyio

TTL_MS = 60_000


async def test_workers_know_each_other_until_their_lease_runs_out(store: Store):
    assert await store.leases.join("a", TTL_MS) == ["a"]
    assert set(await store.leases.join("b", TTL_MS)) == {"a", "b"}
    await store.leases.leave("a")
    assert await store.leases.join("b", TTL_MS) == ["b"]
    await store.leases.leave("b")
    await store.leases.join("dies", TTL_MS)

    async def alone():
        return await store.leases.join("lives", 1) == ["lives"]

    await wait_until(alone, what="the lease of the dead worker runs out")
