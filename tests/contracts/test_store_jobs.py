"""Contract of a store: jobs, their leases, and how many there may be."""

from __future__ import annotations

import asyncio

import pytest

from app.platform.errors import Invalid
from app.storage.store import Store
from app.storage.types import StoredJob
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

UID, OTHER = "0123456789abcdef", "fedcba9876543210"
LONG = {"lease_ms": 60_000, "keep_ms": 60_000}


async def test_a_job_is_as_its_process_said_last(store: Store):
    assert await store.jobs.read(UID, "1") is None
    assert await store.jobs.jobs(UID) == []
    assert await store.jobs.add(UID, "1", b"\x00waiting", **LONG)
    assert await store.jobs.read(UID, "1") == StoredJob("1", b"\x00waiting", is_alive=True)
    assert await store.jobs.keep(UID, "1", b"done", **LONG, result=b"\xff\x00") == "kept"
    assert await store.jobs.read(UID, "1") == StoredJob("1", b"done", is_alive=True, result=b"\xff\x00")
    await store.jobs.add(UID, "0", b"other", **LONG)
    await store.jobs.add(OTHER, "2", b"elsewhere", **LONG)
    assert [(job.id, job.head, job.result) for job in await store.jobs.jobs(UID)] == [
        ("0", b"other", b""),
        ("1", b"done", b""),
    ]
    assert await store.jobs.read(OTHER, "1") is None


async def test_a_job_that_was_deleted_is_missing(store: Store):
    await store.jobs.add(UID, "1", b"waiting", **LONG)
    await store.jobs.keep(UID, "1", b"done", **LONG, result=b"r")
    assert await store.jobs.delete(UID, "1")
    assert not await store.jobs.delete(UID, "1")
    assert await store.jobs.keep(UID, "1", b"running", **LONG) == "missing"
    assert await store.jobs.jobs(UID) == []


async def test_a_lease_and_a_job_end_by_themselves(store: Store):
    await store.jobs.add(UID, "left", b"running", lease_ms=1, keep_ms=60_000)
    await store.jobs.add(UID, "over", b"running", lease_ms=1, keep_ms=1)

    async def ended() -> bool:
        return [(job.id, job.is_alive) for job in await store.jobs.jobs(UID)] == [("left", False)]

    await wait_until(ended, what="the lease of one job ends, and the other job")
    assert await store.jobs.keep(UID, "over", b"done", **LONG) == "missing"
    assert await store.jobs.keep(UID, "left", b"running", **LONG) == "kept"
    assert (await store.jobs.jobs(UID))[0].is_alive


async def test_jobs_and_the_bytes_of_results_are_bounded(store: Store):
    store.jobs.most_jobs, store.jobs.most_of_bandit, store.jobs.most_result_bytes = 5, 3, 100
    added = await asyncio.gather(*(store.jobs.add(UID, f"{n}", b"h", **LONG) for n in range(6)))
    assert sorted(added) == [False] * 3 + [True] * 3
    assert [await store.jobs.add(OTHER, f"{n}", b"h", **LONG) for n in range(3)] == [True, True, False]
    one, two, _ = [job.id for job in await store.jobs.jobs(UID)]
    assert await store.jobs.keep(UID, one, b"done", **LONG, result=b"r" * 60) == "kept"
    assert await store.jobs.keep(UID, two, b"done", **LONG, result=b"r" * 60) == "full"
    assert (await store.jobs.read(UID, two)) == StoredJob(two, b"h", is_alive=True)
    assert await store.jobs.keep(UID, one, b"done", **LONG, result=b"r" * 99) == "kept"
    assert await store.jobs.delete(UID, one)
    assert await store.jobs.keep(UID, two, b"done", **LONG, result=b"r" * 60) == "kept"
    assert await store.jobs.add(OTHER, "9", b"h", **LONG)


async def test_times_below_one_are_refused(store: Store):
    for wrong in ({"lease_ms": 0}, {"keep_ms": 0}):
        with pytest.raises(Invalid, match=next(iter(wrong))):
            await store.jobs.add(UID, "1", b"h", **{**LONG, **wrong})
