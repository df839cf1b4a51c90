"""What a batch of rewards asks of a store whose answers wait for a disk: side by side, not in turn."""

import asyncio

import pytest

from app.bandits.settings import RepeatsRule
from app.rewards.reward_entries import Observation, Reward
from headless_service import HeadlessService
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

KEYS = [f"key{n}" for n in range(9)]


async def test_rewards_of_many_keys_are_noted_for_frequency_caps_side_by_side(service: HeadlessService):
    await service.catalogue()
    bandit = await service.bandit(repeats=RepeatsRule(most=1, within_s=60.0, counts="rewarded"))
    rewards = [Reward((await service.choose(bandit, key)).decision, 1.0) for key in KEYS]
    release = service.store.hold["frequency_caps.take"] = asyncio.Event()

    async def all_wait() -> bool:
        return service.store.held["frequency_caps.take"] == len(KEYS)

    batch = asyncio.create_task(service.parts.rewards.reward(rewards))
    await wait_until(all_wait, what="a note of each reward is under way")
    release.set()
    assert (await batch).accepted == len(KEYS)
    for key in KEYS:
        caps = service.parts.frequency_caps
        (exposure,) = await caps.history(bandit, bandit.record.repeats, key)
        assert exposure.count == 1


async def test_idle_learners_of_one_partition_are_touched_side_by_side(service: HeadlessService):
    await service.catalogue()
    bandit = await service.bandit(idle_ttl_s=60.0)
    partition = bandit.learner_for("key").partition(service.store.partitions)
    keys = [
        key
        for key in (f"key{n}" for n in range(400))
        if bandit.learner_for(key).partition(service.store.partitions) == partition
    ]
    release = service.store.hold["side_data.touch"] = asyncio.Event()

    async def all_wait() -> bool:
        return service.store.held["side_data.touch"] == len(keys)

    history = [Observation(f"o-{key}", "a1", 1.0, key) for key in keys]
    batch = asyncio.create_task(service.parts.rewards.observe(bandit, history))
    await wait_until(all_wait, what="a touch of each learner is under way")
    release.set()
    assert (await batch).accepted == len(keys) > 9
