"""Retention of the decision log: by time as the bandit has it now, and by bytes, each bandit its share."""

from collections import defaultdict
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.platform.metrics import Metrics
from app.storage.store import Store
from app.storage.types import DecisionId, LearnerId, RowWrite
from workers.log_retention import PIECES, STEP, LogRetention, share_of

pytestmark = pytest.mark.anyio

HOUR_MS = 3_600_000
UIDS = ("0" * 16, "1" * 16)


async def fill(store: Store, count: int, every_ms: int) -> list[int]:
    """Rows of two bandits in all partitions, one every so many ms; returns their times."""
    times = [1_000_000 + n * every_ms for n in range(count)]
    for n, ms in enumerate(times):
        learner = LearnerId(UIDS[n % 2], f"k{n % 7}")
        row = RowWrite(DecisionId(learner, f"{n:016}"), ms, 0, b"x" * 100, HOUR_MS)
        await store.rows.write(learner.partition(store.partitions), [row])
    return times


async def log_bytes(store: Store, *uids: str) -> int:
    """What the rows of these bandits take."""
    sizes = [
        await store.rows.sizes(partition, uid, pieces=10_000)
        for partition in range(store.partitions)
        for uid in uids or UIDS
    ]
    return round(sum(size for pieces in sizes for _, size in pieces))


async def left(store: Store) -> list[int]:
    found = []
    for partition in range(store.partitions):
        for uid in UIDS:
            page = await store.rows.read(partition, uid, after="", before="", count=10_000, most_bytes=2**30)
            assert page.following == ""
            found += [int(row.position.partition("-")[0]) for row in page.rows]
    return sorted(found)


async def test_rows_go_when_their_time_is_over(store: Store):
    times = await fill(store, 60, HOUR_MS // 10)
    metrics = Metrics()
    retention = LogRetention(store, metrics, most_bytes=2**40)
    await retention.sweep(times[20] + HOUR_MS)
    assert await left(store) == times[20:]
    dropped = {"kind": "rows_dropped"}
    assert metrics.registry.get_sample_value("shortlist_housekeeping_total", dropped) == 20
    await retention.sweep(times[-1] + HOUR_MS + 1)
    assert await left(store) == []


async def test_the_oldest_rows_go_when_there_are_too_many(store: Store):
    times = await fill(store, 200, 1_000)
    whole = await log_bytes(store)
    retention = LogRetention(store, Metrics(), most_bytes=whole // 2)
    await retention.sweep(times[-1])
    held = await log_bytes(store)
    assert whole // 2 - whole // 50 < held <= whole // 2, "no more than is spared"
    found = await left(store)
    assert found == times[-len(found) :], "bandits that log alike lose alike"
    await retention.sweep(times[-1])
    assert await left(store) == found


async def flood(store: Store, uid: str, count: int, size: int, *, every: int = 1, at_ms: int = 0) -> int:
    """Rows of some keys of a bandit, one of ``every`` of this size, the others small; returns their bytes."""
    before, rows = await log_bytes(store, uid), defaultdict[int, list[RowWrite]](list)
    for n in range(count):
        learner = LearnerId(uid, f"k{n % 7}")
        record = b"x" * (100 if n % every else size)
        row = RowWrite(DecisionId(learner, f"{n:016}"), 1_000_000 + at_ms + n, 0, record, HOUR_MS)
        rows[learner.partition(store.partitions)].append(row)
    for partition, theirs in rows.items():
        for start in range(0, len(theirs), 100):
            await store.rows.write(partition, theirs[start : start + 100])
    return await log_bytes(store, uid) - before


async def rows_of(store: Store, uid: str) -> list[int]:
    found = []
    for partition in range(store.partitions):
        page = await store.rows.read(partition, uid, after="", before="", count=10_000, most_bytes=2**30)
        found += [int(row.position.partition("-")[0]) for row in page.rows]
    return sorted(found)


async def test_a_bandit_cannot_push_out_the_rows_of_another_one(store: Store):
    """Many younger and much larger rows of one bandit; the other one takes less than its share."""
    small = await flood(store, UIDS[0], 50, 100)
    await flood(store, UIDS[1], 400, 5_000, at_ms=60_000)
    most = 4 * small
    await LogRetention(store, Metrics(), most_bytes=most).sweep(1_070_000)
    assert len(await rows_of(store, UIDS[0])) == 50
    held = await log_bytes(store)
    assert most - most // 16 < held <= most, "what one leaves free, the other one has"
    pushed = await rows_of(store, UIDS[1])
    assert pushed == list(range(1_060_400 - len(pushed), 1_060_400)), "its oldest rows are gone"
    begins = {await store.rows.kept_from(partition, UIDS[1]) for partition in range(store.partitions)}
    assert max(begins) == pushed[0], "from there on it is complete"


@pytest.mark.rest
async def test_both_lose_rows_where_both_take_more_than_their_share(store: Store):
    sizes = [await flood(store, uid, 100, size) for uid, size in zip(UIDS, (400, 4_000), strict=True)]
    await LogRetention(store, Metrics(), most_bytes=sizes[0]).sweep(1_000_100)
    one, other = [len(await rows_of(store, uid)) for uid in UIDS]
    assert 40 <= one <= 50, "half of the room"
    assert 0.4 <= other * sizes[1] / 100 / sizes[0] <= 0.5


@pytest.mark.rest
async def test_large_rows_among_small_ones_are_counted(store: Store):
    """More rows than are looked at, large in turns: their bytes are known to a tenth all the same."""
    count = 5 * PIECES
    for every in (2, 5, 10):
        uid = f"{every:016}"
        true = await flood(store, uid, count, 3_000, every=every)
        pieces = [
            piece
            for partition in range(store.partitions)
            for piece in await store.rows.sizes(partition, uid, pieces=PIECES)
        ]
        assert len(pieces) <= store.partitions * PIECES
        assert abs(sum(size for _, size in pieces) / true - 1.0) < 0.1


@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=8), st.integers(1, 3_000))
def test_a_share_is_what_is_left_divided_by_those_who_want_it(totals: list[int], most: int):
    share = share_of(totals, Fraction(most))
    if sum(totals) <= most:
        assert share > max(totals)
    else:
        assert sum(min(total, share) for total in totals) == most
        assert share >= Fraction(most, len(totals)), "nobody leaves the others less than their part"


@pytest.mark.rest
async def test_many_rows_go_in_steps(store: Store, monkeypatch: pytest.MonkeyPatch):
    learner = LearnerId(UIDS[0], "k")
    partition = learner.partition(store.partitions)
    rows = [
        RowWrite(DecisionId(learner, f"{n:016}"), 1_000 + n, 0, b"x", HOUR_MS) for n in range(2 * STEP + 3)
    ]
    await store.rows.write(partition, rows)
    trim, done = store.rows.trim, list[int]()

    async def counted(*arguments: Any, **options: Any) -> int:
        done.append(await trim(*arguments, **options))
        return done[-1]

    monkeypatch.setattr(store.rows, "trim", counted)
    await LogRetention(store, Metrics(), most_bytes=2**40).sweep(2 * HOUR_MS)
    assert done == [STEP, STEP, 3]
