"""Contract of a store: the order of changes of arms that an engine has a copy of, and who follows it."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.storage.store import Store
from app.storage.types import ArmWrite, Position

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

UID = "0123456789abcdef"
KEPT = {"keep_ms": 60_000, "keeps_changes": True}
UIDS = itertools.count()
IDS = ["B", "a", "a-1", "a.1", "a:1", "a_1", "aB", "b", "z9"]  # a locale would order them otherwise


async def upsert(store: Store, *ids: str, uid: str = UID, tag: bytes = b"1") -> int:
    return (await store.arms.upsert(uid, [ArmWrite(arm, tag, b"d" + tag) for arm in ids], **KEPT)).version


async def test_changes_stand_in_the_order_of_versions_then_of_bytes(store: Store):
    assert await store.followed_arms.changes(UID, Position(), 10) == []
    first = await upsert(store, *IDS)
    second = await upsert(store, "a", "new", tag=b"2")
    expected = [Position(first, arm) for arm in sorted(IDS, key=str.encode) if arm != "a"]
    expected += [Position(second, "a"), Position(second, "new")]
    for place in range(len(expected)):
        after = expected[place - 1] if place else Position()
        found = await store.followed_arms.changes(UID, after, 3)
        assert found == expected[place : place + 3], "also after an arm in the middle of a version"
    assert await store.followed_arms.changes(UID, Position(), 99, newest=first) == expected[:-2]
    assert await store.followed_arms.changes(UID, Position(first, "aA"), 1) == [Position(first, "aB")], (
        "absent"
    )
    assert await store.followed_arms.at_ranks(UID, [0, len(expected) - 1, 99]) == [expected[0].arm, "new"]
    assert await store.followed_arms.noted(UID) == len(expected)


async def test_an_arm_is_read_with_its_document(store: Store):
    await upsert(store, "a", "b")
    await store.arms.upsert(UID, [ArmWrite("bare", b"3")], **KEPT)
    none, bare, a = await store.followed_arms.read(UID, ["no", "bare", "a"])
    assert none is None
    assert (bare.id, bare.features, bare.document) == ("bare", b"3", b"")
    assert (a.revision, a.features, a.document) == (1, b"1", b"d1")
    assert await store.followed_arms.read(UID, []) == []


async def test_one_owner_follows_until_it_leaves(store: Store):
    version = await upsert(store, "a", "b")
    seen = await store.followed_arms.look(UID)
    assert (seen.version, seen.arms, seen.pending, seen.position) == (version, 2, 2, Position())
    assert (seen.collection, seen.is_ours) == ("", False)
    assert (await store.followed_arms.follow(UID, "me", 60_000)).is_ours
    assert (await store.followed_arms.follow(UID, "me", 60_000)).is_ours
    assert not (await store.followed_arms.follow(UID, "you", 60_000)).is_ours
    await store.followed_arms.leave(UID, "you")
    assert not (await store.followed_arms.follow(UID, "you", 60_000)).is_ours
    await store.followed_arms.leave(UID, "me")
    assert (await store.followed_arms.follow(UID, "you", 60_000)).is_ours


async def test_who_lost_the_lease_sends_the_follower_back(store: Store):
    for arm in IDS:
        await upsert(store, arm)
    begun, written, later = Position(2, "a"), Position(4, "a.1"), Position(7, "aB")
    said = {"collection": "one", "quality": b"q"}
    assert (await store.followed_arms.follow(UID, "me", 60_000)).is_ours
    assert await store.followed_arms.advance(UID, "me", before=Position(), after=begun, **said)
    seen = await store.followed_arms.look(UID)
    assert (seen.position, seen.collection, seen.quality) == (begun, "one", b"q")
    await store.followed_arms.leave(UID, "me")  # as when it expired while this one was paused
    assert (await store.followed_arms.follow(UID, "you", 60_000)).is_ours
    assert await store.followed_arms.advance(UID, "you", before=begun, after=later, **said)
    assert not await store.followed_arms.advance(UID, "me", before=begun, after=written, **said)
    assert (await store.followed_arms.look(UID)).position == begun
    assert await store.followed_arms.advance(UID, "you", before=begun, after=later, **said)
    other = said | {"collection": "old"}
    assert not await store.followed_arms.advance(UID, "me", before=begun, after=written, **other)
    assert (await store.followed_arms.look(UID)).position == later, "it wrote to another collection"


async def test_deleted_arms_leave_the_order_unless_they_changed_since(store: Store):
    await upsert(store, "a", "b", "c")
    gone = (await store.arms.delete(UID, ["a", "b"], **KEPT)).version
    await upsert(store, "b")
    deleted = [Position(gone, "a"), Position(gone, "b"), Position(1, "c")]
    await store.followed_arms.forget(UID, deleted)
    assert [arm for _, arm in await store.followed_arms.changes(UID, Position(), 9)] == ["c", "b"]
    assert await store.followed_arms.forget(UID, []) is None


async def test_a_deleted_catalogue_is_followed_by_nobody(store: Store):
    await upsert(store, "a")
    await store.registry.erase_catalogue(UID)
    assert not (await store.followed_arms.follow(UID, "me", 60_000)).is_ours
    said = {"collection": "one", "quality": b"", "before": Position(), "after": Position(1, "a")}
    assert not await store.followed_arms.advance(UID, "me", **said)


STEP = st.tuples(st.booleans(), st.lists(st.sampled_from(IDS), min_size=1, max_size=4, unique=True))


@settings(max_examples=40)
@given(steps=st.lists(STEP, max_size=20), page=st.integers(1, 5))
async def test_who_follows_in_pages_has_what_the_store_has(store: Store, steps, page):
    """However writes and pages take turns."""
    uid = f"{next(UIDS):016x}"
    mine, position = dict[str, bytes](), Position()

    async def follow() -> int:
        nonlocal position
        some = await store.followed_arms.changes(uid, position, page)
        for change, arm in zip(some, await store.followed_arms.read(uid, [c.arm for c in some]), strict=True):
            mine.pop(change.arm, None)
            if arm is not None:
                mine[change.arm] = arm.features
        position = some[-1] if some else position
        return len(some)

    for tag, (delete, ids) in enumerate(steps):
        if delete:
            await store.arms.delete(uid, ids, **KEPT)
        else:
            await upsert(store, *ids, uid=uid, tag=str(tag).encode())
        await follow()
    while await follow():
        pass
    stored = {arm: found.features for arm in IDS for found in await store.arms.read(uid, [arm]) if found}
    assert mine == stored
