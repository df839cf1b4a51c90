"""Workers on one log: crashes, waiting, cycles and trimming."""

# ruff: noqa: F401, F811 - fixtures are imported

import asyncio
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_reward_ingestion import (
    DIM,
    LOG,
    SETTINGS,
    TTL_MS,
    UID,
    Seen,
    append,
    as_entry,
    encoded,
    one,
    payload,
    states,
    worker,
)

from app.fold.fold import fold
from app.fold.fold_batches import batches
from app.records.log_entries import RewardEntry, decoded_all
from app.records.records import LearnerState, state_to_bytes, vector_to_bytes
from app.storage.store import Store
from app.storage.types import LearnerId, RewardWrite
from log_entries import entry_of
from lossy_store import LossyStore
from shortlist.linear import ridge_sums
from store_clients import connect, flush
from waiting import wait_until
from workers import log_trimming
from workers.learned_bandits import LearnedBandits
from workers.reward_ingestion import Cycles, Step

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


async def trim(store: Any, ahead_s: int = 0) -> None:
    """Drop what is applied and was appended before now, or so many seconds after now."""
    async for _ in log_trimming.trim(store, range(store.partitions), reward_log_s=-ahead_s):
        pass


async def replayed(store: Any) -> dict[LearnerId, bytes | None]:
    """The states that the whole log means, folded at once from nothing."""
    return encoded(fold({}, decoded_all(await store.rewards.read(0, "0-0", 100_000))))


async def agrees(store: Any) -> None:
    """What is stored is what the log means, bit for bit."""
    meant = await replayed(store)
    assert {name: data for name, data in (await states(store)).items() if data} == {
        name: data for name, data in meant.items() if data
    }


def test_batches_are_cut_where_states_would_take_too_much_memory():
    names = "aabcbda" + "e" * 5
    entries = [entry_of(n, LearnerId(UID, name), RewardEntry(bytes(72))) for n, name in enumerate(names)]
    found = ["".join(entry.learner.name for entry, _ in part) for part in batches(entries, 3 * 9**2)]
    assert found == ["aabcb", "da" + "e" * 5]
    assert [len(part) for part in batches(entries, 1)] == [2, 1, 1, 1, 1, 1, 5]
    assert list(batches([])) == []


@SETTINGS
@given(log=LOG)
def test_a_state_is_the_sum_of_what_came_since_it_was_forgotten(log: list[Any]):
    """Against plain sums, to rounding; the counts exactly."""
    folded = fold({}, [as_entry(number, item) for number, item in enumerate(log)])
    for learner in {item if isinstance(item, str) else item[0] for item in log}:
        mine = [item for item in log if item[0] == learner]
        last = max((i for i, item in enumerate(mine) if isinstance(item, str)), default=-1)
        rows = mine[last + 1 :]
        state = folded[LearnerId(UID, learner)]
        if not rows:
            assert state is None
            continue
        assert state is not None
        assert (state.version, state.sums.observations) == (len(rows), sum(first for *_, first in rows))
        gram = sum((np.outer(x, x) for _, x, _, first in rows if first), np.zeros((DIM, DIM)))
        moment = sum((np.multiply(x, r) for _, x, r, _ in rows), np.zeros(DIM))
        bound = sum((abs(np.multiply(x, r)) for _, x, r, _ in rows), np.zeros(DIM))
        np.testing.assert_allclose(state.sums.gram, gram, rtol=1e-12, atol=1e-12 * (abs(gram).max() + 1e-300))
        assert (abs(state.sums.moment - moment) <= 1e-12 * bound + 1e-290).all()


@SETTINGS
@given(log=LOG, batch=st.integers(1, 7), stops=st.lists(st.integers(1, 40), max_size=3))
async def test_the_stored_states_are_the_log_replayed(
    one: Store, log: list[Any], batch: int, stops: list[int]
):
    """Through batches of any size and workers that come and go."""
    async with connect(one_url(one)) as client:
        await flush(client)
    places = [0, *sorted(min(stop, len(log)) for stop in stops), len(log)]
    for start, stop in itertools.pairwise(places):
        await append(one, log[start:stop], start=start)
        seen = Seen()
        await worker(one, seen, cycles=Cycles(batch=batch)).drain()
        assert seen.entries == stop - start
    await agrees(one)
    assert await one.rewards.backlog(0) == 0


def one_url(store: Store) -> str:
    return str(store.redis.address)


async def test_many_workers_on_one_log(one: Store):
    """Six race for every batch while rewards come in: each entry is folded by exactly one of them."""
    cycles = Cycles(batch=5, least_s=0.0, most_s=0.0)  # none leaves the log to another for so long
    rng = np.random.default_rng(0)
    log = [("xyz"[i % 3], list(rng.normal(size=DIM)), float(rng.normal()), True) for i in range(300)]

    class Leaving(Seen):
        """Its worker stops after a hundred: one that is always the first leaves the rest to the others."""

        def folded(self, step: Step) -> None:
            super().folded(step)
            if self.entries > 100:
                crew[next(number for number, seen in enumerate(told) if seen is self)].stop()

    told: list[Seen] = [Leaving() for _ in range(6)]
    crew = [worker(one, seen, cycles=cycles) for seen in told]
    running = [asyncio.create_task(each.run()) for each in crew]
    await append(one, log)

    async def done() -> bool:
        return await one.rewards.backlog(0) == 0

    await wait_until(done, what="the log is applied")
    for each in crew:
        each.stop()
    await asyncio.gather(*running)
    await agrees(one)
    assert sum(seen.entries for seen in told) == 300
    assert sum(seen.entries > 0 for seen in told) > 1, "they did race"
    assert all(seen.resynced for seen in told)


@pytest.mark.parametrize(
    "where", ["learners.watermark", "rewards.read", "learners.stored", "learners.apply", "reply lost"]
)
async def test_a_crash_anywhere_is_made_good_by_the_next_worker(one: Store, where: str):
    log = [("x", [1.0, 2.0, float(i)], 0.5, True) for i in range(10)]
    await append(one, log)
    lossy: Any = LossyStore(one)

    class Crash(BaseException):
        pass

    async def crash() -> None:
        raise Crash

    if where == "reply lost":
        lossy.hold["learners.apply"] = asyncio.Event()
        task = asyncio.create_task(worker(lossy).drain())

        async def written() -> bool:
            return bool(lossy.held["learners.apply"])

        await wait_until(written, what="the states are written")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await one.rewards.backlog(0) == 0
    else:
        lossy.before[where] = crash
        with pytest.raises(Crash):
            await worker(lossy).drain()
        assert (await states(one, "x"))[LearnerId(UID, "x")] is None, "nothing was written"
        assert await one.rewards.backlog(0) == 10
    await append(one, log[:3], start=100)
    await worker(one).drain()
    await agrees(one)
    assert await one.rewards.backlog(0) == 0


async def test_a_worker_that_was_slower_writes_nothing(one: Store):
    """Another one applies the same entries, and more, between its reading and its writing."""
    await append(one, [("x", [1.0, 0.0, 0.0], 1.0, True)])
    lossy: Any = LossyStore(one)
    seen = Seen()

    async def overtake() -> None:
        await append(one, [("x", [0.0, 1.0, 0.0], 1.0, True)], start=50)
        await worker(one).drain()

    lossy.before["learners.apply"] = overtake
    await worker(lossy, seen).drain()
    assert seen.entries == 0
    assert seen.resynced == [0, 0], "at its start, and when another one was faster"
    await agrees(one)


async def test_an_entry_that_is_none_of_ours_is_a_dead_letter(store: Store, store_url: str):
    """Somebody wrote into a stream by hand."""
    async with connect(store_url) as client:
        await client.xadd("shortlist3:{p:0}:log", {"no": "field of ours"})
    seen = Seen()
    going = worker(store, seen)
    running = asyncio.create_task(going.run())
    for partition in range(store.partitions):
        write = RewardWrite(LearnerId(UID, "x"), 10**13, payload([1.0], 1.0), "n", ttl_ms=TTL_MS)
        await store.rewards.append(partition, [write])
        going.wake(partition)

    async def done() -> bool:
        return seen.entries == store.partitions + 1

    await wait_until(done, what="all partitions are applied")
    assert [len(await store.rewards.dead_letters(p)) for p in range(store.partitions)] == [1] + [0] * 15
    going.stop()
    await running


async def test_after_a_cycle_that_took_long_more_is_applied_in_one_step(
    one: Store, monkeypatch: pytest.MonkeyPatch
):
    """Unless a partition has more entries than a cycle applies: they are not kept waiting."""
    cycles = Cycles(factor=1e12, most_s=3_600, batch=2)
    going, steps = worker(one, poll_s=3_600, cycles=cycles), list[int]()
    monkeypatch.setattr(going, "_folded", lambda step: steps.append(step.entries))
    await append(one, [("x", [1.0, 2.0, 3.0], 1.0, True)] * 5)
    async with asyncio.timeout(60):
        await going.drain()
    assert steps == [2, 2, 1]
    running = asyncio.create_task(going.run())
    await append(one, [("x", [1.0, 2.0, 3.0], 1.0, True)], start=5)
    going.wake(0)
    await append(one, [("x", [1.0, 2.0, 3.0], 1.0, True)], start=6)
    going.wake(0)
    assert steps == [2, 2, 1]
    *_, last = await one.rewards.read(0, "0-0", 10)
    assert await going.wait_applied(0, last.entry_id) is True
    assert steps == [2, 2, 1, 2]
    going.stop()
    await running


async def test_trimming_keeps_what_is_not_applied_and_changes_no_state(one: Store):
    log = [("x", [1.0, 2.0, float(i)], 0.5, True) for i in range(20)]
    await append(one, log[:10])
    going = worker(one)
    await going.drain()
    before = await states(one)
    await append(one, log[10:], start=10)
    await trim(one, 3_600)
    assert [entry.entry_id for entry in await one.rewards.read(0, "0-0", 100)] != []
    assert await one.rewards.backlog(0) == 10
    assert await states(one) == before
    going.wake(0)
    await going.drain()
    data = (await states(one))[LearnerId(UID, "x")]
    rows = np.array([row for _, row, *_ in log])
    sums = ridge_sums.add(ridge_sums.empty(DIM), rows, np.full(20, 0.5), np.ones(20, dtype=bool))
    assert data == state_to_bytes(LearnerState(20, sums))


async def test_stopping_finishes_the_batch_at_hand(one: Store):
    await append(one, [("x", [1.0, 2.0, float(i)], 0.5, True) for i in range(10)])
    lossy: Any = LossyStore(one)
    going = worker(lossy)

    async def stop() -> None:
        going.stop()

    lossy.before["learners.apply"] = stop
    async with asyncio.timeout(60):
        await going.run()
    assert await one.rewards.backlog(0) == 0
    await agrees(one)
