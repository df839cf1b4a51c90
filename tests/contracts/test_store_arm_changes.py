"""Contract of a store: how processes hear of arms that others have changed."""

import asyncio
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.storage.arms import TOGETHER
from app.storage.store import Store
from app.storage.types import ArmChanges, ArmWrite

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

UID = "0123456789abcdef"
TTL_MS = 60_000


async def upsert(store, *ids, tag=b"1"):
    done = await store.arms.upsert(UID, [ArmWrite(id_, tag) for id_ in ids], keep_ms=TTL_MS)
    return done.version


async def changed(store, since):
    found = await store.arms.changed(UID, since)
    return found.version, None if found.ids is None else set(found.ids)


async def test_changed_arms_are_those_written_since(store: Store):
    assert await changed(store, 0) == (0, set())
    one = await upsert(store, "a", "b")
    two = await upsert(store, "b", "c", tag=b"2")
    assert await changed(store, two) == (two, set())
    assert await changed(store, one) == (two, {"b", "c"})
    assert await changed(store, 0) == (two, {"a", "b", "c"})
    three = (await store.arms.delete(UID, ["a", "no"], keep_ms=TTL_MS)).version
    assert await changed(store, two) == (three, {"a"}), "a deletion is a change"
    assert [arm and arm.features for arm in await store.arms.read(UID, ["c", "a", "b"])] == [b"2", None, b"2"]
    assert await store.arms.read(UID, []) == []


async def test_catalogues_that_are_behind_are_those_in_another_version(store: Store):
    version = await upsert(store, "a", "b")
    other, empty = "fedcba9876543210", "00112233445566ff"
    assert await store.arms.behind({}) == []
    assert await store.arms.behind({UID: version, other: 0, empty: 0}) == []
    assert await store.arms.behind({other: 0, UID: version - 1, empty: 0}) == [UID]
    await store.arms.upsert(other, [ArmWrite("a", b"1")], keep_ms=TTL_MS)
    assert await store.arms.behind({other: 0, UID: version + 7, empty: 0}) == [other, UID], (
        "also a lost write"
    )


async def test_catalogues_that_were_written_are_named_on_one_server(store: Store):
    other = "fedcba9876543210"
    assert not (await store.arms.changed_catalogues(0)).ids
    await upsert(store, "a", "b")
    await upsert(store, "a", "b")  # which changes nothing
    await store.arms.upsert(other, [ArmWrite("a", b"1")], keep_ms=TTL_MS)
    both = await store.arms.changed_catalogues(0)
    if store.redis.is_cluster:
        assert both.ids is None
        return
    assert both == ArmChanges(2, [UID, other])
    await store.arms.delete(UID, ["a", "no"], keep_ms=TTL_MS)
    assert await store.arms.changed_catalogues(2) == ArmChanges(3, [UID])
    assert await store.arms.fit(other, 1, b"basis", [ArmWrite("a", b"2")], keeps_changes=False)
    assert await store.arms.changed_catalogues(3) == ArmChanges(4, [other])
    assert await store.arms.changed_catalogues(4) == ArmChanges(4)
    assert await store.arms.changed_catalogues(5) == ArmChanges(4, None), "the store has lost writes"


async def test_more_catalogues_than_one_call_asks_for(store: Store):
    uids = [f"{n:016x}" for n in range(2 * TOGETHER + 1)]
    changed = [uids[0], uids[TOGETHER], uids[-1]]
    for uid in changed:
        await store.arms.upsert(uid, [ArmWrite("a", b"1")], keep_ms=TTL_MS)
    assert await store.arms.behind(dict.fromkeys(uids, 0)) == changed


async def test_what_changed_nothing_is_no_change_and_says_so(store: Store):
    first = await store.arms.upsert(UID, [ArmWrite("a", b"1")], keep_ms=TTL_MS)
    again = await store.arms.upsert(UID, [ArmWrite("a", b"1")], keep_ms=TTL_MS)
    assert (first.changed, again.changed, again.version) == (True, False, first.version)
    document = await store.arms.upsert(UID, [ArmWrite("a", b"1", b"new")], keep_ms=TTL_MS)
    assert document.changed
    assert await changed(store, first.version) == (document.version, {"a"}), "filters read documents"


async def test_a_version_that_the_store_never_had_is_not_known(store: Store):
    """The store came back from a copy that is older than what the process has seen."""
    version = await upsert(store, "a")
    assert await changed(store, version + 5) == (version, None)


async def test_changes_are_forgotten_oldest_first_and_that_is_noticed(store: Store):
    store.arms.changes_kept = 10
    versions = [await upsert(store, f"a{i}") for i in range(40)]
    now = versions[-1]
    assert await changed(store, versions[0]) == (now, None)
    assert await changed(store, versions[-2]) == (now, {"a39"})
    known = [v for v in versions if (await changed(store, v))[1] is not None]
    assert 9 <= len(known) <= 12
    for version in known:
        assert await changed(store, version) == (now, {f"a{i}" for i in range(version, 40)})


UIDS = itertools.count()
STEP = st.tuples(st.booleans(), st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=4, unique=True))


@settings(max_examples=40)
@given(steps=st.lists(STEP, max_size=25), looks=st.sets(st.integers(0, 25)), kept=st.integers(2, 12))
async def test_a_follower_has_what_the_store_has(store: Store, steps, looks, kept):
    """It looks now and then, reads what changed, or everything when that is not known."""
    store.arms.changes_kept = kept
    uid = f"{next(UIDS):016x}"
    mine, version = {}, 0
    for number, (delete, ids) in enumerate(steps):
        if delete:
            await store.arms.delete(uid, ids, keep_ms=TTL_MS)
        else:
            await store.arms.upsert(uid, [ArmWrite(i, b"%d" % number) for i in ids], keep_ms=TTL_MS)
        if number in looks or number == len(steps) - 1:
            found = await store.arms.changed(uid, version)
            if found.ids is None:
                mine = {arm.id: arm.revision async for batch in store.arms.scan(uid) for arm in batch}
            else:
                for id_, arm in zip(found.ids, await store.arms.read(uid, found.ids), strict=True):
                    mine.pop(id_, None)
                    if arm is not None:
                        mine[id_] = arm.revision
            version = found.version
            stored = {arm.id: arm.revision async for batch in store.arms.scan(uid) for arm in batch}
            assert (mine, version) == (stored, await store.arms.version(uid))
    await store.arms.delete(uid, list("abcdefghij"), keep_ms=TTL_MS)


async def test_many_arms_changed_at_once_by_many_writers(store: Store):
    """Every version is of one writer, and a follower at any of them hears of all later ones."""
    done = await asyncio.gather(*(upsert(store, f"a{i}", f"b{i}") for i in range(50)))
    assert sorted(done) == list(range(1, 51))
    for since in (0, 10, 49):
        later = {name for i, version in enumerate(done) if version > since for name in (f"a{i}", f"b{i}")}
        assert await changed(store, since) == (50, later)
