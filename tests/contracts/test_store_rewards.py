"""Contract of a store: the reward log, its duplicates, and learners that were forgotten."""

import asyncio
import time

import numpy as np
import pytest

from app.platform.errors import Invalid, Unavailable
from app.storage import redis_keys
from app.storage.store import Store
from app.storage.types import LearnerId, RewardWrite, SignalWrite
from learner_names import UID, learner_in
from store_clients import connect
from waiting import wait_until

pytestmark = pytest.mark.anyio

OTHER_UID = "fedcba9876543210"
ANN = learner_in(0, 4).name
TTL_MS = 60_000


def reward(dedupe_key, *, uid=UID, learner=ANN, first=None, known=0, ttl_ms=TTL_MS, payload=b"p"):
    """Of a decision that does not expire here, if it is named."""
    who = LearnerId(uid, learner), known, payload, dedupe_key
    if first is None:
        return RewardWrite(*who, ttl_ms=ttl_ms)
    return RewardWrite(*who, expires_ms=2**45, signal=SignalWrite(first, 0, 1.0, "sum"))


def order(entry_id):
    milliseconds, number = entry_id.split("-")
    return int(milliseconds), int(number)


async def append(store, *rewards, partition=0):
    return [outcome.status for outcome in await store.rewards.append(partition, rewards)]


async def forget(store, now_ms, *, ttl_ms=TTL_MS):
    return await store.side_data.append_forget(
        LearnerId(UID, ANN), payload=b"F", now_ms=now_ms, ttl_ms=ttl_ms
    )


async def log_of(store, partition=0):
    return list(await store.rewards.read(partition, "0-0", 100_000))


async def test_entries_come_back_in_order_and_bit_for_bit(store: Store):
    rng = np.random.default_rng(3)
    payloads = [b"", bytes(range(256)), rng.bytes(1 << 20), b"\r\n$-1\r\n"]
    writes = [
        reward(f"o{i}", uid=(UID, OTHER_UID)[i % 2], learner=f"l:{i}", payload=payload)
        for i, payload in enumerate(payloads)
    ]
    outcomes = await store.rewards.append(0, writes)
    entries = await log_of(store)
    assert [e.entry_id for e in entries] == [o.entry_id for o in outcomes]
    assert [(e.learner, e.payload) for e in entries] == [(w.learner, w.payload) for w in writes]
    assert all(e.first for e in entries)


@pytest.mark.rest
async def test_a_thousand_entries_in_one_call(store: Store):
    writes = [reward(f"{i}", learner=f"{i % 37}", first=f"{i % 100}") for i in range(1_000)]
    outcomes = await store.rewards.append(2, writes)
    assert {o.status for o in outcomes} == {"accepted"}
    assert [o.entry_id for o in outcomes] == [e.entry_id for e in await log_of(store, 2)]
    assert await store.rewards.backlog(2) == 1_000


@pytest.mark.rest
async def test_a_dedupe_key_seen_before_is_a_duplicate(store: Store):
    assert await append(store, reward("x"), reward("x"), reward("y")) == ["accepted", "duplicate", "accepted"]
    assert await append(store, reward("y"), reward("z")) == ["duplicate", "accepted"]
    assert len(await log_of(store)) == 3


@pytest.mark.rest
async def test_whoever_waits_for_the_entry_of_a_duplicate_waits_for_its_first_copy(store: Store):
    one, two, again = await store.rewards.append(0, [reward("x"), reward("y"), reward("x")])
    assert (again.status, again.entry_id) == ("duplicate", two.entry_id)
    [later] = await store.rewards.append(0, [reward("x")])
    assert order(one.entry_id) <= order(later.entry_id) == order(two.entry_id)
    await store.learners.apply(0, expected="0-0", watermark=two.entry_id, states={})
    await store.rewards.trim(0, 2**45)
    [after_trimming] = await store.rewards.append(0, [reward("x")])
    assert after_trimming.entry_id == two.entry_id, "which the watermark has reached"


@pytest.mark.rest
async def test_dedupe_keys_belong_to_one_learner_of_one_bandit(store: Store):
    writes = [
        reward("x"),
        reward("x", learner="bob"),
        reward("x", uid=OTHER_UID),
        reward("b:c", learner="a"),
        reward("c", learner="a:b"),
        reward("3.x", learner="1"),
        reward("x", learner="1:3."),
        reward("x", learner=f"{ANN}:{UID}"),
    ]
    assert await append(store, *writes) == ["accepted"] * len(writes)
    assert await append(store, *writes) == ["duplicate"] * len(writes)


@pytest.mark.rest
async def test_dedupe_keys_belong_to_one_partition(store: Store):
    for partition in range(store.partitions):
        assert await append(store, reward("x"), partition=partition) == ["accepted"]
    for partition in range(store.partitions):
        assert len(await log_of(store, partition)) == 1


@pytest.mark.rest
async def test_the_first_with_its_decision_key_is_marked(store: Store):
    await append(store, reward("1", first="d"), reward("2", first="d"), reward("3", first="e"), reward("4"))
    await append(store, reward("1", first="f"), reward("5", first="d"), reward("6", first="f"), reward("7"))
    assert [e.first for e in await log_of(store)] == [True, False, True, True, False, True, True]


async def test_a_dedupe_key_may_be_used_again_after_its_time(store: Store):
    await append(store, reward("x", ttl_ms=40), reward("y"))

    async def accepted_again():
        return await append(store, reward("x")) == ["accepted"]

    await wait_until(accepted_again, what="the key expires")
    assert await append(store, reward("x"), reward("y")) == ["duplicate", "duplicate"]


@pytest.mark.rest
async def test_a_time_to_live_below_one_is_refused_and_nothing_is_appended(store: Store):
    with pytest.raises(Invalid, match="ttl_ms"):
        await append(store, reward("x"), reward("y", ttl_ms=0))
    assert await log_of(store) == []
    assert await append(store, reward("x")) == ["accepted"]


@pytest.mark.rest
async def test_of_a_hundred_appends_with_one_dedupe_key_exactly_one_is_accepted(store: Store):
    outcomes = await asyncio.gather(*(append(store, reward("x", payload=b"%d" % i)) for i in range(100)))
    assert sorted(status for [status] in outcomes) == ["accepted"] + ["duplicate"] * 99
    [entry] = await log_of(store)
    assert entry.payload == b"%d" % outcomes.index(["accepted"])


@pytest.mark.rest
async def test_of_a_hundred_rewards_with_one_decision_key_exactly_one_is_the_first(store: Store):
    await asyncio.gather(*(append(store, reward(f"{i}", first="d")) for i in range(100)))
    assert sorted(e.first for e in await log_of(store)) == [False] * 99 + [True]


@pytest.mark.rest
async def test_pages_of_the_log_cover_it_once_in_order(store: Store):
    calls = [[reward(f"{n}-{i}") for i in range(n % 7)] for n in range(80)]
    outcomes = await asyncio.gather(*(store.rewards.append(0, writes) for writes in calls))
    after, pages = "0-0", []
    while page := await store.rewards.read(0, after, 7):
        pages.append(page)
        after = page[-1].entry_id
    ids = [entry.entry_id for page in pages for entry in page]
    assert {len(page) for page in pages[:-1]} == {7}
    assert ids == sorted(ids, key=order)
    assert set(ids) == {o.entry_id for call in outcomes for o in call}
    for call in outcomes:  # a call is atomic: its entries are neighbours
        positions = [ids.index(o.entry_id) for o in call]
        assert positions == list(range(positions[0], positions[0] + len(call))) if call else True


@pytest.mark.rest
async def test_rewards_of_decisions_before_forgetting_are_refused(store: Store):
    assert await append(store, reward("0")) == ["accepted"]
    assert order(await forget(store, 1_000))[1] == 2
    late = [reward("1", known=0), reward("2", known=1), reward("3", known=2)]
    assert await append(store, *late) == ["forgotten", "forgotten", "accepted"]
    others = [reward("1", learner="bob"), reward("1", uid=OTHER_UID)]
    assert await append(store, *others) == ["accepted", "accepted"]
    assert [e.payload for e in await log_of(store)] == [b"p", b"F", b"p", b"p", b"p"]


@pytest.mark.rest
async def test_a_refused_reward_does_not_take_its_dedupe_key(store: Store):
    await forget(store, 1_000, ttl_ms=60)
    assert await append(store, reward("x", first="d")) == ["forgotten"]
    assert await append(store, reward("x", known=1, first="d")) == ["accepted"]
    assert (await log_of(store))[-1].first


@pytest.mark.rest
async def test_refusing_ends_but_a_shorter_call_does_not_shorten_it(store: Store):
    await forget(store, 1_000)
    await forget(store, 1_001, ttl_ms=40)
    since_ms = time.time_ns() // 1_000_000
    assert await store.waiting.drop_expired(0, margin_ms=since_ms - 50_000, count=10) == 0, (
        "the shorter time is over"
    )
    assert await append(store, reward("x")) == ["forgotten"]
    assert await store.waiting.drop_expired(0, margin_ms=since_ms - 70_000, count=10) == 1


async def test_appends_of_one_moment_are_each_accepted_or_refused_alone(store: Store):
    """Of all partitions, with duplicates between them: whoever comes first has the key."""
    learners = [learner_in(n % 4, 4, f"key-{n}") for n in range(40)]
    keys = [f"{n % 3}" for n in range(40)]
    pairs = zip(learners, keys, strict=True)
    writes = [RewardWrite(to, 1, b"p", key, ttl_ms=TTL_MS) for to, key in pairs] * 2
    outcomes = await asyncio.gather(*(store.rewards.append(w.learner.partition(4), [w]) for w in writes))
    assert [[o.status for o in outcome] for outcome in outcomes] == [["accepted"]] * 40 + [["duplicate"]] * 40
    for partition in range(4):
        entries = await log_of(store, partition)
        accepted = [o for w, [o] in zip(writes, outcomes, strict=True) if w.learner.partition(4) == partition]
        assert {e.entry_id for e in entries} == {o.entry_id for o in accepted[: len(entries)]}
        assert [order(e.entry_id)[1] for e in entries] == list(range(1, 11)), "without a gap"


async def test_a_broken_key_of_one_partition_refuses_that_one_alone(store: Store, store_server: str):
    async with connect(store_server) as client:
        await client.set(redis_keys.log(1), "no stream")
        appends = (store.rewards.append(n % 4, [reward(f"{n}", learner=f"{n}")]) for n in range(16))
        outcomes = await asyncio.gather(*appends, return_exceptions=True)
        for n, outcome in enumerate(outcomes):
            assert isinstance(outcome, Unavailable) == (n % 4 == 1), outcome
        await client.delete(redis_keys.log(1))
    assert await append(store, reward("1", learner="1"), partition=1) == ["accepted"], "its key was not taken"
    assert [len(await log_of(store, partition)) for partition in range(4)] == [4, 1, 4, 4]
