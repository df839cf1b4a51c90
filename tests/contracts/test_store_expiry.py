"""Contract of a store: what is kept of decisions outlives them, whatever the store's clock does.

A jump of the clock is a margin of ``drop_expired``: below zero, the clock is ahead.
"""

import time

import numpy as np
import pytest

from app.platform.errors import Invalid
from app.storage import redis_keys as keys
from app.storage.store import Store
from app.storage.types import DecisionId, DefaultWrite, LearnerId, RewardWrite, SignalWrite
from learner_names import UID, learner_in
from store_clients import connect

pytestmark = pytest.mark.anyio

ANN, BOB = learner_in(0, 4, "ann"), learner_in(0, 4, "bob")
HOUR_MS = 3_600_000


def now() -> int:
    return time.time_ns() // 1_000_000


def reward(name: str, expires_ms: int, *, learner: LearnerId = ANN, known: int = 0) -> RewardWrite:
    """The only reward of the decision ``name``, which is also its decision key."""
    signal = SignalWrite(name, 0, 1.0)
    return RewardWrite(learner, known, name.encode(), None, expires_ms=expires_ms, signal=signal)


async def append(store: Store, *rewards: RewardWrite) -> list[str]:
    return [outcome.status for outcome in await store.rewards.append(0, rewards)]


async def drop(store: Store, *, ahead_ms: int = 0) -> int:
    return await store.waiting.drop_expired(0, margin_ms=-ahead_ms, count=1_000)


async def forget(store: Store, learner: LearnerId = ANN, *, ttl_ms: int = HOUR_MS, later_ms: int = 0) -> int:
    """The number of the entry."""
    entry = await store.side_data.append_forget(learner, payload=b"F", now_ms=now() + later_ms, ttl_ms=ttl_ms)
    return int(entry.partition("-")[2])


async def test_a_decision_is_a_duplicate_until_it_is_refused(store: Store):
    soon = now() + HOUR_MS
    assert await append(store, reward("a", soon), reward("a", soon)) == ["accepted", "duplicate"]
    assert await drop(store) == 0
    assert await append(store, reward("a", soon)) == ["duplicate"]
    assert await drop(store, ahead_ms=2 * HOUR_MS) == 1  # the clock was ahead, and now it is right again
    assert await append(store, reward("a", soon), reward("b", soon)) == ["expired", "expired"]
    later = soon + HOUR_MS
    assert await append(store, reward("c", later), reward("c", later)) == ["accepted", "duplicate"]
    assert [entry.payload for entry in await store.rewards.read(0, "0-0", 10)] == [b"a", b"c"]


async def test_what_is_dropped_is_what_expired(store: Store, store_server: str):
    times = [now() + hours * HOUR_MS for hours in (-2, 1, 3)]
    for name, expires_ms in zip("abc", times, strict=True):
        await append(store, reward(name, expires_ms))
    for ahead_ms, left in ((0, 2), (2 * HOUR_MS, 1), (4 * HOUR_MS, 0)):
        await drop(store, ahead_ms=ahead_ms)
        async with connect(store_server) as client:
            found = [key async for key in client.scan_iter("shortlist3:{p:0}:seen*")]
        assert len(found) == (left + 1 if left else 0), "the hashes, and the list of them"


@pytest.mark.rest
async def test_after_a_jump_what_is_decided_anew_is_accepted_at_once(store: Store):
    """Even when it expires as early as what was dropped: it knows of the rewards that were counted."""
    soon = now() + HOUR_MS
    assert await append(store, reward("a", soon, known=0)) == ["accepted"]
    assert await drop(store, ahead_ms=2 * HOUR_MS) == 1
    assert await append(store, reward("a", soon, known=0), reward("b", soon, known=0)) == ["expired"] * 2
    assert await append(store, reward("c", soon, known=1), reward("c", soon, known=1)) == [
        "accepted",
        "duplicate",
    ]


async def test_a_decision_that_knows_more_than_the_store_counts_once_too(store: Store):
    """The store was put back from a copy: its log is shorter than it was when it was decided."""
    soon = now() + HOUR_MS
    assert await append(store, reward("a", soon, known=1_000)) == ["accepted"]
    assert await drop(store, ahead_ms=2 * HOUR_MS) == 1
    assert await append(store, reward("a", soon, known=1_000)) == ["expired"]


async def run_at_random(store: Store, seed: int, *, forgetful: bool = False) -> int:
    """How many of many decisions were counted twice, with drops by a clock that jumps in between.

    ``forgetful``: the bounds are lost.
    """
    rng = np.random.default_rng(seed)
    start, counted = now(), dict[bytes, int]()
    decisions = list[RewardWrite]()
    for step in range(400):
        if rng.random() < 0.03:
            await drop(store, ahead_ms=int(rng.integers(-4 * HOUR_MS, 4 * HOUR_MS)))
            if forgetful:
                await store.redis.command("DEL", keys.refused(0))  # type: ignore[attr-defined]
        if not decisions or rng.random() < 0.2:
            expires_ms = start + int(rng.integers(-HOUR_MS, 4 * HOUR_MS))
            decisions.append(reward(f"{step}", expires_ms, known=sum(counted.values())))
        write = decisions[int(rng.integers(len(decisions)))]
        [status] = await append(store, write)
        counted[write.payload] = counted.get(write.payload, 0) + (status == "accepted")
    assert sum(counted.values()) > 10
    return sum(count > 1 for count in counted.values())


@pytest.mark.parametrize("seed", range(3))
async def test_no_decision_counts_twice_whatever_the_clock_does(store: Store, seed: int):
    assert await run_at_random(store, seed) == 0


@pytest.mark.rest
async def test_without_the_bounds_they_would(store: Store):
    assert await run_at_random(store, 0, forgetful=True) > 0


@pytest.mark.rest
async def test_who_is_forgotten_takes_nothing_that_was_decided_before_whatever_the_clocks_say(store: Store):
    """Only the entries of the log count."""
    late = now() + HOUR_MS
    assert await append(store, reward("a", late, known=0)) == ["accepted"]
    entry = await forget(store)
    assert await append(store, reward("b", late, known=entry - 1)) == ["forgotten"]
    assert await append(store, reward("c", late, known=entry)) == ["accepted"]
    assert await append(store, reward("b", late, learner=BOB, known=0)) == ["accepted"]
    assert await drop(store) == 0
    assert await drop(store, ahead_ms=2 * HOUR_MS) == 2
    late += 2 * HOUR_MS
    assert await append(store, reward("d", late, known=entry - 1)) == ["expired"]
    assert await append(store, reward("d", late, known=entry)) == ["accepted"]


@pytest.mark.rest
async def test_what_is_known_of_the_forgotten_only_grows(store: Store):
    late = now() + HOUR_MS
    first = await forget(store)
    last = await forget(store, ttl_ms=1, later_ms=1_000)
    assert first < last
    assert await drop(store) == 0, "the longer time holds"
    assert await append(store, reward("a", late, known=first)) == ["forgotten"]
    assert await append(store, reward("a", late, known=last)) == ["accepted"]


async def test_keys_are_kept_for_a_default_that_is_owed(store: Store):
    """Else the default would be counted beside the reward."""
    expires_ms = now() - HOUR_MS  # the worker was away
    rewarded, other = DecisionId(ANN, "one"), DecisionId(ANN, "two")
    for decision in (rewarded, other):
        await store.waiting.log(decision, b"r", due_ms=expires_ms, expires_ms=expires_ms, known_entry=0)
    assert await append(store, reward("one/a", expires_ms)) == ["accepted"]
    assert await drop(store) == 0
    writes = [DefaultWrite(each, f"{each.id}/a", 1, expires_ms, 0, b"default") for each in (rewarded, other)]
    await store.waiting.append_defaults(0, [rewarded, other], writes)
    assert [entry.payload for entry in await store.rewards.read(0, "0-0", 10)] == [b"one/a", b"default"]
    assert await drop(store) == 1


@pytest.mark.rest
async def test_what_is_refused_is_neither_logged_nor_activated(store: Store):
    expires_ms = now() - HOUR_MS
    await append(store, reward("a", expires_ms))
    assert await drop(store) == 1
    decision = DecisionId(ANN, "one")
    await store.waiting.log(decision, b"r", due_ms=1, expires_ms=expires_ms, known_entry=0)
    assert not (await store.waiting.due(0, 2**45, 10)).decisions
    terms = {"known_entry": 0, "ttl_ms": 1_000, "record": b"r", "due_ms": 1}
    assert await store.waiting.activate(decision, expires_ms=expires_ms, **terms) == "expired"  # type: ignore[arg-type]
    assert await store.waiting.activate(decision, expires_ms=now(), **terms) == "activated"  # type: ignore[arg-type]


@pytest.mark.rest
async def test_a_decision_key_needs_a_time_to_expire(store: Store):
    for write in (
        RewardWrite(ANN, 1, b"", "x", ttl_ms=1_000, signal=SignalWrite("d", 0, 1.0)),
        RewardWrite(ANN, 1, b"", "x"),
        RewardWrite(ANN, 1, b"", "x", ttl_ms=0),
    ):
        with pytest.raises(Invalid):
            await append(store, write)
    assert not await store.rewards.read(0, "0-0", 10)


@pytest.mark.rest
async def test_of_a_deleted_bandit_no_dedupe_key_is_left(store: Store, store_server: str):
    late = now() + HOUR_MS
    other = LearnerId("f" * 16, ANN.name)
    await append(store, reward("a", late), reward("b", late + HOUR_MS), reward("a", late, learner=other))
    await forget(store)
    await store.side_data.erase_bandit(UID)
    async with connect(store_server) as client:
        hashes = [key async for key in client.scan_iter("*seen-until*")]
        fields = [field for key in hashes for field in await client.hkeys(key)]
        assert await client.zcard(keys.forgotten_until(0)) == 0
    assert len(fields) == 1
    assert b"f" * 16 in fields[0]
