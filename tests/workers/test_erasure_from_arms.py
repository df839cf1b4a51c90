"""Forgotten keys are taken out of arms: one pass over the log for many, killed and repeated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import count, islice
from typing import Any

import numpy as np
import pytest
from test_reward_ingestion import TTL_MS, UID, worker

from app.fold.arm_sums import fold_arms
from app.fold.fold_batches import MOST_TAUGHT, batches
from app.fold.replay import compare
from app.platform.errors import Unavailable
from app.records.arm_sums import ArmSums
from app.records.log_entries import RewardEntry, decoded_all, encode
from app.records.records import unpack, vector_to_bytes
from app.rewards.erasure import FORGET
from app.storage import redis_keys
from app.storage.store import Store
from app.storage.types import LearnerId, LogEntry, RewardWrite
from log_entries import entry_of
from store_clients import connect, flush
from store_server import patient_store

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

ARMS = 5
NUMBERS = count()


@pytest.fixture
async def two(store: Store, store_url: str) -> AsyncIterator[Store]:
    """A store with two partitions."""
    async with connect(store_url) as client:
        await flush(client)
    found = patient_store(store_url, partitions=2)
    await found.open()
    yield found
    await found.close()


def keys_of(partition: int, number: int) -> list[LearnerId]:
    """So many keys of a partition."""
    names = (LearnerId(UID, f"k{place}") for place in count())
    return list(islice((each for each in names if each.partition(2) == partition), number))


async def reward(
    store: Store, rng: np.random.Generator, key: LearnerId, value: float | None = None
) -> LogEntry:
    """Append a reward of a key; its entry."""
    served, expected = rng.normal(size=2).tolist()
    content = RewardEntry(
        vector_to_bytes(rng.normal(size=2)),
        rng.normal() if value is None else value,
        arm=f"a{rng.integers(ARMS)}",
        revision=1,
        served=(served,),
        expected=(expected,),
    )
    write = RewardWrite(key, 10**13, encode(content), f"n{next(NUMBERS)}", expires_ms=2**45)
    (appended,) = await store.rewards.append(key.partition(2), [write])
    assert appended.status == "accepted"
    return LogEntry(appended.entry_id, key, write.payload)


async def forget(store: Store, key: LearnerId) -> str:
    now_ms = next(NUMBERS) + 1
    return await store.side_data.append_forget(key, payload=FORGET, now_ms=now_ms, ttl_ms=TTL_MS)


async def drained(store: Store, partition: int = 0) -> Any:
    """A new worker, which has applied all of a partition."""
    mine = worker(store)
    mine.wake(partition)
    await mine.drain()
    assert await store.rewards.backlog(partition) == 0
    return mine


async def stored(store: Store, partition: int = 0) -> Mapping[str, ArmSums]:
    found = dict[str, ArmSums]()
    async for page in store.effects.all_sums(partition, UID):
        found |= {arm: unpack(data, ArmSums) for (arm, _), data in page.items()}
    return found


async def assert_taught_by(store: Store, entries: Iterable[LogEntry]) -> None:
    """Arms have the sums of these entries alone."""
    wanted, found = fold_arms({}, decoded_all(entries), {}, {}), await stored(store)
    assert found.keys() == {arm.arm for arm in wanted}
    for arm, sums in wanted.items():
        assert sums is not None
        own = found[arm.arm]
        assert (own.decisions, own.n, own.F) == (sums.decisions, sums.n, sums.F)
        np.testing.assert_allclose([*own.R, *own.Q], [*sums.R, *sums.Q], rtol=1e-12, atol=1e-12)


def counting(store: Store) -> list[int]:
    """A list that gets the number of learners of each pass over a log."""
    passes, of_learners = list[int](), store.rewards.of_learners

    def counted(partition: int, learners: Sequence[LearnerId], until: str) -> Any:
        passes.append(len(learners))
        return of_learners(partition, learners, until)

    store.rewards.of_learners = counted  # type: ignore[method-assign]
    return passes


async def test_many_keys_go_in_one_pass_and_leave_no_digit(two: Store):
    """One of them returns meanwhile, and is forgotten again, and returns."""
    rng, keys, left = np.random.default_rng(1), keys_of(0, 12), list[LogEntry]()
    for key in keys * 3:
        entry = await reward(two, rng, key, 1e8 if key in keys[:3] else None)
        left += [entry] if key in keys[9:] else []
    await drained(two)
    for key in keys[:9]:
        await forget(two, key)
        left.append(await reward(two, rng, keys[10]))
    await reward(two, rng, keys[0], -1e8)
    await forget(two, keys[0])
    left.append(await reward(two, rng, keys[0]))
    passes = counting(two)
    await drained(two)
    assert passes == [9]
    await assert_taught_by(two, left)
    assert not (await compare(two)).different


async def test_what_is_older_than_the_log_stays(two: Store, store_url: str):
    rng, keys = np.random.default_rng(2), keys_of(0, 4)
    entries = [await reward(two, rng, key) for key in keys * 4]
    mine = await drained(two)
    async with connect(store_url) as client:
        await client.xdel(redis_keys.log(0), *(each.entry_id for each in entries[:6]))
    await forget(two, keys[0])
    mine.wake(0)
    await mine.drain()
    older, newer = entries[:6], entries[6:]
    assert {each.learner for each in older} == set(keys)
    await assert_taught_by(two, [*older, *(each for each in newer if each.learner != keys[0])])


@pytest.mark.parametrize("is_applied", [False, True])
async def test_a_worker_that_is_killed_in_a_batch_of_forgets_changes_nothing(two: Store, is_applied: bool):
    """It is killed before or after the store has done what it asked for, and another one goes on."""
    rng, keys = np.random.default_rng(3), keys_of(0, 8)
    entries = [await reward(two, rng, key, 1e6 * place) for place, key in enumerate(keys * 3)]
    await drained(two)
    for key in keys[:5]:
        await forget(two, key)
    apply = two.learners.apply

    async def killed(*arguments: Any, **named: Any) -> bool:
        if is_applied:
            await apply(*arguments, **named)
        raise Unavailable("killed")

    two.learners.apply = killed  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await drained(two)
    two.learners.apply = apply  # type: ignore[method-assign]
    await drained(two)
    await assert_taught_by(two, [each for each in entries if each.learner in keys[5:]])


async def test_rewards_of_other_partitions_are_applied_during_a_pass(two: Store):
    rng, (key,), (other,) = np.random.default_rng(4), keys_of(0, 1), keys_of(1, 1)
    await reward(two, rng, key)
    await drained(two)
    begun, may_end, of_learners = asyncio.Event(), asyncio.Event(), two.rewards.of_learners

    async def slow(
        partition: int, learners: Sequence[LearnerId], until: str
    ) -> AsyncIterator[Sequence[LogEntry]]:
        begun.set()
        await may_end.wait()
        async for page in of_learners(partition, learners, until):
            yield page

    two.rewards.of_learners = slow  # type: ignore[method-assign]
    mine = worker(two, wait_s=60.0)
    running = asyncio.create_task(mine.run())
    last = await forget(two, key)
    mine.wake(0)
    await begun.wait()
    entry = await reward(two, rng, other)
    mine.wake(1)
    assert await mine.wait_applied(1, entry.entry_id)
    assert await two.rewards.backlog(0) == 1
    may_end.set()
    assert await mine.wait_applied(0, last)
    mine.stop()
    await running
    assert not await stored(two, 0)
    assert len(await stored(two, 1)) == 1


async def test_what_is_a_dead_letter_taught_no_arm_until_it_is_put_back(two: Store):
    rng, (key, other) = np.random.default_rng(5), keys_of(0, 2)
    left = [await reward(two, rng, other) for _ in range(3)]
    await reward(two, rng, key)
    await drained(two)
    # Its features are too many for the learner; it is appended with the entry that forgets the key.
    content = RewardEntry(bytes(72), 5.0, arm="a0", revision=1, served=(0.0,), expected=(0.0,))
    await two.rewards.append(0, [RewardWrite(key, 10**13, encode(content), "long", expires_ms=2**45)])
    await forget(two, key)
    await drained(two)
    (letter,) = await two.rewards.dead_letters(0)
    await assert_taught_by(two, left)
    # The learner is new, so it is learned from now; and the second time it goes with the key.
    assert len(await two.rewards.replay_dead(0, [letter])) == 1
    await forget(two, key)
    await drained(two)
    await assert_taught_by(two, left)


def test_a_batch_takes_no_more_out_of_arms_than_some_milliseconds_are_enough_for():
    entries = [entry_of(place, LearnerId(UID, f"k{place}"), FORGET) for place in range(1, 8)]
    reward_entry = entry_of("0-1", LearnerId(UID, "k"), RewardEntry(b""))
    sizes = [MOST_TAUGHT // 2, MOST_TAUGHT // 2, 1, 5 * MOST_TAUGHT, 0, 0, 1]
    taught = {f"1-{place}": [reward_entry] * size for place, size in enumerate(sizes, start=1)}
    found = [[entry.entry_id for entry, _ in batch] for batch in batches(entries, taught=taught)]
    assert found == [["1-1", "1-2"], ["1-3"], ["1-4"], ["1-5", "1-6", "1-7"]]
