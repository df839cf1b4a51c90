"""Checkpoints and tails: wherever a state is cut into the two, every reader has the bits of the whole log."""

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_reward_ingestion import DIM, SETTINGS, TTL_MS, UID, encoded, one, worker
from test_workers_on_one_log import one_url, trim

from app.fold import fold_batches
from app.fold.checkpoints import ENTRY_BYTES, LearnerReader, is_due, restored
from app.fold.fold import fold
from app.records.log_entries import RewardEntry, decoded_all, encode
from app.records.records import LearnerState, vector_to_bytes
from app.rewards.erasure import FORGET
from app.storage import redis_keys
from app.storage.store import Store
from app.storage.types import LearnerId, LogEntry, RewardWrite
from log_entries import entry_of
from lossy_store import LossyStore
from store_clients import connect, flush
from workers.reward_ingestion import RewardWorker

pytestmark = pytest.mark.anyio
__all__ = ["one"]

NAMES = ("x", "y")
STEP = st.one_of(
    st.tuples(st.just("reward"), st.sampled_from("xy"), st.integers(0, 2**32)),
    st.tuples(st.just("reward"), st.sampled_from("xy"), st.integers(0, 2**32)),
    st.tuples(st.just("poison"), st.sampled_from("xy"), st.none()),
    st.tuples(st.just("forget"), st.sampled_from("xy"), st.none()),
    st.tuples(st.just("work"), st.integers(0, 2), st.none()),
    st.tuples(st.just("trim"), st.none(), st.none()),
    st.tuples(st.just("erase"), st.sampled_from("xy"), st.none()),
)


async def reward(store: Any, name: str, seed: int, number: int, half_life_s: float = 0.0) -> None:
    """One reward."""
    rng = np.random.default_rng(seed)
    decided_ms, features = 1_000 * int(rng.integers(11)), vector_to_bytes(rng.normal(size=DIM))
    content = RewardEntry(features, float(rng.normal()), decided_ms=decided_ms, half_life_s=half_life_s)
    write = RewardWrite(LearnerId(UID, name), 2**42, encode(content), f"n{number}", ttl_ms=TTL_MS)
    assert (await store.rewards.append(0, [write]))[0].status == "accepted"


async def held(store: Any) -> dict[LearnerId, bytes | None]:
    names = [LearnerId(UID, name) for name in NAMES]
    found = zip(names, await store.learners.stored(0, names), strict=True)
    return encoded({name: restored(name, stored) for name, stored in found})


@SETTINGS
@given(
    steps=st.lists(STEP, max_size=40),
    due=st.lists(st.booleans(), min_size=1, max_size=7),
    half_life_s=st.sampled_from([0.0, 2.5]),
    capacity=st.sampled_from([1, 1 << 20]),
)
async def test_whatever_is_written_whole_the_states_are_the_log_folded(
    one: Store, steps: list[Any], due: list[bool], half_life_s: float, capacity: int
):
    """Through checkpoints at any place, workers that take turns, trimming, erasing, with a reader beside."""
    async with connect(one_url(one)) as client:
        await flush(client)
    log, forgotten = list[LogEntry](), dict[str, str]()
    reader = LearnerReader(one.learners, capacity_bytes=capacity)
    crew = [worker(one) for _ in range(3)]
    for member in crew:
        member._kept.capacity = capacity  # private: how much it may keep in this test

    async def take(step: str, who: Any, seed: int | None, number: int) -> None:
        if step == "reward":
            await reward(one, who, seed or 0, number, half_life_s)
        elif step == "poison":
            write = RewardWrite(LearnerId(UID, who), 2**42, b"\xc1", f"n{number}", ttl_ms=TTL_MS)
            await one.rewards.append(0, [write])
        elif step == "forget":
            times = {"now_ms": number + 1, "ttl_ms": TTL_MS}
            forgotten[who] = await one.side_data.append_forget(LearnerId(UID, who), payload=FORGET, **times)
        elif step == "erase" and who in forgotten:
            # private: one step of housekeeping at a time
            await one.side_data._erase_entries(0, LearnerId(UID, who), forgotten[who])
        elif step == "trim":
            await trim(one, 3_600)
        elif step == "work":
            crew[who].wake(0)
            await crew[who].drain()

    async def check() -> None:
        states = encoded(fold({}, decoded_all(log), lambda entry, reason: None))
        expected = {LearnerId(UID, name): states.get(LearnerId(UID, name)) for name in NAMES}
        assert await held(one) == expected
        assert encoded({learner: await reader.read(0, learner) for learner in expected}) == expected

    choices = iter(due * 1_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold_batches, "is_due", lambda state, tail, was_read: next(choices))
        for number, (step, who, seed) in enumerate([*steps, ("work", 0, None)]):
            await take(step, who, seed, number)
            log += await one.rewards.read(0, log[-1].entry_id if log else "0-0", 1_000)
            if step == "work":
                await check()
        before = await held(one)
        await trim(one, 3_600)
        assert await held(one) == before
        assert await one.rewards.read(0, "0-0", 10) == []


async def test_a_worker_reads_no_state_twice_until_it_is_overtaken(one: Store):
    lossy: Any = LossyStore(one)
    mine, other = worker(lossy), worker(one)

    async def work(each: RewardWorker, number: int) -> None:
        await reward(one, "x", number, number)
        each.wake(0)
        await each.drain()

    await work(mine, 9)  # what is new and small is not kept
    await work(mine, 0)
    asked = lossy.calls["learners.stored"]
    reads = []
    one_stored = one.learners.stored

    async def counted(partition: int, learners: Any, known: Any = None) -> Any:
        reads.append(list(learners))
        return await one_stored(partition, learners, known)

    one.learners.stored = counted  # type: ignore[method-assign]
    await work(mine, 1)
    assert (lossy.calls["learners.stored"], reads) == (asked + 1, [[]]), "nothing is asked for"
    await work(other, 2)
    reads.clear()
    await work(mine, 3)
    assert reads == [[LearnerId(UID, "x")]]
    meant = encoded(fold({}, decoded_all(await one.rewards.read(0, "0-0", 10))))
    assert {name: data for name, data in (await held(one)).items() if data} == meant


@pytest.mark.rest
async def test_what_an_apply_without_reply_has_done_is_read_again(one: Store):
    lossy: Any = LossyStore(one)
    mine = worker(lossy)
    for number in range(8):
        await reward(one, "x", number, number)
        mine.wake(0)
        if number % 2:
            lossy.lose.append("learners.apply")
            with pytest.raises(Exception, match="does not answer"):
                await mine.drain()
        else:
            await mine.drain()
    meant = encoded(fold({}, decoded_all(await one.rewards.read(0, "0-0", 100))))
    assert {name: data for name, data in (await held(one)).items() if data} == meant


@pytest.mark.rest
@pytest.mark.parametrize("dim", [1, 3, 16, pytest.param(64, marks=pytest.mark.slow)])
async def test_a_tail_never_takes_more_than_the_state(one: Store, dim: int):
    """And single rewards are seldom written with the whole state."""
    mine, rng = worker(one), np.random.default_rng(2)
    whole = longest = 0
    rewards = 3 * dim + 20
    for number in range(rewards):
        payload = encode(RewardEntry(vector_to_bytes(rng.normal(size=dim)), 1.0))
        write = RewardWrite(LearnerId(UID, "x"), 2**42, payload, f"n{number}", ttl_ms=TTL_MS)
        await one.rewards.append(0, [write])
        mine.wake(0)
        await mine.drain()
        [stored] = await one.learners.stored(0, [LearnerId(UID, "x")])
        tail = sum(len(entry.payload) + ENTRY_BYTES for entry in stored.tail)
        assert tail < 24 + 8 * dim * (dim + 3)
        whole += not stored.tail
        longest = max(longest, len(stored.tail))
    expected = (24 + 8 * dim * (dim + 3)) / (8 * dim + ENTRY_BYTES + 15)
    assert longest <= expected + 1
    assert whole <= rewards / max(1.0, expected - 1) + 1


@pytest.mark.rest
async def test_of_a_tail_that_grows_a_reader_reads_each_entry_once(one: Store):
    mine, reader, read = worker(one), LearnerReader(one.learners, capacity_bytes=1 << 20), []
    one_stored = one.learners.stored

    async def counted(partition: int, learners: Any, known: Any = None) -> Any:
        found = await one_stored(partition, learners, known)
        if known is not None:
            read.append(sum(len(stored.tail) for stored in found))
        return found

    one.learners.stored = counted  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold_batches, "is_due", lambda state, tail, was_read: False)
        for number in range(6):
            await reward(one, "x", number, number)
            mine.wake(0)
            await mine.drain()
            state = await reader.read(0, LearnerId(UID, "x"))
            assert state is not None
            assert state.version == number + 1
    assert read == [1] * 6


@pytest.mark.rest
async def test_a_reader_begins_again_from_a_checkpoint_that_took_the_place_of_the_tail(one: Store):
    mine, reader = worker(one), LearnerReader(one.learners, capacity_bytes=1 << 20)
    learner = LearnerId(UID, "x")
    for number, is_whole in enumerate([False, True, False]):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fold_batches, "is_due", lambda state, tail, was_read, due=is_whole: due)
            await reward(one, "x", number, number)
            mine.wake(0)
            await mine.drain()
        state = await reader.read(0, learner)
        assert state is not None
        assert state.version == number + 1
        assert encoded({learner: state})[learner] == (await held(one))[learner]


async def test_a_tail_that_has_lost_an_entry_is_not_served(one: Store, caplog: pytest.LogCaptureFixture):
    """A reader refuses it, the worker makes its rewards dead letters, and nothing of it is trimmed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold_batches, "is_due", lambda state, tail, was_read: False)
        for number in range(3):
            await reward(one, "x", number, number)
            await worker(one).drain()
    first, *_ = await one.rewards.read(0, "0-0", 10)
    async with connect(one_url(one)) as client:
        await client.xdel(redis_keys.log(0), first.entry_id)
    with pytest.raises(ValueError, match="cannot be folded"):
        await LearnerReader(one.learners, capacity_bytes=1).read(0, LearnerId(UID, "x"))
    await reward(one, "x", 9, 9)
    await worker(one).drain()
    assert ["cannot be read" in letter.reason for letter in await one.rewards.dead_letters(0)] == [True]
    await trim(one, 3_600)
    assert len(await one.rewards.read(0, "0-0", 10)) > 0
    assert "not trimmed" in caplog.text


@pytest.mark.parametrize("call", ["watermark", "stored", "apply"])
async def test_rewards_that_come_while_the_log_is_trimmed_lose_nothing(one: Store, call: str):
    """A checkpoint that somebody overtakes is not written."""
    lossy: Any = LossyStore(one)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold_batches, "is_due", lambda state, tail, was_read: False)
        for number in range(5):
            await reward(one, "x", number, number)
            await worker(one).drain()
        log = list(await one.rewards.read(0, "0-0", 10))

        async def overtake() -> None:
            await reward(one, "x", 7, 7)
            log.extend(await one.rewards.read(0, log[-1].entry_id, 10))
            await worker(one).drain()

        lossy.before[f"learners.{call}"] = overtake
        await trim(lossy, 3_600)
    assert len(log) == 6
    meant = encoded(fold({}, decoded_all(log)))
    assert {name: data for name, data in (await held(one)).items() if data} == meant


@pytest.mark.rest
def test_a_checkpoint_is_due_when_the_tail_is_as_large():
    learner = LearnerId(UID, "x")
    state = fold({}, [entry_of(1, learner, RewardEntry(vector_to_bytes(np.ones(100)), 1.0))])[learner]
    assert isinstance(state, LearnerState)
    assert not is_due(state, 8 * 100 * 103)
    assert is_due(state, 8 * 100 * 103 + 40)


@pytest.mark.rest
async def test_many_readers_and_workers_at_once_agree(one: Store):
    crew, reader = [worker(one) for _ in range(3)], LearnerReader(one.learners, capacity_bytes=1 << 20)
    running = [asyncio.create_task(each.run()) for each in crew]
    seen: list[int] = []
    for number in range(60):
        await reward(one, "xy"[number % 2], number, number)
        for each in crew:
            each.wake(0)
        state = await reader.read(0, LearnerId(UID, "x"))
        seen.append(0 if state is None else state.version)
    for each in crew:
        each.stop()
    await asyncio.gather(*running)
    await worker(one).drain()
    assert seen == sorted(seen)
    meant = encoded(fold({}, decoded_all(await one.rewards.read(0, "0-0", 100))))
    assert {name: data for name, data in (await held(one)).items() if data} == meant
    assert encoded({name: await reader.read(0, name) for name in meant}) == meant
