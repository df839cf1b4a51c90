"""The follower of a catalogue: taken over anywhere, and after more changes than the log of changes holds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.catalogues.arms import Arm
from app.catalogues.catalogue import Catalogue
from app.catalogues.catalogues import Catalogues
from app.platform.errors import Unavailable
from app.platform.hooks import Hooks
from app.platform.metrics import Metrics
from app.records.behaviour import BehaviourRecord
from app.records.records import CatalogueRecord
from app.storage import redis_keys
from app.storage.store import Store
from headless_service import INDEX
from lossy_store import LossyStore
from shortlist_embeddings.following import CatalogueFollowing
from shortlist_embeddings.new_embeddings import Embeddings
from store_clients import connect

pytestmark = pytest.mark.anyio


class Shop:
    """Catalogues over a store that loses replies: ``source``, and ``copy``, which follows it."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.lossy: Any = LossyStore(store)
        self.catalogues = Catalogues(self.lossy, index_dir=folder, keep_ms=60_000, hooks=Hooks())
        self.source: Catalogue
        self.copy: Catalogue

    async def make(self) -> None:
        self.source, _ = await self.catalogues.create("source", CatalogueRecord(2, INDEX))
        await self.write("a0")  # what is known of arms that the source lacks is not kept
        numbers = np.eye(2, dtype="<f4").tobytes(), np.zeros(2, dtype="<f4").tobytes()
        record = BehaviourRecord("source", self.source.uid, *numbers, 1.0, 1, 1, 1, 0)
        embeddings = Embeddings(self.lossy, self.catalogues, Metrics())
        async with embeddings.begin(self.source, record) as embedding:
            await embedding.add(["a0"], np.array([3.0]), np.array([[1.0, 1.0]]))
            self.copy, _ = await embedding.make("copy")

    def follower(self, owner: str) -> CatalogueFollowing:
        return CatalogueFollowing(self.lossy, self.catalogues, Metrics(), owner=owner)

    async def write(self, *ids: str, value: float = 1.0) -> None:
        await self.catalogues.upsert(self.source, [Arm(each, [value, float(each[1:])]) for each in ids])

    async def arms(self, catalogue: Catalogue) -> dict[str, list[float]]:
        found, _ = await self.catalogues.arm_pages.page(catalogue, None, 1_000)
        return {arm.id: list(arm.features) for arm in found}

    async def assert_followed(self) -> None:
        """What the copy has is what the source has, but for the arm with behaviour."""
        expected = await self.arms(self.source)
        if "a0" in expected:
            expected["a0"] = [(3.0 + number) / 4.0 for number in expected["a0"]]
        assert await self.arms(self.copy) == expected


@pytest.fixture
async def shop(store: Store, tmp_path: Path) -> AsyncIterator[Shop]:
    shop = Shop(store, tmp_path)
    await shop.make()
    return shop


async def finish(follower: CatalogueFollowing) -> None:
    while await follower.round():
        pass


async def test_what_changed_is_taken_over_and_nothing_twice(shop: Shop):
    follower = shop.follower("one")
    await shop.write(*(f"a{n}" for n in range(9)))
    await finish(follower)
    await shop.assert_followed()
    version = shop.copy.version
    await shop.write("a3", value=5.0)
    await shop.catalogues.remove(shop.source, ["a4", "a0"])
    await finish(follower)
    await shop.assert_followed()
    assert shop.copy.version == version + 2
    assert not await follower.round()
    assert shop.copy.version == version + 2


CALLS = ("arms.changed", "followed_arms.read", "arms.upsert", "arms.delete", "followed_arms.advance")


@pytest.mark.parametrize("call", CALLS)
async def test_a_follower_whose_reply_is_lost_goes_on_without_a_loss(shop: Shop, call: str):
    follower = shop.follower("one")
    await shop.write(*(f"a{n}" for n in range(4)))
    await finish(follower)
    await shop.write("a1", "a5", value=7.0)
    await shop.catalogues.remove(shop.source, ["a2"])
    shop.lossy.lose.append(call)
    with pytest.raises(Unavailable):
        await finish(follower)
    await shop.write("a1", value=8.0)
    await finish(follower)
    await shop.assert_followed()


async def test_another_follower_goes_on_where_the_first_was_killed(shop: Shop, store: Store):
    first, second = shop.follower("one"), shop.follower("two")
    await shop.write("a0", "a1")
    await finish(first)
    assert not await second.round(), "the first one holds the lease"
    await shop.write("a1", "a2", value=4.0)
    await store.followed_arms.leave(shop.copy.uid, "one")  # as its lease ends by itself after a kill
    await finish(second)
    await shop.assert_followed()


@pytest.mark.rest
async def test_more_changes_than_the_log_holds_have_all_arms_compared(shop: Shop, store_url: str):
    follower = shop.follower("one")
    await shop.write(*(f"a{n}" for n in range(6)))
    await finish(follower)
    await shop.write("a1", "a7", value=3.0)
    await shop.catalogues.remove(shop.source, ["a2"])
    # as if a store had come back from an older copy: its version is below the one that was followed
    async with connect(store_url) as client:
        await client.hset(redis_keys.counters(shop.copy.uid), "followed", 99)
    await finish(shop.follower("one"))
    await shop.assert_followed()


@pytest.mark.rest
async def test_arms_stay_where_the_followed_catalogue_is_gone(shop: Shop, store: Store):
    """Deleting it is refused; a process that has just not heard of the follower may do it all the same."""
    follower = shop.follower("one")
    await shop.write("a1", "a2")
    await finish(follower)
    await store.registry.delete_catalogue("source", shop.source.uid)
    await finish(follower)
    assert (await shop.arms(shop.copy)).keys() == {"a0", "a1", "a2"}


@pytest.mark.rest
async def test_behaviour_stays_once_its_catalogue_is_followed(shop: Shop, store_url: str):
    async with connect(store_url) as client:
        key = redis_keys.behaviour(shop.copy.uid)
        assert await client.pttl(key) > 0
        await shop.write("a0")
        await finish(shop.follower("one"))
        assert await client.pttl(key) == -1
        assert await client.hgetall(key) == {b"a0": np.array([3.0, 1.0, 1.0], dtype="<f4").tobytes()}
