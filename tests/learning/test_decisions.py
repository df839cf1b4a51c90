"""Logged decisions and housekeeping over a store that loses replies: each default is counted once."""

import time

import pytest
from msgspec import structs

from app.bandits.bandit import Bandit
from app.bandits.settings import RewardRule
from app.learning.replay import compare
from app.learning.tokens import decision_of, raw_of
from app.platform.errors import Unavailable
from app.platform.metrics import Metrics
from waiting import wait_until
from workers.housekeeping import Housekeeping
from world import World

pytestmark = pytest.mark.anyio

WAITS = RewardRule(wait_s=3_600.0, default=-1.0)


async def due(world: World, bandit: Bandit, key: str = "ann") -> int:
    """The partition of the learner; the waiting time of all its decisions is over, and nobody else looks."""
    await world.quiet()
    partition = bandit.learner_for(key).partition(world.store.partitions)
    later = time.time_ns() // 1_000_000 + 2**40
    assert (await world.store.waiting.due(partition, later, 100)).decisions
    return partition


async def sweep(world: World, partition: int) -> None:
    """What is due within the next two hours."""
    housekeeping = Housekeeping(
        world.store, world.service.forgetting, Metrics(), wake=world.service.worker.wake
    )  # type: ignore[arg-type,union-attr]
    await housekeeping.sweep(partition, time.time_ns() // 1_000_000 + 7_200_000)


async def observations(world: World, bandit: Bandit, expected: int, key: str = "ann") -> None:
    async def there() -> bool:
        report = await world.service.learners.report(bandit, bandit.learner_for(key))
        assert report.observations <= expected, "a default was counted twice"
        return report.observations == expected

    await wait_until(there, what=f"{expected} observations")


@pytest.mark.parametrize("call", ["waiting.log", "waiting.append_defaults"])
async def test_a_lost_reply_changes_nothing(world: World, call: str):
    bandit = await world.bandit(reward=WAITS)
    if call == "waiting.log":
        world.store.lose.append(call)
        with pytest.raises(Unavailable):
            await world.choose(bandit, event_id="e")
    await world.choose(bandit, event_id="e")
    partition = await due(world, bandit)
    if call == "waiting.append_defaults":
        world.store.lose.append(call)
        with pytest.raises(Unavailable):
            await sweep(world, partition)
    for _ in range(3):
        await sweep(world, partition)
    await observations(world, bandit, 1)


async def test_an_activation_whose_reply_was_lost_is_a_duplicate(world: World):
    bandit = await world.bandit(reward=WAITS)
    token = (await world.choose(bandit, activate=False)).decision
    world.store.lose.append("waiting.activate")
    with pytest.raises(Unavailable):
        await world.service.decisions.activate([token])
    again = await world.service.decisions.activate([token])
    assert (again.activated, again.duplicate) == (0, 1)
    await sweep(world, await due(world, bandit))
    await observations(world, bandit, 1)


async def test_a_default_is_due_before_its_decision_expires(world: World):
    """Of one that is shown late too: after that no reward could take its place."""
    bandit = await world.bandit(reward=WAITS)
    decision = decision_of(raw_of((await world.choose(bandit, activate=False)).decision))
    soon = structs.replace(decision, expires_ms=decision.issued_ms + 600_000)
    await world.service.decisions.activate([world.service.signer.sign(soon)])
    partition = bandit.learner_for("ann").partition(world.store.partitions)
    assert (await world.store.waiting.due(partition, soon.expires_ms, 10)).decisions


@pytest.mark.rest
async def test_what_was_not_shown_before_its_learner_was_forgotten_never_was(world: World):
    bandit = await world.bandit(reward=WAITS)
    token = (await world.choose(bandit, activate=False)).decision
    await world.service.forgetting.forget(bandit.learner_for("ann"))
    outcome = await world.service.decisions.activate([token])
    assert outcome.rejected == [(0, "forgotten")]
    partition = bandit.learner_for("ann").partition(world.store.partitions)
    assert not (await world.store.waiting.due(partition, 2**52, 10)).decisions


async def test_a_default_of_a_forgotten_learner_is_not_counted(world: World):
    """Also when it was logged, and the learner forgotten, before its traces could be erased."""
    bandit = await world.bandit(reward=WAITS)
    await world.choose(bandit)
    world.store.refuse.add("side_data.erase")
    with pytest.raises(Unavailable):
        await world.service.forgetting.forget(bandit.learner_for("ann"))
    world.store.refuse.clear()
    partition = await due(world, bandit)
    await sweep(world, partition)
    await observations(world, bandit, 0)
    housekeeping = await world.store.waiting.due(partition, 0, 10)
    assert not housekeeping.erase
    assert not housekeeping.decisions


@pytest.mark.rest
async def test_choosing_for_a_bandit_that_waits_needs_the_store_and_others_do_not(world: World):
    plain, waits = await world.bandit("plain"), await world.bandit("waits", reward=WAITS)
    await world.choose(plain)
    await world.choose(waits)
    world.store.refuse |= {"waiting.log", "learners.stored"}
    await world.choose(plain)
    with pytest.raises(Unavailable):
        await world.choose(waits)


@pytest.mark.rest
async def test_a_plain_bandit_makes_no_call_to_choose(world: World):
    bandit = await world.bandit()
    await world.choose(bandit)
    before = {
        name: count
        for name, count in world.store.calls.items()
        if name not in {"waiting.due", "learners.watermark"}
    }
    for _ in range(5):
        await world.choose(bandit)
    quiet = {
        "waiting.due",
        "registry.deletions",
        "learners.watermark",
        "rewards.read",
        "rewards.backlog",
        "rewards.lag",
        "registry.version",
    }
    quiet |= {"learners.changed", "arms.changed"}
    after = {name: count for name, count in world.store.calls.items() if name not in quiet}
    assert {name: count for name, count in before.items() if name not in quiet} == after


async def test_a_replay_agrees_with_pooled_priors_waiting_and_forgetting(world: World):
    bandit = await world.bandit(prior="pooled", half_life_s=60.0, reward=WAITS)
    for number in range(30):
        key = f"key-{number % 7}"
        choice = await world.choose(bandit, key)
        await world.observe(bandit, f"o{number}", key=key)
        if number % 3 == 0:
            await world.reward(choice.decision)
        if number % 10 == 9:
            await world.service.forgetting.forget(bandit.learner_for(key))
    found = await compare(world.service.store)
    assert found.different == []
    assert found.equal > 0
