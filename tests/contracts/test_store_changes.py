"""Contract of a store: what processes tell each other about changes, workers, lag and dead letters."""

import asyncio
import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_store_folding import fill
from test_store_rewards import TTL_MS, UID, append, forget, log_of, reward
from waiting import until

from app.storage import redis_keys
from app.storage.protocol import ArmWrite, DeadLetter, Store

pytestmark = pytest.mark.anyio

LOST = "8" * 13 + "-99"


async def upsert(store, *ids, tag=b"1"):
    done = await store.upsert_arms(UID, [ArmWrite(id_, tag) for id_ in ids], keep_ms=TTL_MS)
    return done.version


async def changed(store, since):
    found = await store.changed_arms(UID, since)
    return found.version, None if found.ids is None else set(found.ids)


async def test_changed_arms_are_those_written_since(store: Store):
    assert await changed(store, 0) == (0, set())
    one = await upsert(store, "a", "b")
    two = await upsert(store, "b", "c", tag=b"2")
    assert await changed(store, two) == (two, set())
    assert await changed(store, one) == (two, {"b", "c"})
    assert await changed(store, 0) == (two, {"a", "b", "c"})
    three = (await store.delete_arms(UID, ["a", "no"], keep_ms=TTL_MS)).version
    assert await changed(store, two) == (three, {"a"}), "a deletion is a change"
    assert [arm and arm.features for arm in await store.arms(UID, ["c", "a", "b"])] == [b"2", None, b"2"]
    assert await store.arms(UID, []) == []


async def test_what_changed_nothing_is_no_change_and_says_so(store: Store):
    first = await store.upsert_arms(UID, [ArmWrite("a", b"1")], keep_ms=TTL_MS)
    again = await store.upsert_arms(UID, [ArmWrite("a", b"1")], keep_ms=TTL_MS)
    assert (first.changed, again.changed, again.version) == (True, False, first.version)
    document = await store.upsert_arms(UID, [ArmWrite("a", b"1", b"new")], keep_ms=TTL_MS)
    assert document.changed
    assert await changed(store, first.version) == (document.version, set()), "features are as they were"


async def test_a_version_that_the_store_never_had_is_not_known(store: Store):
    """The store came back from a copy that is older than what the process has seen."""
    version = await upsert(store, "a")
    assert await changed(store, version + 5) == (version, None)


async def test_changes_are_forgotten_oldest_first_and_that_is_noticed(store: Store, monkeypatch):
    monkeypatch.setattr(redis_keys, "CHANGES_KEPT", 10)
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


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(STEP, max_size=25), looks=st.sets(st.integers(0, 25)), kept=st.integers(2, 12))
async def test_a_follower_has_what_the_store_has(store: Store, monkeypatch, steps, looks, kept):
    """It looks now and then, reads what changed, or everything when that is not known."""
    monkeypatch.setattr(redis_keys, "CHANGES_KEPT", kept)
    uid = f"{next(UIDS):016x}"
    mine, version = {}, 0
    for number, (delete, ids) in enumerate(steps):
        if delete:
            await store.delete_arms(uid, ids, keep_ms=TTL_MS)
        else:
            await store.upsert_arms(uid, [ArmWrite(i, b"%d" % number) for i in ids], keep_ms=TTL_MS)
        if number in looks or number == len(steps) - 1:
            found = await store.changed_arms(uid, version)
            if found.ids is None:
                mine = {arm.id: arm.revision async for batch in store.scan_arms(uid) for arm in batch}
            else:
                for id_, arm in zip(found.ids, await store.arms(uid, found.ids), strict=True):
                    mine.pop(id_, None)
                    if arm is not None:
                        mine[id_] = arm.revision
            version = found.version
            stored = {arm.id: arm.revision async for batch in store.scan_arms(uid) for arm in batch}
            assert (mine, version) == (stored, await store.catalogue_version(uid))
    await store.delete_arms(uid, list("abcdefghij"), keep_ms=TTL_MS)


async def learners(store, since):
    found = await store.changed_learners(0, since)
    return found.watermark, None if found.learners is None else set(found.learners)


async def test_changed_learners_are_those_applied_since(store: Store, monkeypatch):
    ids = await fill(store, 6)
    ann, bob = (UID, "ann"), (UID, "b:ob")
    assert await learners(store, "") == ("0-0", None)
    assert await learners(store, "0-0") == ("0-0", set())
    await store.apply(0, expected="0-0", watermark=ids[1], states={ann: b"1"})
    await store.apply(0, expected=ids[1], watermark=ids[2], states={bob: b"1"})
    await store.apply(0, expected=ids[2], watermark=ids[3], states={ann: None})
    assert await learners(store, "0-0") == (ids[3], {ann, bob})
    assert await learners(store, ids[1]) == (ids[3], {ann, bob})
    assert await learners(store, ids[2]) == (ids[3], {ann}), "a removal is a change"
    assert await learners(store, ids[3]) == (ids[3], set())
    assert await learners(store, LOST) == (ids[3], None)
    assert (await store.changed_learners(0, ids[2])).removed == [ann]
    assert (await store.changed_learners(0, ids[3])).newest == ids[5]
    assert await store.apply(0, expected="0-0", watermark=ids[4], states={bob: b"2"}) is False
    assert await learners(store, ids[3]) == (ids[3], set())
    monkeypatch.setattr(redis_keys, "CHANGES_KEPT", 2)
    await store.apply(0, expected=ids[3], watermark=ids[4], states={(UID, f"{n}"): b"1" for n in range(5)})
    assert await learners(store, ids[2]) == (ids[4], None)


async def test_the_registry_has_a_version(store: Store):
    versions = [await store.registry_version()]
    for change in (
        store.create_catalogue("films", UID.encode()),
        store.create_bandit("b", UID.encode(), catalogue="films"),
        store.delete_bandit("b", UID, catalogue="films"),
        store.delete_catalogue("films", UID),
    ):
        await change
        versions.append(await store.registry_version())
        assert (await store.registry()).version == versions[-1]
    assert sorted(set(versions)) == versions
    await store.delete_catalogue("films", UID)
    assert await store.registry_version() == versions[-1]


async def bury(store, entries):
    before = await store.watermark(0)
    letters = [DeadLetter(entry, "too strange") for entry in entries]
    return await store.apply(
        0, expected=before, watermark=entries[-1].entry_id, states={}, dead=letters
    ), letters


async def test_dead_letters_are_kept_with_their_reason_and_replayed_once(store: Store):
    await append(store, reward("1"), reward("2", first="w"), reward("3", first="w"))
    entries = await log_of(store)
    applied, letters = await bury(store, entries[1:])
    assert applied
    assert await store.dead_letters(0) == letters
    assert (await store.lag(0)).dead == 2
    new = await store.replay_dead(0, letters)
    assert await store.dead_letters(0) == []
    assert await store.backlog(0) == 2
    again = (await log_of(store))[3:]
    assert [(e.entry_id, e.origin, e.payload, e.first) for e in again] == [
        (id_, old.entry_id, old.payload, old.first) for id_, old in zip(new, entries[1:], strict=True)
    ]
    assert await store.replay_dead(0, letters) == ["missing", "missing"]
    assert await store.backlog(0) == 2, "a repetition puts nothing back"
    await store.trim_log(0, 2**45)
    assert len(await store.read_log(0, "0-0", 10)) == 2


async def test_a_replayed_entry_may_die_again(store: Store):
    await append(store, reward("1"))
    _, letters = await bury(store, await log_of(store))
    await store.replay_dead(0, letters)
    (entry,) = await store.read_log(0, letters[0].entry.entry_id, 1)
    await bury(store, [entry])
    (letter,) = await store.dead_letters(0)
    assert (letter.entry.payload, letter.reason) == (entry.payload, "too strange")
    await store.replay_dead(0, [letter])
    assert (await log_of(store))[-1].origin == entry.entry_id


async def test_a_dead_letter_of_a_forgotten_learner_is_not_replayed(store: Store):
    await append(store, reward("1"), reward("2", learner="bob"))
    entries = await log_of(store)
    _, letters = await bury(store, entries)
    await forget(store, 5_000)
    outcome = await store.replay_dead(0, letters)
    assert outcome[0] == "forgotten"
    assert [e.learner.name for e in await store.read_log(0, entries[-1].entry_id, 9)][-1] == "bob"


async def test_an_applier_that_was_slower_buries_nothing(store: Store):
    ids = await fill(store, 2)
    entries = await log_of(store)
    await store.apply(0, expected="0-0", watermark=ids[0], states={})
    letter = DeadLetter(entries[0], "why")
    assert not await store.apply(0, expected="0-0", watermark=ids[0], states={}, dead=[letter])
    assert await store.dead_letters(0) == []


async def test_lag_is_the_age_of_the_oldest_entry_that_waits(store: Store):
    assert await store.lag(0) == await store.lag(1)
    assert (await store.lag(0)).age_s == 0.0
    ids = await fill(store, 2)

    async def aged():
        return (await store.lag(0)).age_s > 0

    await until(aged, what="the entry grows old")
    await store.apply(0, expected="0-0", watermark=ids[1], states={})
    assert (await store.lag(0)).age_s == 0.0


async def test_workers_know_each_other_until_their_lease_runs_out(store: Store):
    assert await store.join_workers("a", TTL_MS) == ["a"]
    assert set(await store.join_workers("b", TTL_MS)) == {"a", "b"}
    await store.leave_workers("a")
    assert await store.join_workers("b", TTL_MS) == ["b"]
    await store.leave_workers("b")
    await store.join_workers("dies", TTL_MS)

    async def alone():
        return await store.join_workers("lives", 1) == ["lives"]

    await until(alone, what="the lease of the dead worker runs out")


async def test_all_states_come_with_their_watermark(store: Store):
    ids = await fill(store, 2)
    other = "fedcba9876543210"
    states = {(UID, "ann"): b"1", (other, "ann"): b"2", ("0" * 16, "x"): b"3"}
    await store.apply(0, expected="0-0", watermark=ids[1], states=states)
    watermark, found = await store.all_states(0, [UID, other])
    assert (watermark, found) == (ids[1], {key: states[key] for key in list(states)[:2]})
    assert await store.all_states(1, []) == ("0-0", {})


async def test_many_arms_changed_at_once_by_many_writers(store: Store):
    """Every version is of one writer, and a follower at any of them hears of all later ones."""
    done = await asyncio.gather(*(upsert(store, f"a{i}", f"b{i}") for i in range(50)))
    assert sorted(done) == list(range(1, 51))
    for since in (0, 10, 49):
        later = {name for i, version in enumerate(done) if version > since for name in (f"a{i}", f"b{i}")}
        assert await changed(store, since) == (50, later)
