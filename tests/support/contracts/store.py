"""What a server must do to be a store: each step is whole, happens once, and all processes see the same."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from app.storage.store import Store
from app.storage.types import LearnerId, RewardWrite
from learner_names import UID, learner_in

KEEP_MS = 60_000
MANY = 50


def reward(dedupe_key: str, learner: LearnerId, *, payload: bytes = b"p") -> RewardWrite:
    return RewardWrite(learner, 1_000, payload, dedupe_key, ttl_ms=KEEP_MS)


@pytest.mark.anyio
class StoreContract:
    """Give it a fixture ``store``: an open, empty `Store` on the server, with four partitions."""

    async def test_an_entry_counts_once_however_often_it_is_sent(self, store: Store) -> None:
        learner = learner_in(0, store.partitions)
        calls = [store.rewards.append(0, [reward("one", learner)]) for _ in range(MANY)]
        statuses = Counter(outcome.status for answer in await asyncio.gather(*calls) for outcome in answer)
        assert sorted(statuses.values()) == [1, MANY - 1]
        assert len(await store.rewards.read(0, "0-0", 1_000)) == 1

    async def test_entries_come_back_in_order_and_to_the_byte(self, store: Store) -> None:
        learner = learner_in(0, store.partitions)
        payloads = [bytes(range(256)), b"", b"\r\n$-1\r\n", bytes(1 << 16)]
        writes = [reward(f"{place}", learner, payload=payload) for place, payload in enumerate(payloads)]
        outcomes = await store.rewards.append(0, writes)
        entries = await store.rewards.read(0, "0-0", 1_000)
        assert [entry.entry_id for entry in entries] == [outcome.entry_id for outcome in outcomes]
        assert [entry.payload for entry in entries] == payloads

    async def test_states_change_with_the_watermark_or_not_at_all(self, store: Store) -> None:
        learner = learner_in(0, store.partitions)
        outcomes = await store.rewards.append(0, [reward("one", learner), reward("two", learner)])
        first, second = (outcome.entry_id for outcome in outcomes)
        apply = store.learners.apply
        assert await apply(0, expected="0-0", watermark=first, states={learner: b"1"})
        assert not await apply(0, expected="0-0", watermark=second, states={learner: b"2"})
        assert await store.learners.watermark(0) == first
        (stored,) = await store.learners.stored(0, [learner])
        assert stored.checkpoint == b"1"
        assert await apply(0, expected=first, watermark=second, states={learner: None})
        assert (await store.learners.stored(0, [learner]))[0].checkpoint is None

    async def test_of_many_that_write_a_value_one_wins_and_all_learn_which(self, store: Store) -> None:
        learner = learner_in(0, store.partitions)
        values = [b"%d" % number for number in range(MANY)]
        events = [store.choices.put_event(learner, "event", value, ttl_ms=KEEP_MS) for value in values]
        once = [store.write_once.put(0, "value", value, ttl_ms=None) for value in values]
        records = [
            store.registry.create_catalogue("films", UID[:-2].encode() + b"%02d" % number)
            for number in range(MANY)
        ]
        for calls in (events, once, records):
            assert len(set(await asyncio.gather(*calls))) == 1

    async def test_workers_know_each_other(self, store: Store) -> None:
        assert await store.leases.join("a", KEEP_MS) == ["a"]
        assert set(await store.leases.join("b", KEEP_MS)) == {"a", "b"}
        await store.leases.leave("a")
        assert await store.leases.join("b", KEEP_MS) == ["b"]

    async def test_it_says_how_durable_its_writes_are(self, store: Store) -> None:
        assert await store.redis.durability() == "always"
