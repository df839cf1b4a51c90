"""Pooled priors: within their memory, as new as promised, and there while the store is away."""

import asyncio
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from app.bandits.bandit import Bandit
from app.bandits.spaces import Moves
from app.learning import pooled_prior as module
from app.learning.checkpoints import LearnerReader
from app.learning.fold import fold
from app.learning.pooled_prior import Pooled, PooledPriors
from app.records.records import (
    POOLED,
    LearnerState,
    RewardPayload,
    RewardTerms,
    pack,
    state_to_bytes,
    vector_to_bytes,
)
from app.storage.types import LearnerId, LogEntry, StoredLearner
from headless_service import HeadlessService
from shortlist.linear import ridge, ridge_sums
from shortlist.linear.pooled_prior import with_pooled_prior
from waiting import wait_until

NO_MOVES = Moves(None)  # type: ignore[arg-type]  # no state is of another space, so nothing is read

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


@pytest.mark.rest
async def test_pooled_priors_keep_within_their_memory_and_the_newest_stay(service: HeadlessService):
    bandit = await service.bandit()
    state = LearnerState(1, ridge_sums.empty(50))
    size = Pooled(state, 0.0).bytes
    assert size >= state.sums.total.nbytes + state.sums.error.nbytes
    store: Any = OneState(state)
    reader = LearnerReader(store, capacity_bytes=size)
    priors = PooledPriors(reader, store.partitions, NO_MOVES, capacity_bytes=3 * size)

    async def ask(number: int) -> Bandit:
        asked = msgspec.structs.replace(bandit, uid=f"uid-{number}")
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


@pytest.mark.rest
async def test_one_that_cannot_be_read_is_read_again(service: HeadlessService):
    """An older one goes on serving while the store is away."""
    service.parts.learners.pooled_priors.max_age_s = 0.0
    bandit = await service.bandit(prior="pooled", prior_strength=100.0)
    await service.observe(bandit, "o1", key="bob")
    first = await service.parts.learners.report(bandit, bandit.learner_for("ann"))
    assert first.theta.any()
    bob = bandit.learner_for("bob").partition(service.store.partitions)
    await service.choose(bandit, "ann")
    service.store.refuse.add("learners.stored")
    await service.choose(bandit, "ann")
    await asyncio.sleep(0)
    service.store.refuse.clear()
    await service.observe(bandit, "o2", "o3", key="bob")
    assert await service.store.learners.watermark(bob) != "0-0"

    async def newer() -> bool:
        found = await service.parts.learners.report(bandit, bandit.learner_for("ann"))
        return not np.array_equal(found.theta, first.theta)

    await wait_until(newer, what="the pooled prior is read again")


@pytest.mark.rest
async def test_one_that_nobody_asked_for_a_while_is_read_before_it_serves(service: HeadlessService):
    """However long nobody asked: who comes next does not start from learners that were forgotten since."""
    bandit = await service.bandit(prior="pooled", prior_strength=100.0)
    await service.observe(bandit, "o1", key="bob")
    assert (await service.choose(bandit, "ann")).arms[0].score > 0
    # private: looks without reading it from the store
    held = service.parts.learners.pooled_priors._held.peek(bandit.uid)
    assert held is not None
    await service.parts.forgetting.forget(bandit.learner_for("bob"))
    held.read_at -= module.MAX_AGE_S
    assert (await service.choose(bandit, "cid")).arms[0].score == 0


class Parts:
    """A store with a partition for each key, whose part of the pooled prior is what the key has taught."""

    def __init__(self, parts: list[LearnerState]) -> None:
        self._parts = parts
        self.partitions = len(parts)

    async def stored(self, partition: int, learners: list[LearnerId], known: object) -> list[StoredLearner]:
        return [StoredLearner(state_to_bytes(self._parts[partition]))]


def taught(rows: NDArray[np.float64], values: NDArray[np.float64], times: list[int]) -> LearnerState:
    """A learner of a half-life of 3 s, whose arms were chosen at these milliseconds."""
    entries = [
        LogEntry(
            f"1-{n}", LearnerId("uid", "x"), True, pack(RewardPayload(vector_to_bytes(row), value, terms))
        )
        for n, (row, value, terms) in enumerate(
            zip(rows, values.tolist(), [RewardTerms(0.0, at, 3.0) for at in times], strict=True)
        )
    ]
    state = fold({}, entries)[LearnerId("uid", "x")]
    assert state is not None
    return state


@pytest.mark.parametrize("mine", range(3))
async def test_others_count_as_they_do_when_the_newest_of_all_was_decided(
    service: HeadlessService, mine: int
):
    """Keys in different partitions, whose newest decisions are of different times, summed by hand."""
    rng = np.random.default_rng(mine)
    times = [[0, 1_000, 2_000], [500, 10_000], [4_000, 5_000, 3_000, 4_500]]
    rows = [rng.standard_normal((len(own), 2)) for own in times]
    values = [rng.standard_normal(len(own)) for own in times]
    states = [taught(*one) for one in zip(rows, values, times, strict=True)]
    bandit = await service.bandit(prior="pooled", prior_strength=0.4, half_life_s=3.0)
    store: Any = Parts(states)
    reader = LearnerReader(store, capacity_bytes=10**6)
    priors = PooledPriors(reader, len(times), NO_MOVES, capacity_bytes=10**6)
    found = await priors.with_prior(bandit, states[mine])

    def summed(key: int, newest: int) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        weights = 0.5 ** ((newest - np.array(times[key])) / 3_000)
        x = rows[key]
        return (x.T * weights) @ x, (x.T * weights) @ values[key], float(weights.sum())

    others = [summed(key, 10_000) for key in range(3) if key != mine]
    share = min(1.0, 0.4 / sum(weight for *_, weight in others))
    gram, moment, _ = summed(mine, max(times[mine]))
    np.testing.assert_allclose(found.gram, gram + share * sum(one for one, _, _ in others), rtol=1e-12)
    np.testing.assert_allclose(found.moment, moment + share * sum(one for _, one, _ in others), rtol=1e-12)
    assert found.observations == len(times[mine])


@pytest.mark.rest
@pytest.mark.parametrize("half_lives", [0.0, 4.6, 40.0])
def test_the_pull_of_others_is_the_same_however_long_they_go_on(half_lives: float):
    """Ten decisions in each half-life: a new key starts as after five rewards of 1, at once and later."""
    name, times = LearnerId("uid", "bob"), [0] * 100
    times += [100 * step for step in range(1, round(10 * half_lives) + 1)]
    terms = [RewardTerms(0.0, at, 1.0, pooled=True) for at in times]
    entries = [
        LogEntry(f"1-{n}", name, True, pack(RewardPayload(vector_to_bytes(np.ones(1)), 1.0, one)))
        for n, one in enumerate(terms, start=1)
    ]
    pool = fold({}, entries)[LearnerId("uid", POOLED)]
    assert pool is not None
    found = with_pooled_prior(ridge_sums.empty(1), pool.sums, strength=5.0)
    assert ridge.posterior(found, ridge=1.0).theta == pytest.approx(5 / 6)


@pytest.mark.rest
async def test_a_report_has_the_pooled_prior_as_it_is(service: HeadlessService):
    bandit = await service.bandit(prior="pooled", prior_strength=100.0)
    for number in range(3):
        await service.observe(bandit, f"o{number}", key="bob")
        x = np.array([1.0, 1.0])
        gram = np.eye(2) + (number + 1) * np.outer(x, x)
        found = await service.parts.learners.report(bandit, bandit.learner_for("ann"))
        np.testing.assert_allclose(found.theta, np.linalg.solve(gram, (number + 1) * x), rtol=1e-12)
