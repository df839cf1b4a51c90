"""Reports begin where the log is complete, and say so."""

import time

import pytest

from app.bandits.bandit import Bandit
from app.bandits.settings import LogRule, RewardRule
from app.decision_log.rows import Row
from app.platform.metrics import Metrics
from app.storage.types.decisions import LearnerId
from headless_service import HeadlessService
from workers.log_retention import LogRetention

pytestmark = pytest.mark.anyio

KEYS = [f"key-{number}" for number in range(12)]
AGES_MS = 10**13  # one bucket holds all


async def logged(service: HeadlessService) -> Bandit:
    """A bandit with 96 decisions of twelve keys, each third one rewarded."""
    rule = RewardRule(0.0, 1.0, wait_s=600.0)  # so that rows are written with their decisions
    bandit = await service.bandit(policy="softmax", temperature=1.0, log=LogRule(), reward=rule)
    for number in range(96):
        choice = await service.choose(bandit, KEYS[number % len(KEYS)])
        if number % 3 == 0:
            await service.reward(choice.decision)
    return bandit


async def rows_of(service: HeadlessService, bandit: Bandit) -> list[Row]:
    return [
        row
        async for page in service.parts.decision_log.pages(bandit, from_ms=None, to_ms=None)
        for row in page
    ]


async def counted(
    service: HeadlessService, bandit: Bandit, from_ms: int | None = None
) -> tuple[int, int, int | None]:
    """Decisions, those that were rewarded, and from when on."""
    found = await service.parts.reports.report(bandit, from_ms=from_ms, to_ms=None, bucket_ms=AGES_MS)
    group = found.buckets[0].groups[0]
    assert group.decisions == found.decisions
    return group.decisions, group.rewarded, found.complete_from


def expected(rows: list[Row], from_ms: int) -> tuple[int, int]:
    there = [row for row in rows if row.time >= from_ms]
    return len(there), sum(bool(row.rewards) for row in there)


async def test_they_begin_where_every_partition_is_complete(service: HeadlessService):
    bandit = await logged(service)
    rows, store = await rows_of(service, bandit), service.store
    assert await counted(service, bandit) == (96, 32, None)
    first = LearnerId(bandit.uid, KEYS[0]).partition(store.partitions)
    middle = rows[48].time
    await store.rows.trim(first, bandit.uid, before_ms=middle, count=1_000)
    left = await rows_of(service, bandit)
    assert len(left) > expected(rows, middle)[0], "other partitions have older rows, which say nothing now"
    assert await counted(service, bandit) == (*expected(rows, middle), middle)
    assert await counted(service, bandit, rows[10].time) == (*expected(rows, middle), middle)
    later = max(middle, rows[60].time)
    assert await counted(service, bandit, later) == (*expected(rows, later), None), "it begins as asked for"


@pytest.mark.rest
async def test_they_begin_where_rows_had_to_go(service: HeadlessService):
    bandit = await logged(service)
    rows = await rows_of(service, bandit)
    held = 0.0
    for partition in range(service.store.partitions):
        held += sum(size for _, size in await service.store.rows.sizes(partition, bandit.uid, pieces=1_000))
    retention = LogRetention(service.store, Metrics(), most_bytes=int(held / 2))
    await retention.sweep(time.time_ns() // 1_000_000)
    left = await rows_of(service, bandit)
    decisions, rewarded, complete_from = await counted(service, bandit)
    assert complete_from is not None
    assert 0 < decisions == len(left) < 60
    assert (decisions, rewarded) == expected(rows, complete_from), "the newest are left, rewarded or not"
    assert left == rows[-len(left) :]
