"""Retention of the decision log: by time as the bandit has it now, and by bytes, the oldest first."""

import pytest

from app.storage.protocol import DecisionId, LearnerId, RowWrite
from app.storage.redis_store import RedisStore
from workers.log_retention import STEP, LogRetention

pytestmark = pytest.mark.anyio

HOUR_MS = 3_600_000
UIDS = ("0" * 16, "1" * 16)


async def fill(store: RedisStore, count: int, every_ms: int) -> list[int]:
    """Rows of two bandits in all partitions, one every so many ms; returns their times."""
    times = [1_000_000 + n * every_ms for n in range(count)]
    for n, ms in enumerate(times):
        learner = LearnerId(UIDS[n % 2], f"k{n % 7}")
        row = RowWrite(DecisionId(learner, f"{n:016}"), ms, 0, b"x" * 100, HOUR_MS)
        await store.write_rows(learner.partition(store.partitions), [row])
    return times


async def left(store: RedisStore) -> list[int]:
    found = []
    for partition in range(store.partitions):
        for uid in UIDS:
            page = await store.read_rows(partition, uid, after="", before="", count=10_000, most_bytes=2**30)
            assert page.following == ""
            found += [int(row.position.partition("-")[0]) for row in page.rows]
    return sorted(found)


async def test_rows_go_when_their_time_is_over(store: RedisStore):
    times = await fill(store, 60, HOUR_MS // 10)
    done: list[int] = []
    retention = LogRetention(store, most_bytes=2**40, done=lambda _, count: done.append(count))
    await retention.sweep(times[20] + HOUR_MS)
    assert await left(store) == times[20:]
    assert sum(done) == 20
    await retention.sweep(times[-1] + HOUR_MS + 1)
    assert await left(store) == []
    assert (await store.holdings())["log"] == 0


async def test_the_oldest_rows_go_when_there_are_too_many(store: RedisStore):
    times = await fill(store, 200, 1_000)
    whole = (await store.holdings())["log"]
    retention = LogRetention(store, most_bytes=whole // 2)
    await retention.sweep(times[-1])
    held = (await store.holdings())["log"]
    assert whole // 2 - whole // 50 < held <= whole // 2, "no more than a slice too many"
    found = await left(store)
    assert found == times[-len(found) :], "what is left is the newest, whichever bandit it is of"
    await retention.sweep(times[-1])
    assert await left(store) == found


async def test_many_rows_go_in_steps(store: RedisStore):
    learner = LearnerId(UIDS[0], "k")
    partition = learner.partition(store.partitions)
    rows = [
        RowWrite(DecisionId(learner, f"{n:016}"), 1_000 + n, 0, b"x", HOUR_MS) for n in range(2 * STEP + 3)
    ]
    await store.write_rows(partition, rows)
    done: list[int] = []
    retention = LogRetention(store, most_bytes=2**40, done=lambda _, count: done.append(count))
    await retention.sweep(2 * HOUR_MS)
    assert done == [STEP, STEP, 3]
