"""The cache of learners: bounded, never behind the worker, and right again after an eviction."""

import asyncio
import gc
import tracemalloc
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from app.fold.checkpoints import memory_bytes
from app.learners.learners import Learner, Learners
from app.records.records import LearnerState, bytes_to_state, state_to_bytes
from app.storage.types import LearnerId
from headless_service import HeadlessService
from shortlist.linear import ridge_sums, signals
from shortlist.linear.scales import Scales
from shortlist.linear.signals import Weighing
from waiting import wait_until

pytestmark = pytest.mark.anyio


def used(learners: Learners) -> int:
    """What the cached learners take, counted again."""
    held = [(key, learners.cache.peek(key)) for key in learners.cache]
    return sum(memory_bytes(getattr(key, "name", ""), learner.dim) for key, learner in held if learner)


def state(version: int, dim: int = 2) -> LearnerState:
    rows = np.ones((version, dim))
    sums = ridge_sums.add(ridge_sums.empty(dim), rows, np.ones(version), np.ones(version, dtype=bool))
    return LearnerState(version, sums)


async def test_memory_is_bounded_and_evicted_learners_come_back_right(service: HeadlessService):
    """Room for about ten of sixty learners: every one answers with all it has learned, again and again."""
    bandit = await service.bandit()
    learners = service.parts.learners
    learners.cache.capacity = 10 * memory_bytes("u59", 2)
    keys = [f"u{i}" for i in range(60)]
    for round_ in range(3):
        for number, key in enumerate(keys):
            await service.observe(bandit, f"o{round_}", key=key, arm=f"a{number % 4}")
            choice = await service.choose(bandit, key)
            assert choice.learner_version == round_ + 1
            assert learners.bytes == used(learners) <= learners.cache.capacity
    assert 5 <= len(learners) <= 12
    for key in keys:
        assert (await service.choose(bandit, key)).learner_version == 3


async def test_a_learner_that_served_serves_by_the_terms_that_its_bandit_has_now(service: HeadlessService):
    bandit = await service.bandit(ridge=1.0)
    await service.observe(bandit, "o")
    learner = bandit.learner_for("ann")
    for ridge_now in (1.0, 4.0, 2.0):
        bandit = await service.parts.bandits.change(
            "b", lambda _, version, now=ridge_now: msgspec.structs.replace(version.record, ridge=now)
        )
        _, posterior = await service.parts.learners.current(bandit, learner)
        precision = np.diag([ridge_now] * 2) + 1.0  # of one reward of arm a1, whose features are both 1
        np.testing.assert_allclose(posterior.theta, np.linalg.solve(precision, np.ones(2)))


def test_each_choice_weighs_the_signals_with_its_own_weights():
    scales, nothing = Scales(None, 1.0), (None, None)
    known = signals.known(ridge_sums.of(np.eye(2), np.eye(2), np.ones(2, dtype=bool)), scales)
    learner = Learner(0, None, known)
    for weights in ((1.0, 0.0), (0.0, 1.0), (1.0, 0.0)):
        bandit: Any = SimpleNamespace(weighing=Weighing(weights, nothing, nothing), scales=scales)
        theta = learner.weighed(bandit).theta
        assert theta.tolist() == known.weighed(bandit.weighing, scales).theta.tolist()
        assert (theta > 0.0).tolist() == [weight > 0.0 for weight in weights]


@pytest.mark.rest
async def test_keys_that_were_never_rewarded_share_one_prior(service: HeadlessService):
    """They take little memory each, and the shared posterior of a large dimension is counted too."""
    await service.catalogue("d", dim=300)
    bandit = await service.bandit("wide", "d")
    learners = service.parts.learners
    before = learners.bytes
    for i in range(200):
        await service.choose(bandit, f"new{i}")
    prior = 8 * (300 * 300 + 300)
    assert prior < learners.bytes - before < 2 * prior
    learners.cache.capacity = prior // 2
    for i in range(200):
        assert (await service.choose(bandit, f"other{i}")).learner_version == 0
        assert learners.bytes == used(learners)
    assert len(learners) == 1, "what is larger than the whole cache is kept alone"


@pytest.mark.rest
async def test_concurrent_callers_share_one_read(service: HeadlessService):
    bandit = await service.bandit()
    before = service.store.calls["learners.stored"]
    choices = await asyncio.gather(*(service.choose(bandit, "new") for _ in range(100)))
    assert service.store.calls["learners.stored"] == before + 1
    assert {choice.learner_version for choice in choices} == {0}


async def test_a_read_during_which_the_worker_writes_does_not_win(service: HeadlessService):
    """The reply with the old state is held back while the worker writes a new one."""
    bandit = await service.bandit()
    await service.observe(bandit, "o1")
    learners = service.parts.learners
    for evicted_meanwhile in (False, True):
        learners.cache.clear()
        version = (await learners.report(bandit, bandit.learner_for("ann"))).version
        identity = bandit.learner_for("ann")
        service.store.hold["learners.stored"] = gate = asyncio.Event()
        reading = asyncio.create_task(learners.get(bandit.learner_for("ann")))

        async def held() -> bool:
            return service.store.held["learners.stored"] == 1

        await wait_until(held, what="the read is under way")
        service.store.hold.clear()
        await service.observe(bandit, f"o{version + 1}")
        if evicted_meanwhile:
            learners.cache.drop(identity)
        gate.set()
        assert (await reading).version == version + 1
        assert (await service.choose(bandit)).learner_version == version + 1
        assert learners._loading == {}  # private: nothing else tells that no read is under way


@pytest.mark.rest
async def test_a_caller_that_is_cancelled_does_not_cancel_the_others(service: HeadlessService):
    bandit = await service.bandit()
    service.store.hold["learners.stored"] = gate = asyncio.Event()
    tasks = [asyncio.create_task(service.choose(bandit, "new")) for _ in range(3)]

    async def held() -> bool:
        return service.store.held["learners.stored"] == 1

    await wait_until(held, what="the read is under way")
    tasks[0].cancel()
    service.store.hold.clear()
    gate.set()
    first, *others = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(first, asyncio.CancelledError)
    assert not any(isinstance(other, BaseException) for other in others)


def taken() -> int:
    """Bytes that Python and numpy hold since measuring began."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.rest
@pytest.mark.parametrize(
    ("dim", "rewarded"),
    [
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((2, False), (2, True), (16, True))),
        (64, True),
    ],
)
async def test_the_posterior_cache_takes_no_more_than_it_may(
    service: HeadlessService, dim: int, rewarded: bool
):
    """As states and as posteriors, with tails that grow beside."""
    capacity, data = 3 << 18, state_to_bytes(state(3, dim))
    await service.catalogue("wide", dim=dim)
    bandit = await service.bandit("wide", "wide")
    learners = Learners(service.store, capacity_bytes=capacity)  # type: ignore[arg-type]
    await learners.posterior(bandit, await learners.get(LearnerId(bandit.uid, "first")))
    tracemalloc.start()
    try:
        before = taken()
        for number in range(3 * capacity // (2 * (len(data) if rewarded else 0) + 800)):
            learner = LearnerId(bandit.uid, f"{number:060d}")
            found = await learners.get(learner)
            if rewarded:
                learners.applied(0, "0-0", "0-1", {learner: bytes_to_state(data)})
                found = await learners.get(learner)
                if number % 2:
                    await learners.posterior(bandit, found)
        del found, learner
        assert 0.4 * capacity < taken() - before <= capacity
    finally:
        tracemalloc.stop()
