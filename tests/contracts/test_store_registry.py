"""Contract of a store: the registry of catalogues and bandits."""

import asyncio
import contextlib
from typing import Any

import pytest
from test_store_folding import checkpoints

from app.platform.errors import NotFound, Unavailable
from app.storage.redis_client import RedisClient
from app.storage.store import Store
from app.storage.types import ArmWrite, LearnerId

pytestmark = pytest.mark.anyio

UID, OTHER_UID = "0123456789abcdef", "fedcba9876543210"
KEEP_MS = 60_000


def record(uid, rest=b"{}"):
    return uid.encode() + rest


async def test_the_store_answers_and_knows_its_partitions(store: Store):
    await store.ping()
    assert store.partitions == 4


async def test_what_concerns_all_servers_hinders_no_other_call(store: Store):
    """All leave in the same turn of the loop; two have no key that could say which node they are for."""
    calls = [
        store.learners.watermark(0),
        store.ping(),
        store.redis.durability(),
        *map(store.rewards.backlog, range(4)),
    ]
    assert await asyncio.gather(*calls) == ["0-0", None, "always", 0, 0, 0, 0]


async def test_a_deleted_catalogue_takes_no_arms_from_who_has_not_heard_of_it(store: Store):
    await store.registry.create_catalogue("films", record(UID))
    assert await store.registry.delete_catalogue("films", UID) == "deleted"
    with pytest.raises(NotFound):
        await store.arms.upsert(UID, [ArmWrite("a", b"12345678")], keep_ms=KEEP_MS)
    with pytest.raises(NotFound):
        await store.arms.delete(UID, ["a"], keep_ms=KEEP_MS)
    assert [batch async for batch in store.arms.scan(UID)] == []


async def test_a_deleted_bandit_learns_nothing_from_entries_that_were_under_way(store: Store):
    """A worker has read states and folded when the bandit is deleted; then it writes."""
    await store.registry.create_catalogue("films", record(UID))
    await store.registry.create_bandit("b", record(UID), catalogue="films")
    assert await store.registry.delete_bandit("b", UID, catalogue="films")
    states = {LearnerId(UID, "ann"): b"1", LearnerId(OTHER_UID, "ann"): b"2", LearnerId(UID, "bob"): None}
    for partition in range(store.partitions):
        assert await store.learners.apply(partition, expected="0-0", watermark="1-1", states=states)
        assert await checkpoints(store, partition, list(states)) == [None, b"2", None]
        assert await store.learners.watermark(partition) == "1-1"
        assert (await store.learners.changed({partition: "0-0"}))[partition].learners == [(OTHER_UID, "ann")]


@pytest.mark.parametrize("fails", ["drop_states", "erase_catalogue"])
async def test_a_deletion_that_was_broken_off_is_finished(
    store: Store, monkeypatch: pytest.MonkeyPatch, fails: str
):
    await store.registry.create_catalogue("films", record(UID))
    await store.registry.create_bandit("b", record(OTHER_UID), catalogue="films")
    await store.arms.upsert(UID, [ArmWrite("a", b"12345678")], keep_ms=KEEP_MS)
    await store.learners.apply(1, expected="0-0", watermark="1-1", states={LearnerId(OTHER_UID, "ann"): b"1"})
    script = RedisClient.script

    async def breaks(self: RedisClient, name: str, *arguments: Any) -> Any:
        if name == fails:
            raise Unavailable("the store does not answer")
        return await script(self, name, *arguments)

    with monkeypatch.context() as broken:
        broken.setattr(RedisClient, "script", breaks)
        with contextlib.suppress(Unavailable):
            await store.registry.delete_bandit("b", OTHER_UID, catalogue="films")
        with contextlib.suppress(Unavailable):
            await store.registry.delete_catalogue("films", UID)
    unfinished = {OTHER_UID: "bandit"}
    if fails == "erase_catalogue":
        unfinished[UID] = "catalogue"
    assert await store.registry.deletions() == unfinished
    await store.side_data.erase_bandit(OTHER_UID)
    await store.registry.erase_catalogue(UID)
    assert [batch async for batch in store.arms.scan(UID)] == []
    assert await checkpoints(store, 1, [(OTHER_UID, "ann")]) == [None]
    assert await store.registry.deletions() == {}


async def test_the_registry_has_a_version(store: Store):
    versions = [await store.registry.version()]
    for change in (
        store.registry.create_catalogue("films", UID.encode()),
        store.registry.create_bandit("b", UID.encode(), catalogue="films"),
        store.registry.delete_bandit("b", UID, catalogue="films"),
        store.registry.delete_catalogue("films", UID),
    ):
        await change
        versions.append(await store.registry.version())
        assert (await store.registry.read()).version == versions[-1]
    assert sorted(set(versions)) == versions
    await store.registry.delete_catalogue("films", UID)
    assert await store.registry.version() == versions[-1]
