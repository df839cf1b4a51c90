"""Contract of a store: campaigns, their events and snapshots."""

import asyncio

import pytest

from app.storage.store import Store
from app.storage.types import StoredEventLog

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

UID, OTHER_UID = "0123456789abcdef", "fedcba9876543210"
RECORD, OTHER = UID.encode() + b"\x00r", OTHER_UID.encode() + b"o"


async def append(store: Store, position: int, event: bytes, uid: str = UID) -> str:
    return await store.event_logs.append("slates", "home", uid=uid, position=position, event=event)


async def read(store: Store, uid: str = "", position: int = 0, count: int = 100) -> StoredEventLog | None:
    return await store.event_logs.read("slates", "home", uid=uid, position=position, count=count)


async def save(store: Store, position: int, state: bytes, uid: str = UID) -> None:
    await store.event_logs.save_snapshot("slates", "home", uid=uid, position=position, state=state)


async def test_a_name_belongs_to_the_campaign_that_came_first(store: Store):
    assert await store.event_logs.create("slates", "home", RECORD) == RECORD
    assert await store.event_logs.create("slates", "home", OTHER) == RECORD
    assert await store.event_logs.create("centers", "home", OTHER) == OTHER
    assert await read(store) == StoredEventLog(RECORD, 0, None, [])


async def test_of_a_hundred_creators_exactly_one_wins_and_the_name_is_listed_once(store: Store):
    records = [f"{i:016x}".encode() for i in range(100)]
    standing = await asyncio.gather(*(store.event_logs.create("slates", "home", r) for r in records))
    assert len(set(standing)) == 1
    assert await store.event_logs.names("slates") == ["home"]


async def test_an_event_is_appended_at_its_position_or_not_at_all(store: Store):
    assert await append(store, 0, b"e") == "missing"
    await store.event_logs.create("slates", "home", RECORD)
    assert await append(store, 0, bytes(range(256))) == "appended"
    assert await append(store, 0, b"x") == "overtaken"
    assert await append(store, 2, b"x") == "overtaken"
    assert await append(store, 1, b"x", uid=OTHER_UID) == "missing"
    assert await append(store, 1, b"") == "appended"
    assert await read(store, UID) == StoredEventLog(RECORD, 0, None, [bytes(range(256)), b""])


async def test_of_a_hundred_appends_at_one_position_exactly_one_is_made(store: Store):
    await store.event_logs.create("slates", "home", RECORD)
    outcomes = await asyncio.gather(*(append(store, 0, b"%d" % i) for i in range(100)))
    assert sorted(set(outcomes)) == ["appended", "overtaken"]
    found = await read(store)
    assert found is not None
    assert list(found.events) == [b"%d" % outcomes.index("appended")]


async def test_a_read_begins_where_it_is_told_or_at_the_snapshot(store: Store):
    await store.event_logs.create("slates", "home", RECORD)
    for position in range(5):
        assert await append(store, position, b"%d" % position) == "appended"
    assert await read(store, UID, 3) == StoredEventLog(RECORD, 3, None, [b"3", b"4"])
    assert await read(store, UID, 1, 2) == StoredEventLog(RECORD, 1, None, [b"1", b"2"])
    assert await read(store, UID, 5) == StoredEventLog(RECORD, 5, None, [])
    await save(store, 2, b"\x00two")
    assert await read(store, UID, 1, 1) == StoredEventLog(RECORD, 1, None, [b"1"])
    assert await read(store) == StoredEventLog(RECORD, 2, b"\x00two", [b"2", b"3", b"4"])
    assert await read(store, OTHER_UID, 4) == StoredEventLog(RECORD, 2, b"\x00two", [b"2", b"3", b"4"])


async def test_a_snapshot_gives_way_to_a_newer_one_only(store: Store):
    await save(store, 1, b"one")
    assert await read(store) is None
    await store.event_logs.create("slates", "home", RECORD)
    for position, state in ((3, b"three"), (2, b"two"), (3, b"again"), (2**40, b"later")):
        await save(store, position, state)
        found = await read(store)
        assert found is not None
        assert (found.position, found.state) == ((2**40, b"later") if position > 3 else (3, b"three"))
    await save(store, 2**41, b"foreign", uid=OTHER_UID)
    found = await read(store)
    assert found is not None
    assert found.state == b"later"


async def test_a_deleted_campaign_leaves_nothing_and_its_name_is_free(store: Store):
    assert not await store.event_logs.delete("slates", "home")
    await store.event_logs.create("slates", "home", RECORD)
    await append(store, 0, b"e")
    await save(store, 1, b"s")
    assert await store.event_logs.delete("slates", "home")
    assert not await store.event_logs.delete("slates", "home")
    assert await read(store) is None
    assert await store.event_logs.names("slates") == []
    assert await append(store, 0, b"e") == "missing"
    assert await store.event_logs.create("slates", "home", OTHER) == OTHER
    assert await read(store, UID, 1) == StoredEventLog(OTHER, 0, None, [])
    assert await append(store, 0, b"late", uid=UID) == "missing"


async def test_campaigns_are_listed_by_name(store: Store):
    for number, name in enumerate(("b", "a-b", "a", "a.b", "Z")):
        await store.event_logs.create("slates", name, f"{number:016x}".encode())
    assert await store.event_logs.names("slates") == ["Z", "a", "a-b", "a.b", "b"]
    assert await store.event_logs.names("centers") == []
