"""Learners read out whole, and given to others: bit for bit, once, and found again by a replay."""

from dataclasses import replace

import numpy as np
import pytest

from app.bandits.bandit import Bandit
from app.fold.replay import compare
from app.platform.errors import Conflict, Invalid
from app.records.records import LearnerState, state_to_bytes
from app.storage.types.decisions import LearnerId
from headless_service import HeadlessService
from shortlist.linear import ridge
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

KEYS = [f"key-{number}" for number in range(12)]


async def taught(service: HeadlessService, **settings: object) -> Bandit:
    """A bandit whose keys have one reward each, two, three, ..."""
    await service.catalogue("w", dim=3)
    bandit = await service.bandit(catalogue="w", **settings)
    for number, key in enumerate(KEYS):
        for time in range(number % 4 + 1):
            await service.observe(bandit, f"o{time}", key=key, arm=f"a{(number + time) % 4}")
    return bandit


async def copied(service: HeadlessService, bandit: Bandit, limit: int = 100) -> dict[str, bytes]:
    cursor, found = None, dict[str, bytes]()
    while True:
        page, cursor = await service.parts.learner_copies.page(bandit, cursor, limit)
        assert len(page) <= limit
        assert not found.keys() & {key for key, _ in page}
        found |= {key: state_to_bytes(state) for key, state in page}
        if cursor is None:
            return found


@pytest.mark.parametrize("settings", [{}, {"half_life_s": 60.0}, {"idle_ttl_s": 900.0}], ids=str)
async def test_learners_are_given_bit_for_bit(service: HeadlessService, settings: dict[str, object]):
    bandit = await taught(service, **settings)
    states = await copied(service, bandit)
    other = await service.bandit("other", "w", **settings)
    for key, state in states.items():
        learner = LearnerId(other.uid, key)
        assert await service.parts.learner_copies.give(other, learner, state) is True
        assert await service.parts.learner_copies.give(other, learner, state) is False, "safe to repeat"
    assert await copied(service, other) == states
    for key in KEYS:
        of, to = [await service.parts.learners.report(b, LearnerId(b.uid, key)) for b in (bandit, other)]
        np.testing.assert_allclose(of.theta, to.theta, rtol=1e-9, atol=1e-12)
        assert (of.version, of.observations) == (to.version, to.observations)
    found = await compare(service.store)
    assert found.different == []


async def test_what_comes_after_is_learned_and_replayed(service: HeadlessService):
    bandit = await taught(service)
    states = await copied(service, bandit)
    other = await service.bandit("other", "w")
    for key, state in states.items():
        await service.parts.learner_copies.give(other, LearnerId(other.uid, key), state)
    for owner in (bandit, other):
        for key in KEYS:
            await service.observe(owner, "later", key=key, arm="a2")
    assert await copied(service, other) == await copied(service, bandit)
    assert (await compare(service.store)).different == []


async def test_a_learner_with_rewards_takes_no_state(service: HeadlessService):
    bandit = await taught(service)
    states = await copied(service, bandit)
    with pytest.raises(Conflict, match="rewards of its own"):
        await service.parts.learner_copies.give(bandit, LearnerId(bandit.uid, KEYS[1]), states[KEYS[2]])
    assert await copied(service, bandit) == states


async def test_a_state_that_comes_after_a_reward_changes_nothing(service: HeadlessService):
    """Two callers at once: one entry is before the other in the log, and the second is no state any more."""
    bandit = await taught(service)
    states = await copied(service, bandit)
    other = await service.bandit("other", "w")
    copies, learner = service.parts.learner_copies, LearnerId(other.uid, "ann")
    data = states[KEYS[2]]
    await copies.append_state(other, learner, data)
    await copies.append_state(other, learner, states[KEYS[3]])
    assert await copied(service, other) == {"ann": data}
    await service.observe(other, "o", key="bob")
    before = await copied(service, other)
    await copies.append_state(other, LearnerId(other.uid, "bob"), data)
    assert await copied(service, other) == before
    assert (await compare(service.store)).different == []


async def test_a_forgotten_learner_takes_a_state_again(service: HeadlessService):
    bandit = await taught(service)
    data = (await copied(service, bandit))[KEYS[2]]
    learner = LearnerId(bandit.uid, KEYS[2])
    await service.parts.erasure.forget(learner)

    async def gone() -> bool:
        return KEYS[2] not in await copied(service, bandit)

    await wait_until(gone, what="the entry that forgets is folded")
    assert await service.parts.learner_copies.give(bandit, learner, data) is True
    assert (await copied(service, bandit))[KEYS[2]] == data


def state(dim: int = 3, *, version: int = 1, number: float | None = None, half_life_s: float = 0.0) -> bytes:
    sums = ridge.empty(dim)
    if number is not None:
        sums.total[0] = number
    return state_to_bytes(LearnerState(version, sums, 0, half_life_s))


BAD = {
    "nothing": b"",
    "no state": b"c4nary",
    "of another format": b"\x09" + state()[1:],
    "cut": state()[:-8],
    "of another dimension": state(4),
    "discounted": state(half_life_s=60.0),
    "not a number": state(number=float("nan")),
    "infinite": state(number=float("inf")),
    "without a reward": state(version=0),
    "no sum of squares": state(number=-5.0),
}


@pytest.mark.parametrize("weight", [-0.5, 2.5, float("nan"), float("inf")])
async def test_observations_weigh_at_most_as_many_as_they_are(service: HeadlessService, weight: float):
    bandit = await service.bandit(half_life_s=60.0)
    learner = LearnerId(bandit.uid, "ann")
    for of_two, accepted in ((weight, False), (0.0, True)):
        sums = replace(ridge.empty(2), observations=2, weight=of_two)
        giving = service.parts.learner_copies.give(
            bandit, learner, state_to_bytes(LearnerState(2, sums, 0, 60.0))
        )
        if accepted:
            assert await giving is True
            continue
        with pytest.raises(Invalid) as refused:
            await giving
        assert refused.value.errors == [(("state",), "must hold observations that weigh at most 1 each")]


@pytest.mark.parametrize("name", BAD)
async def test_what_is_no_state_is_refused(service: HeadlessService, name: str):
    await service.catalogue("w", dim=3)
    bandit = await service.bandit(catalogue="w")
    with pytest.raises(Invalid) as refused:
        await service.parts.learner_copies.give(bandit, LearnerId(bandit.uid, "ann"), BAD[name])
    assert refused.value.errors[0][0] == ("state",)
    assert await copied(service, bandit) == {}
