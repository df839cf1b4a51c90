"""Contract of a store: the arms of a catalogue, their versions, and features that were replaced."""

import asyncio
import struct
import time

import numpy as np
import pytest

from app.platform.errors import Invalid
from app.storage import redis_keys as keys
from app.storage.arms import ReductionUnknown
from app.storage.store import Store
from app.storage.types import ArmWrite
from waiting import wait_until

pytestmark = pytest.mark.anyio

UID, OTHER_UID = "0123456789abcdef", "fedcba9876543210"
KEEP_MS = 60_000


def vector(*values):
    return np.array(values, dtype="<f8").tobytes()


async def arms_of(store, uid=UID):
    """Every arm by id, after checking that each came once."""
    batches = [batch async for batch in store.arms.scan(uid)]
    found = [arm for batch in batches for arm in batch]
    by_id = {arm.id: arm for arm in found}
    assert len(by_id) == len(found), "an arm came twice"
    return by_id


async def test_a_new_arm_gets_the_next_revision(store: Store):
    done = await store.arms.upsert(UID, [ArmWrite("a", vector(1)), ArmWrite("b", vector(2))], keep_ms=KEEP_MS)
    assert (done.version, done.added, done.updated, list(done.revisions)) == (1, 2, 0, [1, 2])
    done = await store.arms.upsert(UID, [ArmWrite("c", vector(3))], keep_ms=KEEP_MS)
    assert (done.version, done.added, done.updated, list(done.revisions)) == (2, 1, 0, [3])
    arms = await arms_of(store)
    assert {i: (a.revision, a.features) for i, a in arms.items()} == {
        "a": (1, vector(1)),
        "b": (2, vector(2)),
        "c": (3, vector(3)),
    }
    assert await store.arms.version(UID) == 2


async def test_the_same_call_again_changes_nothing(store: Store):
    arms = [ArmWrite("a", vector(1), b"doc"), ArmWrite("b", vector(2))]
    first = await store.arms.upsert(UID, arms, keep_ms=KEEP_MS)
    again = await store.arms.upsert(UID, arms, keep_ms=KEEP_MS)
    assert (again.version, again.added, again.updated) == (first.version, 0, 2)
    assert list(again.revisions) == list(first.revisions)
    assert await store.arms.retired_features(UID, 1) is None


@pytest.mark.rest
async def test_replaced_features_get_a_new_revision_and_the_old_stay_readable(store: Store):
    await store.arms.upsert(UID, [ArmWrite("a", vector(1)), ArmWrite("b", vector(2))], keep_ms=KEEP_MS)
    done = await store.arms.upsert(UID, [ArmWrite("a", vector(9)), ArmWrite("b", vector(2))], keep_ms=KEEP_MS)
    assert (done.version, done.added, done.updated, list(done.revisions)) == (2, 0, 2, [3, 2])
    assert await store.arms.retired_features(UID, 1) == vector(1)
    assert await store.arms.retired_features(UID, 2) is None, "a revision that stands is not retired"
    assert (await arms_of(store))["a"].features == vector(9)


@pytest.mark.rest
async def test_features_that_come_back_get_a_revision_of_their_own(store: Store):
    for value in (1, 2, 1):
        await store.arms.upsert(UID, [ArmWrite("a", vector(value))], keep_ms=KEEP_MS)
    assert (await arms_of(store))["a"].revision == 3
    assert [await store.arms.retired_features(UID, r) for r in (1, 2, 3)] == [vector(1), vector(2), None]


@pytest.mark.rest
async def test_an_arm_says_when_its_id_came_whatever_is_written_later(store: Store):
    before = time.time_ns() // 1_000_000
    await store.arms.upsert(UID, [ArmWrite(arm, vector(1)) for arm in "ab"], keep_ms=KEEP_MS)
    assert before - 1_000 < (await arms_of(store))["a"].came_ms < before + 60_000
    for revision, arm in enumerate("ab", 1):  # long ago
        long_ago = struct.pack("<QQ", revision, 5) + vector(1)
        await store.arms._redis.command("HSET", keys.features(UID), arm, long_ago)  # private: no clock waits
    await store.arms.upsert(UID, [ArmWrite("a", vector(2))], keep_ms=KEEP_MS)
    await store.arms.delete(UID, ["b"], keep_ms=KEEP_MS)
    version = (await store.arms.upsert(UID, [ArmWrite("b", vector(1))], keep_ms=KEEP_MS)).version
    assert await store.arms.retired_features(UID, 1) == vector(1)
    writes = [ArmWrite(arm, vector(3)) for arm in "ab"]
    assert await store.arms.fit(UID, version, b"basis", writes, keeps_changes=False)
    arms = await arms_of(store)
    assert arms["a"].came_ms == 5
    assert arms["b"].came_ms == 5, "an id that returns is as old as it was"
    assert {arm.features for arm in arms.values()} == {vector(3)}


@pytest.mark.rest
async def test_an_id_is_new_again_when_nothing_names_it_any_more(store: Store):
    await store.arms.upsert(UID, [ArmWrite("a", vector(1))], keep_ms=KEEP_MS)
    long_ago = struct.pack("<QQ", 1, 5) + vector(1)
    await store.arms._redis.command("HSET", keys.features(UID), "a", long_ago)  # private: no clock waits
    await store.arms.delete(UID, ["a"], keep_ms=1)

    async def is_gone():
        return await store.arms.retired_features(UID, 1) is None

    await wait_until(is_gone, what="what was deleted is forgotten")
    done = await store.arms.upsert(UID, [ArmWrite("a", vector(1)), ArmWrite("b", vector(1))], keep_ms=KEEP_MS)
    assert min(done.came_ms) > 5
    assert list(done.came_ms) == [arm.came_ms for arm in (await arms_of(store)).values()]


@pytest.mark.rest
async def test_arms_are_as_old_as_they_are_said_to_be_and_never_younger(store: Store):
    done = await store.arms.upsert(UID, [ArmWrite(arm, vector(1), b"doc") for arm in "abcd"], keep_ms=KEEP_MS)
    times = {"a": 7, "b": 0, "c": done.came_ms[2] + 1, "nobody": 3}
    for _ in range(2):  # repeated, it changes nothing
        await store.arms.take_times(UID, times)
        arms = await arms_of(store)
        assert {arm: own.came_ms for arm, own in arms.items()} == {
            "a": 7, "b": 0, "c": done.came_ms[2], "d": done.came_ms[3],
        }  # fmt: skip
        assert [arm.revision for arm in arms.values()] == list(done.revisions)
        changes = await store.arms.changed(UID, done.version)
        assert (changes.version, sorted(changes.ids or ())) == (done.version + 1, ["a", "b"])
    assert await store.arms.arms_version(UID) == done.version, "the features are the same"
    again = await store.arms.upsert(UID, [ArmWrite("a", vector(2))], keep_ms=KEEP_MS)
    assert list(again.came_ms) == [7]


@pytest.mark.rest
@pytest.mark.parametrize(("first", "second"), [(0.0, -0.0), (float("nan"), -float("nan")), (1.0, 1 + 2**-52)])
async def test_features_are_compared_byte_for_byte(store: Store, first, second):
    await store.arms.upsert(UID, [ArmWrite("a", vector(first))], keep_ms=KEEP_MS)
    assert list(
        (await store.arms.upsert(UID, [ArmWrite("a", vector(second))], keep_ms=KEEP_MS)).revisions
    ) == [2]
    assert (await arms_of(store))["a"].features == vector(second)


@pytest.mark.rest
async def test_a_document_changes_without_its_features(store: Store):
    await store.arms.upsert(
        UID, [ArmWrite("a", vector(1), b"one"), ArmWrite("b", vector(2))], keep_ms=KEEP_MS
    )
    done = await store.arms.upsert(
        UID, [ArmWrite("a", vector(1), bytes(range(256))), ArmWrite("b", vector(2), b"\x00")], keep_ms=KEEP_MS
    )
    assert (done.version, list(done.revisions)) == (2, [1, 2])
    assert await store.arms.documents(UID, ["b", "nobody", "a"]) == [b"\x00", b"", bytes(range(256))]
    done = await store.arms.upsert(UID, [ArmWrite("a", vector(1), b"")], keep_ms=KEEP_MS)
    assert done.version == 3
    assert await store.arms.documents(UID, ["a", "b"]) == [b"", b"\x00"]
    assert await store.arms.documents(UID, []) == []


@pytest.mark.rest
async def test_the_version_of_the_arms_grows_with_arms_and_features_alone(store: Store):
    assert await store.arms.arms_version(UID) is None
    known = list[int | None]()
    for arm in (
        ArmWrite("a", b"1", b"x"),
        ArmWrite("a", b"1", b"y"),
        ArmWrite("b", b"1"),
        ArmWrite("b", b"2"),
    ):
        await store.arms.upsert(UID, [arm], keep_ms=KEEP_MS)
        known.append(await store.arms.arms_version(UID))
    await store.arms.delete(UID, ["a"], keep_ms=KEEP_MS)
    assert [*known, await store.arms.arms_version(UID)] == [1, 1, 3, 4, 5]
    # One that was written before stores said it: nothing is known of what was before the last version.
    await store.redis.command("HDEL", keys.counters(UID), "arms_version")
    await store.arms.upsert(UID, [ArmWrite("b", b"2", b"z")], keep_ms=KEEP_MS)
    assert await store.arms.arms_version(UID) == 5


async def test_documents_are_read_as_far_as_their_bytes_go(store: Store):
    rng = np.random.default_rng(3)
    sizes = rng.integers(0, 200, 100)
    writes = [ArmWrite(f"a{n}", vector(n), bytes([n]) * size) for n, size in enumerate(sizes.tolist())]
    await store.arms.upsert(UID, writes, keep_ms=KEEP_MS)
    ids = [write.id for write in writes]
    ends = np.cumsum(sizes)
    for most in (0, 1, 500, int(ends[31]), int(ends[32]) - 1, int(ends[32]), int(ends[64]), 10**6):
        count = max(int(ends.searchsorted(most, side="right")), 1)
        found = await store.arms.documents(UID, ids, most_bytes=most)
        assert list(found) == [write.document for write in writes[:count]], most


@pytest.mark.rest
async def test_deleted_arms_are_named_and_their_features_stay_readable(store: Store):
    await store.arms.upsert(
        UID, [ArmWrite("a", vector(1), b"doc"), ArmWrite("b", vector(2))], keep_ms=KEEP_MS
    )
    done = await store.arms.delete(UID, ["a", "nobody", "a"], keep_ms=KEEP_MS)
    assert (done.version, list(done.deleted), list(done.missing)) == (2, ["a"], ["nobody", "a"])
    assert set(await arms_of(store)) == {"b"}
    assert await store.arms.documents(UID, ["a"]) == [b""]
    assert await store.arms.retired_features(UID, 1) == vector(1)
    again = await store.arms.delete(UID, ["a", "nobody"], keep_ms=KEEP_MS)
    assert (again.version, list(again.deleted), list(again.missing)) == (2, [], ["a", "nobody"])
    back = await store.arms.upsert(UID, [ArmWrite("a", vector(1))], keep_ms=KEEP_MS)
    assert list(back.revisions) == [3], "a revision is never used twice"


@pytest.mark.rest
@pytest.mark.parametrize("how", ["replace", "delete"])
async def test_retired_features_live_for_their_time(store: Store, how):
    async def retire(id_, keep_ms):
        if how == "replace":
            await store.arms.upsert(UID, [ArmWrite(id_, vector(9))], keep_ms=keep_ms)
        else:
            await store.arms.delete(UID, [id_], keep_ms=keep_ms)

    await store.arms.upsert(
        UID, [ArmWrite("a", vector(1)), ArmWrite("b", vector(2)), ArmWrite("c", vector(3))], keep_ms=1
    )
    await retire("a", KEEP_MS)
    await retire("b", 2_000)
    await retire("c", 40)
    assert await store.arms.retired_features(UID, 2) == vector(2)

    async def gone():
        await retire("c", KEEP_MS)  # repeating the call does not make it live longer
        return await store.arms.retired_features(UID, 3) is None

    await wait_until(gone, what="the short-lived features expire")
    assert await store.arms.retired_features(UID, 1) == vector(1)


@pytest.mark.rest
async def test_a_time_to_keep_below_one_is_refused_and_nothing_changes(store: Store):
    await store.arms.upsert(UID, [ArmWrite("a", vector(1))], keep_ms=KEEP_MS)
    with pytest.raises(Invalid, match="keep_ms"):
        await store.arms.upsert(UID, [ArmWrite("b", vector(1)), ArmWrite("a", vector(2))], keep_ms=0)
    with pytest.raises(Invalid, match="keep_ms"):
        await store.arms.delete(UID, ["a"], keep_ms=0)
    assert {i: a.features for i, a in (await arms_of(store)).items()} == {"a": vector(1)}


@pytest.mark.rest
async def test_ten_thousand_arms_in_one_call(store: Store):
    rng = np.random.default_rng(7)
    features = [row.tobytes() for row in rng.normal(size=(10_000, 16))]
    ids = [f"arm:{i}" for i in range(10_000)]
    writes = [
        ArmWrite(i, f, b"{}" if n % 3 else b"") for n, (i, f) in enumerate(zip(ids, features, strict=True))
    ]
    done = await store.arms.upsert(UID, writes, keep_ms=KEEP_MS)
    assert (done.version, done.added, done.updated) == (1, 10_000, 0)
    arms = await arms_of(store)
    assert [arms[i].features for i in ids] == features
    assert [arms[i].revision for i in ids] == list(done.revisions) == list(range(1, 10_001))
    gone = await store.arms.delete(UID, ids[:9_900], keep_ms=KEEP_MS)
    assert (gone.version, list(gone.deleted), list(gone.missing)) == (2, ids[:9_900], [])
    assert set(await arms_of(store)) == set(ids[9_900:])
    assert await store.arms.retired_features(UID, 9_900) == features[9_899]
    assert [bool(d) for d in await store.arms.documents(UID, ids)] == [
        n >= 9_900 and n % 3 > 0 for n in range(10_000)
    ]


@pytest.mark.rest
async def test_a_scan_is_exact_while_the_table_shrinks(store: Store):
    """Each arm exactly once, at every size on the way down: servers rehash in steps, over many commands."""
    ids = [f"{i}" for i in range(6_000)]
    await store.arms.upsert(UID, [ArmWrite(i, vector(int(i))) for i in ids], keep_ms=KEEP_MS)
    for left in (3_000, 1_400, 700, 300, 150, 80, 30, 1):
        await store.arms.delete(UID, ids[left:], keep_ms=KEEP_MS)
        assert set(await arms_of(store)) == set(ids[:left])


@pytest.mark.rest
async def test_calls_at_once_get_versions_and_revisions_of_their_own(store: Store):
    calls = [[ArmWrite(f"{n}-{i}", vector(n, i)) for i in range(5)] for n in range(60)]
    done = await asyncio.gather(*(store.arms.upsert(UID, arms, keep_ms=KEEP_MS) for arms in calls))
    assert sorted(d.version for d in done) == list(range(1, 61))
    assert sorted(r for d in done for r in d.revisions) == list(range(1, 301))
    arms = await arms_of(store)
    for call, outcome in zip(calls, done, strict=True):
        assert [arms[a.id].revision for a in call] == list(outcome.revisions)


@pytest.mark.rest
async def test_of_calls_at_once_on_one_arm_the_last_version_stands(store: Store):
    calls = [ArmWrite("a", vector(n)) for n in range(60)]
    done = await asyncio.gather(*(store.arms.upsert(UID, [arm], keep_ms=KEEP_MS) for arm in calls))
    assert sum(d.added for d in done) == 1
    last = max(range(60), key=lambda n: done[n].version)
    assert (await arms_of(store))["a"].features == calls[last].features
    for n, outcome in enumerate(done):
        kept = await store.arms.retired_features(UID, outcome.revisions[0])
        assert kept == (None if n == last else calls[n].features)


@pytest.mark.rest
async def test_a_reduction_is_stored_once_with_all_arms_by_it(store: Store):
    waiting = [ArmWrite("a", vector(0), b"waits"), ArmWrite("b", vector(0), b"waits")]
    before = await store.arms.upsert(UID, waiting, keep_ms=KEEP_MS, knows_reduction=False)
    fitted = [ArmWrite("a", vector(1), b"doc"), ArmWrite("b", vector(2))]
    assert await store.arms.reduction(UID) is None
    stale = before.version - 1, b"stale", fitted
    assert not await store.arms.fit(UID, *stale, keeps_changes=False), "an arm was written since"
    assert await store.arms.reduction(UID) is None
    assert await store.arms.fit(UID, before.version, b"basis", fitted, keeps_changes=False)
    arms = await arms_of(store)
    assert {i: (a.revision, a.features) for i, a in arms.items()} == {
        "a": (3, vector(1)),
        "b": (4, vector(2)),
    }
    assert await store.arms.documents(UID, ["a", "b"]) == [b"doc", b""]
    changes = await store.arms.changed(UID, before.version)
    assert (changes.version, sorted(changes.ids or ())) == (before.version + 1, ["a", "b"])
    for version in (before.version, before.version + 1):
        assert not await store.arms.fit(UID, version, b"another", waiting, keeps_changes=False)
    assert await store.arms.reduction(UID) == b"basis"
    assert await arms_of(store) == arms


@pytest.mark.rest
async def test_who_does_not_know_the_reduction_writes_nothing(store: Store):
    first = await store.arms.upsert(UID, [ArmWrite("a", vector(0))], keep_ms=KEEP_MS, knows_reduction=False)
    await store.arms.fit(UID, first.version, b"basis", [ArmWrite("a", vector(1))], keeps_changes=False)
    with pytest.raises(ReductionUnknown):
        await store.arms.upsert(UID, [ArmWrite("a", vector(9))], keep_ms=KEEP_MS, knows_reduction=False)
    assert (await arms_of(store))["a"].features == vector(1)
    done = await store.arms.upsert(UID, [ArmWrite("a", vector(2))], keep_ms=KEEP_MS)
    assert (await arms_of(store))["a"].features == vector(2)
    assert done.version == first.version + 2
    await store.registry.erase_catalogue(UID)
    assert not await store.arms.fit(UID, done.version, b"late", [], keeps_changes=False)
