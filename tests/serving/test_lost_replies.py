"""A reply that is lost stands for a write that was made: what a client sees when it asks again."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from app.catalogues.arms import Arm
from app.platform.errors import NotFound, Unavailable
from app.records.records import CatalogueRecord
from waiting import wait_until
from world import World, bandit_record

pytestmark = pytest.mark.anyio


def ids(choice: object) -> list[str]:
    return [arm.id for arm in choice.arms]  # type: ignore[attr-defined]


async def lost(world: World, call: str, write: Callable[[], Awaitable[object]]) -> object:
    """Make a write whose reply is lost, then make it again."""
    world.store.lose.append(call)
    with pytest.raises(Unavailable):
        await write()
    assert world.store.lose == []
    return await write()


@pytest.mark.rest
async def test_an_upsert_made_again_is_visible(world: World):
    bandit = await world.bandit()
    catalogue = await world.service.catalogues.get("c")
    await world.observe(bandit, "o")
    arm = Arm("new", [9.0, 9.0])
    await lost(world, "arms.upsert", lambda: world.service.catalogues.upsert(catalogue, [arm]))
    assert (await world.service.catalogues.arm(catalogue, "new")).features == [9.0, 9.0]
    assert ids(await world.choose(bandit)) == ["new"]


@pytest.mark.rest
async def test_a_deletion_made_again_is_visible(world: World):
    """The store says "missing" the second time: the arm must not be chosen any more all the same."""
    bandit = await world.bandit()
    catalogue = await world.service.catalogues.get("c")
    done = await lost(world, "arms.delete", lambda: world.service.catalogues.remove(catalogue, ["a3", "x"]))
    assert list(done.missing) == ["a3", "x"]  # type: ignore[attr-defined]
    assert set(ids(await world.choose(bandit, k=9))) == {"a0", "a1", "a2"}
    with pytest.raises(NotFound):
        await world.service.catalogues.arm(catalogue, "a3")


@pytest.mark.rest
async def test_what_was_made_is_found_when_it_is_made_again(world: World):
    record = CatalogueRecord(3, dict((await world.service.catalogues.get("c")).record.index))
    made = await lost(
        world, "registry.create_catalogue", lambda: world.service.catalogues.create("d", record)
    )
    assert made == (await world.service.catalogues.get("d"), False)
    made = await lost(
        world, "registry.create_bandit", lambda: world.service.bandits.create("e", bandit_record("d"))
    )
    assert made == (await world.service.bandits.get("e"), False)


@pytest.mark.rest
async def test_what_was_deleted_stays_deleted(world: World):
    """Asked again, it may be known to be gone by then: who follows the store is told by it."""
    await world.bandit()
    with contextlib.suppress(NotFound):
        await lost(world, "registry.delete_bandit", lambda: world.service.bandits.delete("b"))
    with pytest.raises(NotFound):
        await world.service.bandits.get("b")
    with contextlib.suppress(NotFound):
        await lost(world, "registry.delete_catalogue", lambda: world.service.catalogues.delete("c"))
    with pytest.raises(NotFound):
        await world.service.catalogues.get("c")


async def test_a_reward_sent_again_is_counted_once(world: World):
    bandit = await world.bandit()
    token = (await world.choose(bandit)).decision
    receipt = await lost(world, "rewards.append", lambda: world.reward(token))
    assert (receipt.accepted, receipt.duplicate, receipt.applied) == (0, 1, True)  # type: ignore[attr-defined]
    assert (await world.service.learners.report(bandit, bandit.learner_for("ann"))).observations == 1


async def test_a_reward_whose_reply_was_lost_is_applied_though_nobody_asks_again(world: World):
    bandit = await world.bandit()
    token = (await world.choose(bandit)).decision
    world.store.lose.append("rewards.append")
    with pytest.raises(Unavailable):
        await world.reward(token)

    async def chosen_from() -> bool:
        return (await world.choose(bandit)).learner_version == 1

    await wait_until(chosen_from, what="the worker has looked by itself")


async def test_an_event_asked_again_is_the_same_decision(world: World):
    bandit = await world.bandit()
    first: list[object] = []

    async def ask() -> object:
        return await world.choose(bandit, event_id="e")

    world.store.lose.append("choices.put_event")
    with pytest.raises(Unavailable):
        await ask()
    first = [await ask() for _ in range(3)]
    assert first[0] == first[1] == first[2]


@pytest.mark.rest
async def test_forgetting_again_forgets(world: World):
    bandit = await world.bandit()
    token = (await world.choose(bandit)).decision
    await world.observe(bandit, "o")
    await lost(
        world, "side_data.append_forget", lambda: world.service.forgetting.forget(bandit.learner_for("ann"))
    )
    assert (await world.choose(bandit)).learner_version == 0
    assert (await world.reward(token)).rejected == [(0, "forgotten")]


async def test_states_written_by_a_call_whose_reply_was_lost_are_chosen_from(world: World):
    """The worker did write them, though it does not know: a cached learner must not stay behind."""
    bandit = await world.bandit()
    await world.observe(bandit, "o1")
    assert (await world.choose(bandit)).learner_version == 1
    world.store.lose.append("learners.apply")
    receipt = await world.observe(bandit, "o2")
    assert receipt.applied
    assert world.store.lose == []
    assert (await world.choose(bandit)).learner_version == 2
    assert (await world.service.learners.report(bandit, bandit.learner_for("ann"))).observations == 2


async def test_a_store_that_is_away_for_a_while_delays_and_loses_nothing(world: World):
    bandit = await world.bandit()
    await world.observe(bandit, "o1")
    await world.choose(bandit)
    world.store.refuse |= {"learners.watermark", "rewards.read", "learners.stored", "learners.apply"}
    waiting = asyncio.create_task(world.observe(bandit, "o2"))

    async def tried() -> bool:
        return world.store.calls["learners.watermark"] > 20

    await wait_until(tried, what="the worker tries again")
    assert (await world.choose(bandit)).learner_version == 1, "choices go on from memory"
    assert not waiting.done()
    world.store.refuse.clear()
    assert (await waiting).applied
    assert (await world.choose(bandit)).learner_version == 2


async def test_making_during_a_deletion_makes_a_new_one(world: World):
    """The deletion has reached the store but has not been answered: who makes it again gets a new one."""
    old = await world.bandit()
    world.store.hold["registry.delete_bandit"] = asyncio.Event()
    deleting = asyncio.create_task(world.service.bandits.delete("b"))

    async def held() -> bool:
        return world.store.held["registry.delete_bandit"] == 1

    await wait_until(held, what="the deletion is under way")
    making = asyncio.create_task(world.bandit())
    await asyncio.sleep(0)
    world.store.hold.pop("registry.delete_bandit").set()
    await deleting
    new = await making
    assert new.uid != old.uid
    assert await world.service.bandits.get("b") is new
    assert world.service.bandits.by_uid(old.uid) is None


@pytest.mark.rest
async def test_a_bandit_is_not_served_again_by_who_finds_it_just_before_its_deletion(world: World):
    """A second PUT reads the record, then the deletion happens, then the PUT goes on: no bandit is left."""
    await world.bandit()
    world.store.hold["registry.create_bandit"] = asyncio.Event()
    making = asyncio.create_task(world.bandit())

    async def held() -> bool:
        return world.store.held["registry.create_bandit"] == 1

    await wait_until(held, what="the record was found")
    deleting = asyncio.create_task(world.service.bandits.delete("b"))
    for _ in range(200):
        await asyncio.sleep(0)
    world.store.hold.pop("registry.create_bandit").set()
    await asyncio.gather(making, deleting)
    served = {"b"} if world.service.bandits.page(None, 10)[0] else set()
    assert served == set((await world.store.registry.read()).bandits)
