"""Contract of a store: values that are written once."""

import asyncio

import pytest

from app.platform.errors import Invalid
from app.storage.store import Store
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

KEEP_MS = 60_000


async def test_a_value_is_written_once(store: Store):
    assert await store.write_once.get(None, "secret") is None
    assert await store.write_once.put(None, "secret", b"\x00\xff", ttl_ms=None) == b"\x00\xff"
    assert await store.write_once.put(None, "secret", b"another", ttl_ms=None) == b"\x00\xff"
    assert await store.write_once.get(None, "secret") == b"\x00\xff"


async def test_an_empty_value_is_a_value(store: Store):
    assert await store.write_once.put(1, "event", b"", ttl_ms=KEEP_MS) == b""
    assert await store.write_once.put(1, "event", b"later", ttl_ms=KEEP_MS) == b""
    assert await store.write_once.get(1, "event") == b""


async def test_values_of_different_partitions_are_different(store: Store):
    places = [None, 0, 1, 2, 3]
    for place in places:
        value = str(place).encode()
        assert await store.write_once.put(place, "event", value, ttl_ms=KEEP_MS) == value
    assert [await store.write_once.get(place, "event") for place in places] == [
        str(p).encode() for p in places
    ]


async def test_a_hundred_writers_of_a_value_agree(store: Store):
    values = [str(i).encode() for i in range(100)]
    current = await asyncio.gather(*(store.write_once.put(0, "event", v, ttl_ms=KEEP_MS) for v in values))
    assert len(set(current)) == 1
    assert await store.write_once.get(0, "event") == current[0]


async def test_a_value_lives_for_its_time(store: Store):
    await store.write_once.put(0, "short", b"1", ttl_ms=40)
    await store.write_once.put(0, "long", b"1", ttl_ms=KEEP_MS)

    async def gone():
        return await store.write_once.get(0, "short") is None

    await wait_until(gone, what="the value expires")
    assert await store.write_once.get(0, "long") == b"1"
    assert await store.write_once.put(0, "short", b"2", ttl_ms=KEEP_MS) == b"2"


async def test_a_time_to_live_below_one_is_refused(store: Store):
    with pytest.raises(Invalid, match="ttl_ms"):
        await store.write_once.put(0, "event", b"1", ttl_ms=0)
    assert await store.write_once.get(0, "event") is None
