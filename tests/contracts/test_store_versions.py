"""Versions of the registry and of bandits in every store."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_store_registry import KEEP_MS, OTHER_UID, UID, record

from app.storage.store import Store
from app.storage.types import ArmWrite, BanditChange

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


async def test_a_name_belongs_to_the_record_that_came_first(store: Store):
    first, second = record(UID, bytes(range(256))), record(OTHER_UID)
    assert await store.registry.create_catalogue("films", first) == first
    assert await store.registry.create_catalogue("films", second) == first
    assert (await store.registry.read()).catalogues == {"films": first}


async def test_of_a_hundred_creators_exactly_one_wins_and_all_learn_who(store: Store):
    records = [record(f"{i:016x}") for i in range(100)]
    standing = await asyncio.gather(*(store.registry.create_catalogue("films", r) for r in records))
    assert len(set(standing)) == 1
    assert standing[0] in records
    assert (await store.registry.read()).catalogues == {"films": standing[0]}


async def changed(
    store: Store, number: int, *, expected: bytes, dropped: tuple[int, ...] = ()
) -> bytes | None:
    """The bandit ``b`` from ``expected`` to the record of this number, which is kept."""
    new = record(UID, b"%d" % number)
    change = BanditChange({number - 1: expected, number: new}, dropped)
    return await store.registry.change_bandit("b", UID, change, expected=expected, record=new)


async def test_a_bandit_changes_from_what_it_is_and_keeps_what_it_was(store: Store):
    first = record(UID)
    await store.registry.create_catalogue("films", record(OTHER_UID))
    await store.registry.create_bandit("b", first, catalogue="films")
    version = await store.registry.version()
    second = await changed(store, 2, expected=first)
    assert second == record(UID, b"2")
    assert await store.registry.version() == version + 1
    assert (await store.registry.read()).bandits == {"b": second}
    assert await store.registry.bandit_versions(UID, [2, 1, 3]) == [second, first, None]
    assert await store.registry.bandit_versions(UID, []) == []
    assert await changed(store, 3, expected=first) == second, "it is no longer what was expected"
    assert await store.registry.version() == version + 1
    third = await changed(store, 3, expected=second, dropped=(1,))
    assert await store.registry.bandit_versions(UID, [1, 2, 3]) == [None, second, third]


async def test_of_a_hundred_changes_at_once_one_is_made(store: Store):
    await store.registry.create_catalogue("films", record(OTHER_UID))
    await store.registry.create_bandit("b", record(UID), catalogue="films")
    found = await asyncio.gather(*(changed(store, n, expected=record(UID)) for n in range(2, 102)))
    assert len(set(found)) == 1
    assert (await store.registry.read()).bandits == {"b": found[0]}


async def test_a_deleted_bandit_is_not_changed_and_leaves_no_version(store: Store):
    await store.registry.create_catalogue("films", record(OTHER_UID))
    await store.registry.create_bandit("b", record(UID), catalogue="films")
    second = await changed(store, 2, expected=record(UID))
    assert second
    await store.registry.delete_bandit("b", UID, catalogue="films")
    assert await changed(store, 3, expected=second) is None
    assert await store.registry.bandit_versions(UID, [1, 2, 3]) == [None, None, None]
    await store.registry.create_bandit("b", record("aaaabbbbccccdddd"), catalogue="films")
    assert await changed(store, 3, expected=second) == record("aaaabbbbccccdddd")
    assert await store.registry.bandit_versions(UID, [1, 2, 3]) == [None, None, None]


async def test_a_catalogue_in_use_stays(store: Store):
    await store.registry.create_catalogue("films", record(UID))
    await store.arms.upsert(UID, [ArmWrite("a", b"12345678", b"doc")], keep_ms=KEEP_MS)
    await store.registry.create_bandit("b", record(OTHER_UID), catalogue="films")
    assert await store.registry.delete_catalogue("films", UID) == "in_use"
    assert [arm.id for batch in [b async for b in store.arms.scan(UID)] for arm in batch] == ["a"]
    assert await store.registry.delete_bandit("b", OTHER_UID, catalogue="films")
    assert await store.registry.delete_catalogue("films", UID) == "deleted"
    assert (await store.registry.read()).catalogues == {}


async def test_deleting_again_finishes_what_an_interrupted_deletion_left(store: Store):
    await store.arms.upsert(UID, [ArmWrite("a", b"12345678")], keep_ms=KEEP_MS)  # as if they had been left
    assert await store.registry.delete_catalogue("films", UID) == "missing"
    assert [batch async for batch in store.arms.scan(UID)] == []


async def test_a_catalogue_is_never_deleted_under_a_new_bandit(store: Store):
    for _ in range(50):
        await store.registry.create_catalogue("films", record(UID))
        bandit, outcome = await asyncio.gather(
            store.registry.create_bandit("b", record(UID), catalogue="films"),
            store.registry.delete_catalogue("films", UID),
        )
        assert (bandit, outcome) in {(record(UID), "in_use"), (None, "deleted")}
        await store.registry.delete_bandit("b", UID, catalogue="films")


NAMES = st.sampled_from(["x", "y", "a:b", "A._-1"])


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create_catalogue", "delete_catalogue", "create_bandit", "delete_bandit"]),
        NAMES,
        NAMES,
        st.booleans(),
    ),
    max_size=40,
)


@settings(max_examples=25)
@given(steps=STEPS)
async def test_the_registry_is_two_dictionaries(store: Store, steps):
    """Against a model; a step may be made twice, as after a lost reply, and the second changes nothing."""
    catalogues, bandits, homes = {}, {}, {}
    for name, data in (await store.registry.read()).bandits.items():
        for catalogue in ["x", "y", "a:b", "A._-1"]:
            await store.registry.delete_bandit(name, data[:16].decode(), catalogue=catalogue)
    for name, data in (await store.registry.read()).catalogues.items():
        await store.registry.delete_catalogue(name, data[:16].decode())
    for number, (step, name, catalogue, twice) in enumerate(steps):
        new = record(f"{number:016x}")
        for again in range(1 + twice):
            if step == "create_catalogue":
                assert await store.registry.create_catalogue(name, new) == catalogues.setdefault(name, new)
            elif step == "create_bandit":
                expected = None
                if catalogue in catalogues:
                    expected = bandits.setdefault(name, new)
                    homes.setdefault(name, catalogue)
                assert await store.registry.create_bandit(name, new, catalogue=catalogue) == expected
            elif step == "delete_catalogue":
                uid = catalogues.get(name, new)[:16].decode()
                outcome = await store.registry.delete_catalogue(name, uid)
                if name not in catalogues:
                    assert outcome == "missing"
                elif name in homes.values():
                    assert outcome == "in_use"
                else:
                    assert outcome == "deleted"
                    del catalogues[name]
            else:
                uid = bandits.get(name, new)[:16].decode()
                home = homes.get(name, catalogue)
                assert await store.registry.delete_bandit(name, uid, catalogue=home) == (name in bandits)
                bandits.pop(name, None)
                homes.pop(name, None)
            registry = await store.registry.read()
            assert (registry.catalogues, registry.bandits) == (catalogues, bandits), (step, again)
