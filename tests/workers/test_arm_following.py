"""The follower of a catalogue in Milvus, step by step: what it writes, and what a crash leaves."""

import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from app.catalogues.engine_arms import EngineArms
from app.engines.engine_contract import EngineName
from app.engines.engine_index import EngineIndex
from app.indexes.live import IndexOptions
from app.platform.errors import Unavailable
from app.records.records import ArmDocument, pack, vector_to_bytes
from app.storage import redis_keys
from app.storage.types import ArmWrite, Position
from lossy_store import LossyStore
from shortlist_milvus.engine import MilvusEngine
from workers.arm_following import Following, FollowingLimits

pytestmark = pytest.mark.anyio

DIM = 2
KEPT: dict[str, Any] = {"keep_ms": 60_000, "keeps_changes": True}


@dataclass
class Copy:
    """A catalogue of the store, and its copy in the engine."""

    store: LossyStore
    engine: MilvusEngine
    uid: str

    async def write(self, *arms: str, lot: int = 0) -> None:
        document = pack(ArmDocument([], {"lot": lot}))
        writes = [ArmWrite(arm, vector_to_bytes(np.array([1.0, lot])), document) for arm in arms]
        await self.store.arms.upsert(self.uid, writes, **KEPT)

    async def delete(self, *arms: str) -> None:
        await self.store.arms.delete(self.uid, arms, **KEPT)

    def follower(self, owner: str = "me", **limits: Any) -> Following:
        store, name = self.store.followed_arms, EngineName("milvus", "Milvus", "it is not set")
        index = EngineIndex(self.uid, DIM, IndexOptions(), engine=self.engine, store=store, engine_name=name)
        bounds = FollowingLimits(**limits)
        return Following(index, self.engine, self.store, owner=owner, installation="test", limits=bounds)

    async def held(self) -> dict[str, int]:
        """What the engine has: arms and their revisions."""
        seen = await self.store.followed_arms.look(self.uid)
        options: dict[str, Any] = {"output_fields": ["revision"], "consistency_level": "Bounded"}
        # private: what the server has, past our own reading
        found = await self.engine._client.query(seen.collection, "revision >= 0", **options)
        return {row["id"]: row["revision"] for row in found}

    async def stored(self) -> dict[str, int]:
        return {arm.id: arm.revision async for some in self.store.arms.scan(self.uid) for arm in some}

    async def collections(self) -> list[str]:
        return [name for name in await self.engine.collections() if self.uid in name]


@pytest.fixture
async def copy(store, milvus_uri) -> AsyncIterator[Copy]:
    engine = MilvusEngine(milvus_uri)
    await engine.open()
    copy = Copy(LossyStore(store), engine, secrets.token_hex(8))
    yield copy
    for name in await copy.collections():
        await engine.drop(name)
    await engine.close()


async def followed(follower: Following) -> None:
    while await follower.step():
        pass


@pytest.mark.rest
async def test_the_engine_comes_to_hold_what_the_store_holds(copy):
    follower = copy.follower(page_arms=7)
    await followed(follower)
    assert await copy.held() == {}
    await copy.write(*(f"a{i}" for i in range(20)))
    await copy.write("a3", "b", lot=1)
    await copy.delete("a4", "a5")
    await followed(follower)
    assert await copy.held() == await copy.stored()
    assert len(await copy.held()) == 19
    seen = await copy.store.followed_arms.look(copy.uid)
    assert (seen.pending, seen.position.version) == (0, seen.version)


@pytest.mark.rest
@pytest.mark.parametrize("call", ["advance", "read", "changes", "follow"])
@pytest.mark.parametrize("skipped", range(3))
async def test_a_follower_that_ends_anywhere_is_taken_over_without_a_loss(copy, call, skipped):
    """The reply of one call is lost, which ends the follower; another one goes on from what is noted."""
    await followed(copy.follower("first", page_arms=4))
    await copy.store.followed_arms.leave(copy.uid, "first")
    await copy.write(*(f"a{i}" for i in range(10)))
    await copy.delete("a1", "a7")
    first = copy.follower("first", page_arms=4)
    for _ in range(skipped):
        await first.step()
    copy.store.lose.append(f"followed_arms.{call}")
    with pytest.raises(Unavailable):
        await followed(first)
    await copy.store.followed_arms.leave(copy.uid, "first")  # as when its lease is over
    await copy.write("a2", lot=2)
    await followed(copy.follower("second", page_arms=4))
    assert await copy.held() == await copy.stored()


@pytest.mark.rest
async def test_what_was_written_without_the_lease_is_written_again_by_who_has_it(copy, monkeypatch):
    """It was paused between reading arms and writing them, and woke up when they had changed."""
    first, second = copy.follower("first"), copy.follower("second")
    await followed(first)
    await copy.write("a", "b")
    write = copy.engine.write

    async def paused(name: str, rows: Any, deleted: Any) -> None:
        monkeypatch.setattr(copy.engine, "write", write)
        await copy.store.followed_arms.leave(copy.uid, "first")
        await copy.delete("a")
        await copy.write("b", lot=5)
        await followed(second)
        await write(name, rows, deleted)  # "a" is back, "b" is old

    monkeypatch.setattr(copy.engine, "write", paused)
    await first.step()
    assert await copy.held() != await copy.stored(), "else nothing was to be mended"
    await followed(second)
    assert await copy.held() == await copy.stored()


@pytest.mark.rest
async def test_only_one_of_two_follows(copy):
    first, second = copy.follower("first"), copy.follower("second")
    await followed(first)
    await copy.write("a")
    assert not await second.step()
    assert await copy.held() == {}
    await followed(first)
    assert await copy.held() == {"a": 1}


@pytest.mark.rest
async def test_a_collection_that_is_gone_is_made_anew_under_another_name(copy):
    follower = copy.follower(check_s=0.0)
    await copy.write(*(f"a{i}" for i in range(5)))
    await copy.delete("a0")
    await followed(follower)
    (name,) = await copy.collections()
    await copy.engine.drop(name)
    await followed(follower)
    (again,) = await copy.collections()
    assert again != name
    assert await copy.held() == await copy.stored()


@pytest.mark.rest
async def test_a_rebuild_switches_when_the_new_one_has_everything_and_the_old_one_goes(copy, monkeypatch):
    follower = copy.follower(page_arms=3, drop_s=0.0)
    await copy.write(*(f"a{i}" for i in range(8)))
    await followed(follower)
    (old,) = await copy.collections()
    write, written = copy.engine.write, []

    async def watched(name: str, rows: Any, deleted: Any) -> None:
        await write(name, rows, deleted)
        written.append(name)
        assert (await copy.store.followed_arms.look(copy.uid)).collection == old, "it is not whole yet"
        if len(written) == 2:
            await copy.write("late", lot=9)

    monkeypatch.setattr(copy.engine, "write", watched)
    assert await follower.rebuild()
    monkeypatch.setattr(copy.engine, "write", write)
    assert old in written, "it is followed meanwhile"
    seen = await copy.store.followed_arms.look(copy.uid)
    assert seen.collection != old
    assert await copy.held() == await copy.stored()
    await followed(follower)
    assert await copy.collections() == [seen.collection]


@pytest.mark.rest
async def test_deleted_arms_leave_the_order_of_changes_a_while_later(copy):
    follower = copy.follower()
    await copy.write("a", "b")
    await copy.delete("a")
    await followed(follower)
    assert await copy.store.followed_arms.noted(copy.uid) == 2, "others may not have heard of it"
    await copy.delete("b")
    await followed(copy.follower(forget_s=-1.0))
    assert [arm for _, arm in await copy.store.followed_arms.changes(copy.uid, Position(), 9)] == ["a"]


@pytest.mark.rest
async def test_recall_is_measured_when_the_catalogue_has_grown(copy):
    follower = copy.follower()
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(300, DIM))
    writes = [ArmWrite(f"a{i}", vector_to_bytes(row)) for i, row in enumerate(rows)]
    await copy.store.arms.upsert(copy.uid, writes, **KEPT)
    await followed(follower)
    status = follower.index.status()
    assert (status.measured_arms, status.state, status.size) == (300, "ready", 300)
    assert status.recall_at_1 == 1.0
    assert status.ratio_min == 1.0
    assert status.ef_search == 64


@pytest.mark.rest
@pytest.mark.parametrize("lost", [0, 20])
async def test_recall_counts_what_the_engine_does_not_find(copy, monkeypatch, lost):
    """An engine that lacks arms: the probes notice. The broken variant of what stands above."""
    follower = copy.follower()
    rows = np.random.default_rng(4).normal(size=(60, DIM))
    longest = np.argsort(-np.linalg.norm(rows, axis=1))[:lost].tolist()
    writes = [ArmWrite(f"a{i}", vector_to_bytes(row)) for i, row in enumerate(rows)]
    write = copy.engine.write

    async def lossy(name: str, rows: Any, deleted: Any) -> None:
        await write(name, [row for row in rows if int(row.id[1:]) not in longest], deleted)

    monkeypatch.setattr(copy.engine, "write", lossy)
    await copy.store.arms.upsert(copy.uid, writes, **KEPT)
    await followed(follower)
    quality = follower.index.quality
    assert (quality.recall_at_1 == 1.0) == (not lost)
    assert (quality.ratio_min < 1.0) == bool(lost)


@pytest.mark.rest
async def test_a_graph_is_built_over_what_was_written_and_recall_measured_with_it(copy, monkeypatch):
    """A Milvus server finds about half of the best arms until then, whatever ``ef`` is."""
    sealed, seal, search = list[str](), copy.engine.seal, copy.engine.search

    async def noted(name: str) -> None:
        await seal(name)
        sealed.append(name)

    async def coarse(*words: Any, **options: Any) -> Any:
        return (await search(*words, **options))[0 if len(sealed) > 1 else 20 :]

    monkeypatch.setattr(copy.engine, "seal", noted)
    monkeypatch.setattr(copy.engine, "search", coarse)
    follower = copy.follower(seal_arms=20)
    await copy.write(*(f"a{i}" for i in range(19)))
    await followed(follower)
    assert sealed == []
    await copy.write("b")
    await followed(follower)
    seen = await copy.store.followed_arms.look(copy.uid)
    assert sealed == [seen.collection]
    await copy.write(*(f"c{i}" for i in range(30)))
    await followed(follower)
    assert len(sealed) == 1, "not so soon again"
    assert follower.index.quality.recall_at_1 < 0.95
    next_one = copy.follower(seal_arms=20, measure_s=0.0)  # it does not know what has a graph
    await followed(next_one)
    assert sealed == [seen.collection] * 2
    assert await next_one.step() is False
    assert next_one.index.quality.recall_at_1 == 1.0, "measured again, though no arm was written"


@pytest.mark.rest
async def test_a_page_of_arms_is_in_the_order_of_changes_and_a_sample_has_living_arms(copy):
    await copy.write(*(f"a{i}" for i in range(9)))
    await copy.delete("a2")
    await copy.write("a1", lot=1)
    arms = EngineArms(copy.follower().index)
    seen, after = list[str](), None
    while True:
        page = await arms.page(after, 3)
        seen += page.ids
        if len(page.ids) < 3:
            break
        after = page.places[-1]
    assert seen == ["a0", *(f"a{i}" for i in range(3, 9)), "a1"]
    sample = await arms.sample(5, 4)
    assert len(set(sample.ids)) == 4
    assert set(sample.ids) <= set(seen)
    assert (await arms.sample(5, 4)).ids == sample.ids
    assert sorted((await arms.sample(6, 50)).ids) == sorted(seen)


@pytest.mark.rest
async def test_arms_that_the_store_has_lost_leave_the_overlay(copy):
    """As after the fail-over of a primary: the version is older, and so are the arms."""
    await copy.write("a0", "a1")
    index = copy.follower().index
    arms = EngineArms(index)
    await arms.sync()
    redis, stored = copy.store.arms._redis, dict[str, bytes]()  # private: the store loses arms
    for key in redis_keys.catalogue(copy.uid):
        if (data := await redis.command("DUMP", key)) is not None:
            stored[key] = data
    await copy.write("lost")
    await arms.sync()
    assert "lost" in index.overlay
    for key, data in stored.items():
        await redis.command("RESTORE", key, 0, data, "REPLACE")
    await arms.sync()
    assert [arm in index.overlay for arm in ("a0", "a1", "lost")] == [True, True, False]
