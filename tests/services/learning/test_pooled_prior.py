"""Pooled priors: within their memory, as new as promised, and there while the store is away."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from waiting import until
from world import World

from app.algorithms.linear import ridge_sums
from app.services.bandits.bandits import Bandit
from app.services.formats.records import POOLED, LearnerState, state_to_bytes
from app.services.learning import pooled_prior as module
from app.services.learning.checkpoints import LearnerReader
from app.services.learning.pooled_prior import Pooled, PooledPriors
from app.storage.protocol import LearnerId, StoredLearner

pytestmark = pytest.mark.anyio


class OneState:
    """A store whose partitions all hold the same part of every bandit's pooled prior."""

    partitions = 4

    def __init__(self, state: LearnerState) -> None:
        self._data = state_to_bytes(state)
        self.read: list[tuple[int, str]] = []

    async def stored(self, partition: int, learners: list[LearnerId], known: object) -> list[StoredLearner]:
        assert [learner.name for learner in learners] == [POOLED]
        self.read.append((partition, learners[0].bandit_uid))
        return [StoredLearner(self._data)]


async def test_pooled_priors_keep_within_their_memory_and_the_newest_stay(world: World):
    bandit = await world.bandit()
    state = LearnerState(1, ridge_sums.empty(50))
    size = Pooled(state, 0.0).bytes
    assert size >= state.sums.total.nbytes + state.sums.error.nbytes
    store: Any = OneState(state)
    reader = LearnerReader(store, capacity_bytes=size)
    priors = PooledPriors(reader, store.partitions, capacity_bytes=3 * size)

    async def ask(number: int) -> Bandit:
        asked = replace(bandit, uid=f"uid-{number}")
        found = await priors.get(asked)
        assert found is not None
        assert found.version == store.partitions
        return asked

    for number in range(10):
        await ask(number)
    assert store.read == [(part, f"uid-{number}") for number in range(10) for part in range(store.partitions)]
    for number in (7, 8, 9):
        await ask(number)
    assert len(store.read) == 40, "the last three are in memory"
    await ask(6)
    await ask(7)
    assert [uid for _, uid in store.read[40:]] == ["uid-6"] * 4 + ["uid-7"] * 4


async def test_one_that_cannot_be_read_is_read_again(world: World, monkeypatch: pytest.MonkeyPatch):
    """An older one goes on serving while the store is away."""
    monkeypatch.setattr(module, "MAX_AGE_S", 0.0)
    bandit = await world.bandit(prior="pooled", prior_strength=100.0)
    await world.observe(bandit, "o1", key="bob")
    first = await world.service.learners.report(bandit, bandit.learner_for("ann"))
    assert first.theta.any()
    bob = bandit.learner_for("bob").partition(world.store.partitions)
    await world.choose(bandit, "ann")
    world.store.refuse.add("stored")
    await world.choose(bandit, "ann")
    await asyncio.sleep(0)
    world.store.refuse.clear()
    await world.observe(bandit, "o2", "o3", key="bob")
    assert await world.store.watermark(bob) != "0-0"

    async def newer() -> bool:
        found = await world.service.learners.report(bandit, bandit.learner_for("ann"))
        return not np.array_equal(found.theta, first.theta)

    await until(newer, what="the pooled prior is read again")


async def test_one_that_nobody_asked_for_a_while_is_read_before_it_serves(world: World):
    """However long nobody asked: who comes next does not start from learners that were forgotten since."""
    bandit = await world.bandit(prior="pooled", prior_strength=100.0)
    await world.observe(bandit, "o1", key="bob")
    assert (await world.choose(bandit, "ann")).arms[0].score > 0
    held = world.service.learners._pooled_priors._held.peek(bandit.uid)
    assert held is not None
    await world.service.forgetting.forget(bandit.learner_for("bob"))
    held.read_at -= module.MAX_AGE_S
    assert (await world.choose(bandit, "cid")).arms[0].score == 0


async def test_a_report_has_the_pooled_prior_as_it_is(world: World):
    bandit = await world.bandit(prior="pooled", prior_strength=100.0)
    for number in range(3):
        await world.observe(bandit, f"o{number}", key="bob")
        x = np.array([1.0, 1.0])
        gram = np.eye(2) + (number + 1) * np.outer(x, x)
        found = await world.service.learners.report(bandit, bandit.learner_for("ann"))
        np.testing.assert_allclose(found.theta, np.linalg.solve(gram, (number + 1) * x), rtol=1e-12)
