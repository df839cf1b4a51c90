"""A reply that is lost stands for a write that was made: what a client sees when it asks again."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from app.catalogues.arms import Arm
from app.platform.errors import NotFound, Unavailable
from headless_service import HeadlessService
from waiting import wait_until

pytestmark = pytest.mark.anyio


def ids(choice: object) -> list[str]:
    return [arm.id for arm in choice.arms]  # type: ignore[attr-defined]


async def lost(service: HeadlessService, call: str, write: Callable[[], Awaitable[object]]) -> object:
    """Make a write whose reply is lost, then make it again."""
    service.store.lose.append(call)
    with pytest.raises(Unavailable):
        await write()
    assert service.store.lose == []
    return await write()


@pytest.mark.rest
async def test_an_upsert_made_again_is_visible(service: HeadlessService):
    bandit = await service.bandit()
    catalogue = await service.parts.catalogues.get("c")
    await service.observe(bandit, "o")
    arm = Arm("new", [9.0, 9.0])
    await lost(service, "arms.upsert", lambda: service.parts.catalogues.upsert(catalogue, [arm]))
    assert (await service.parts.catalogues.arm_pages.one(catalogue, "new")).features == [9.0, 9.0]
    assert ids(await service.choose(bandit)) == ["new"]


@pytest.mark.rest
async def test_a_deletion_made_again_is_visible(service: HeadlessService):
    """The store says "missing" the second time: the arm must not be chosen any more all the same."""
    bandit = await service.bandit()
    catalogue = await service.parts.catalogues.get("c")
    done = await lost(service, "arms.delete", lambda: service.parts.catalogues.remove(catalogue, ["a3", "x"]))
    assert list(done.missing) == ["a3", "x"]  # type: ignore[attr-defined]
    assert set(ids(await service.choose(bandit, k=9))) == {"a0", "a1", "a2"}
    with pytest.raises(NotFound):
        await service.parts.catalogues.arm_pages.one(catalogue, "a3")


async def test_a_reward_sent_again_is_counted_once(service: HeadlessService):
    bandit = await service.bandit()
    token = (await service.choose(bandit)).decision
    receipt = await lost(service, "rewards.append", lambda: service.reward(token))
    assert (receipt.accepted, receipt.duplicate, receipt.applied) == (0, 1, True)  # type: ignore[attr-defined]
    assert (await service.parts.learners.report(bandit, bandit.learner_for("ann"))).observations == 1


async def test_a_reward_whose_reply_was_lost_is_applied_though_nobody_asks_again(service: HeadlessService):
    bandit = await service.bandit()
    token = (await service.choose(bandit)).decision
    service.store.lose.append("rewards.append")
    with pytest.raises(Unavailable):
        await service.reward(token)

    async def chosen_from() -> bool:
        return (await service.choose(bandit)).learner_version == 1

    await wait_until(chosen_from, what="the worker has looked by itself")


async def test_an_event_asked_again_is_the_same_decision(service: HeadlessService):
    bandit = await service.bandit()
    first: list[object] = []

    async def ask() -> object:
        return await service.choose(bandit, event_id="e")

    service.store.lose.append("choices.put_event")
    with pytest.raises(Unavailable):
        await ask()
    first = [await ask() for _ in range(3)]
    assert first[0] == first[1] == first[2]


async def test_states_written_by_a_call_whose_reply_was_lost_are_chosen_from(service: HeadlessService):
    """The worker did write them, though it does not know: a cached learner must not stay behind."""
    bandit = await service.bandit()
    await service.observe(bandit, "o1")
    assert (await service.choose(bandit)).learner_version == 1
    service.store.lose.append("learners.apply")
    receipt = await service.observe(bandit, "o2")
    assert receipt.applied
    assert service.store.lose == []
    assert (await service.choose(bandit)).learner_version == 2
    assert (await service.parts.learners.report(bandit, bandit.learner_for("ann"))).observations == 2


async def test_a_store_that_is_away_for_a_while_delays_and_loses_nothing(service: HeadlessService):
    bandit = await service.bandit()
    await service.observe(bandit, "o1")
    await service.choose(bandit)
    service.store.refuse |= {"learners.watermark", "rewards.read", "learners.stored", "learners.apply"}
    waiting = asyncio.create_task(service.observe(bandit, "o2"))

    async def tried() -> bool:
        return service.store.calls["learners.watermark"] > 20

    await wait_until(tried, what="the worker tries again")
    assert (await service.choose(bandit)).learner_version == 1, "choices go on from memory"
    assert not waiting.done()
    service.store.refuse.clear()
    assert (await waiting).applied
    assert (await service.choose(bandit)).learner_version == 2


async def test_making_during_a_deletion_makes_a_new_one(service: HeadlessService):
    """The deletion has reached the store but has not been answered: who makes it again gets a new one."""
    old = await service.bandit()
    service.store.hold["registry.delete_bandit"] = asyncio.Event()
    deleting = asyncio.create_task(service.parts.bandits.delete("b"))

    async def held() -> bool:
        return service.store.held["registry.delete_bandit"] == 1

    await wait_until(held, what="the deletion is under way")
    making = asyncio.create_task(service.bandit())
    await asyncio.sleep(0)
    service.store.hold.pop("registry.delete_bandit").set()
    await deleting
    new = await making
    assert new.uid != old.uid
    assert await service.parts.bandits.get("b") is new
    assert service.parts.bandits.by_uid(old.uid) is None


@pytest.mark.rest
async def test_a_bandit_is_not_served_again_by_who_finds_it_just_before_its_deletion(
    service: HeadlessService,
):
    """A second PUT reads the record, then the deletion happens, then the PUT goes on: no bandit is left."""
    await service.bandit()
    service.store.hold["registry.create_bandit"] = asyncio.Event()
    making = asyncio.create_task(service.bandit())

    async def held() -> bool:
        return service.store.held["registry.create_bandit"] == 1

    await wait_until(held, what="the record was found")
    deleting = asyncio.create_task(service.parts.bandits.delete("b"))
    for _ in range(200):
        await asyncio.sleep(0)
    service.store.hold.pop("registry.create_bandit").set()
    await asyncio.gather(making, deleting)
    served = {"b"} if service.parts.bandits.page(None, 10)[0] else set()
    assert served == set((await service.store.registry.read()).bandits)
