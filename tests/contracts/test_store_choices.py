"""Contract of a store: choices made for events."""

import asyncio
import time

import pytest

from app.platform.errors import Invalid
from app.storage import redis_keys
from app.storage.store import Store
from app.storage.types import LearnerId
from waiting import wait_until

pytestmark = pytest.mark.anyio

UID = "0123456789abcdef"
KEEP_MS = 60_000


async def test_an_event_has_the_first_value_that_it_was_given(store: Store):
    ann, bob = LearnerId(UID, "ann"), LearnerId(UID, "bob")
    assert await store.choices.get_event(ann, "e") is None
    assert await store.choices.put_event(ann, "e", b"\x00\xff", ttl_ms=KEEP_MS) == b"\x00\xff"
    assert await store.choices.put_event(ann, "e", b"another", ttl_ms=KEEP_MS) == b"\x00\xff"
    assert await store.choices.put_event(bob, "e", b"his", ttl_ms=KEEP_MS) == b"his"
    assert [await store.choices.get_event(learner, "e") for learner in (ann, bob)] == [b"\x00\xff", b"his"]
    assert await store.choices.get_event(ann, "f") is None


@pytest.mark.rest
async def test_the_clock_of_a_process_says_nothing_of_what_is_kept(store: Store, monkeypatch):
    """Else one that is ahead takes events off the list by which they are erased with their learner."""
    ann = LearnerId(UID, "ann")
    await store.choices.put_event(ann, "first", b"1", ttl_ms=KEEP_MS)
    monkeypatch.setattr(time, "time_ns", lambda: 10**19)
    await store.choices.put_event(ann, "second", b"2", ttl_ms=KEEP_MS)
    events = redis_keys.events(ann.partition(store.partitions), ann)
    assert await store.redis.command("ZRANGE", events, 0, -1) == [b"first", b"second"]


@pytest.mark.rest
async def test_of_a_hundred_choices_for_one_event_all_get_the_same(store: Store):
    ann = LearnerId(UID, "ann")
    values = await asyncio.gather(
        *(store.choices.put_event(ann, "e", b"%d" % n, ttl_ms=KEEP_MS) for n in range(100))
    )
    assert len(set(values)) == 1
    assert await store.choices.get_event(ann, "e") == values[0]


async def test_an_event_is_forgotten_after_its_time(store: Store):
    ann = LearnerId(UID, "ann")
    with pytest.raises(Invalid, match="ttl_ms"):
        await store.choices.put_event(ann, "e", b"1", ttl_ms=0)
    await store.choices.put_event(ann, "e", b"1", ttl_ms=30)

    async def forgotten() -> bool:
        return await store.choices.get_event(ann, "e") is None

    await wait_until(forgotten, what="the event is forgotten")
