"""Rows on their way to the store: choices never wait, and what fits is not lost while the process lives."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from app.decision_log import buffer as row_buffer
from app.decision_log.buffer import ROW_BYTES, RowBuffer
from app.platform.errors import Unavailable
from app.platform.metrics import Metrics
from app.storage.memory import Level
from app.storage.types import DecisionId, LearnerId, RowWrite

pytestmark = pytest.mark.anyio


class Store:
    """Remembers the rows of every call; ``away``: it does not answer; ``slow``: nor does it fail."""

    partitions = 4

    def __init__(self) -> None:
        self.rows = self.memory = self
        self.is_full = False
        self.calls: list[tuple[int, list[str]]] = []
        self.away = False
        self.slow: asyncio.Event | None = None

    def is_reached(self, level: Level) -> bool:
        return self.is_full and level == Level.OPTIONAL

    async def write(self, partition: int, rows: Sequence[RowWrite]) -> None:
        if self.slow is not None:
            await self.slow.wait()
        if self.away:
            raise Unavailable("the store does not answer")
        assert {row.decision.learner.partition(4) for row in rows} == {partition}
        self.calls.append((partition, [row.decision.id for row in rows]))

    @property
    def written(self) -> Counter[str]:
        return Counter(name for _, names in self.calls for name in names)


def row(n: int) -> RowWrite:
    return RowWrite(DecisionId(LearnerId("0" * 16, f"k{n % 9}"), f"{n}"), n, 0, b"x" * 100, 1_000)


def made(
    store: Store, rows: int = 10_000, **pauses: float
) -> tuple[RowBuffer, Callable[[], dict[str, float]]]:
    """A buffer, and what it counted."""
    metrics, most = Metrics(), rows * (100 + ROW_BYTES)
    buffer = RowBuffer(store, metrics, most_bytes=most, **pauses)  # type: ignore[arg-type]  # what is used of it

    def reported() -> dict[str, float]:
        (family,) = metrics.log_rows.collect()
        counts = {
            each.labels["outcome"]: each.value for each in family.samples if each.name.endswith("total")
        }
        return {outcome: count for outcome, count in counts.items() if count}

    return buffer, reported


async def test_rows_are_written_together_by_partition():
    store = Store()
    buffer, reported = made(store)
    for n in range(450):
        buffer.add(row(n))
    await buffer.flush()
    assert store.written == Counter(str(n) for n in range(450))
    assert len(store.calls) <= 4 + 450 // row_buffer.BATCH_SIZE, "in the order of their partitions"
    assert max(len(names) for _, names in store.calls) <= row_buffer.BATCH_SIZE
    assert reported() == {"written": 450}
    store.calls.clear()
    await buffer.flush()
    assert not store.calls


@pytest.mark.rest
async def test_rows_that_another_call_writes_are_waited_for():
    store = Store()
    buffer, _ = made(store)
    store.slow = asyncio.Event()
    buffer.add(row(1))
    first = asyncio.create_task(buffer.flush())
    second = asyncio.create_task(buffer.flush())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not second.done()
    store.slow.set()
    await second
    assert store.written == Counter("1")
    await first


async def test_what_has_no_room_is_dropped_and_counted_and_there_is_room_again():
    store = Store()
    buffer, reported = made(store, rows=10)
    for _ in range(3):
        for n in range(25):
            buffer.add(row(n))
        await buffer.flush()
    assert reported() == {"written": 30, "dropped": 45}


async def test_rows_wait_while_the_store_is_away():
    store = Store()
    buffer, reported = made(store)
    store.away = True
    for n in range(300):
        buffer.add(row(n))
        if n % 100 == 0:
            with pytest.raises(Unavailable):
                await buffer.flush()
    store.away = False
    await buffer.flush()
    assert store.written == Counter(str(n) for n in range(300))
    assert reported() == {"written": 300}


@pytest.mark.rest
async def test_a_flush_that_is_cancelled_loses_nothing():
    """As at the end of the service: what was on its way is written again, which changes nothing."""
    store = Store()
    buffer, _ = made(store)
    store.slow = asyncio.Event()
    for n in range(5):
        buffer.add(row(n))
    flushing = asyncio.create_task(buffer.flush())
    await asyncio.sleep(0)
    buffer.add(row(5))
    flushing.cancel()
    await asyncio.gather(flushing, return_exceptions=True)
    store.slow = None
    await buffer.stop()
    assert store.written.keys() == {str(n) for n in range(6)}


async def test_it_writes_what_is_added_until_it_ends():
    store = Store()
    buffer, _ = made(store, rest_s=0.0, retry_s=0.0)
    running = asyncio.create_task(buffer.run())
    for n in range(5):
        store.away = n % 2 == 0
        buffer.add(row(n))
        while str(n) not in store.written:
            await asyncio.sleep(0)
            store.away = False
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert store.written == Counter(str(n) for n in range(5))


async def test_rows_that_the_store_refused_are_written_though_none_is_added():
    store = Store()
    buffer, reported = made(store, rest_s=0.0, retry_s=0.0)
    store.away = True
    buffer.add(row(1))
    with pytest.raises(Unavailable):
        await buffer.flush()
    store.away = False
    running = asyncio.create_task(buffer.run())
    for _ in range(50):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert reported() == {"written": 1}


async def test_in_a_store_that_is_nearly_full_rows_are_dropped_and_counted():
    store, metrics = Store(), Metrics()
    rows = RowBuffer(store, metrics)  # type: ignore[arg-type]  # all that it asks
    store.is_full = True
    rows.add(row(0))
    store.is_full = False
    rows.add(row(1))
    await rows.flush()
    assert [len(ids) for _, ids in store.calls] == [1]
    assert metrics.registry.get_sample_value("shortlist_log_rows_total", {"outcome": "dropped"}) == 1
