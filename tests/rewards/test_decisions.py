"""Logged decisions and housekeeping over a store that loses replies: each default is counted once."""

import time

import pytest
from msgspec import structs

from app.bandits.bandit import Bandit
from app.bandits.settings import LogRule, RewardRule
from app.platform.errors import Unavailable
from app.platform.metrics import Metrics
from app.rewards.tokens import decision_of, raw_of
from headless_service import HeadlessService
from waiting import wait_until
from workers.housekeeping import Housekeeping

pytestmark = pytest.mark.anyio

WAITS = RewardRule(wait_s=3_600.0, default=-1.0)


async def due(service: HeadlessService, bandit: Bandit, key: str = "ann") -> int:
    """The partition of the learner; the waiting time of all its decisions is over, and nobody else looks."""
    await service.quiet()
    partition = bandit.learner_for(key).partition(service.store.partitions)
    later = time.time_ns() // 1_000_000 + 2**40
    assert (await service.store.waiting.due(partition, later, 100)).decisions
    return partition


async def sweep(service: HeadlessService, partition: int) -> None:
    """What is due within the next two hours."""
    housekeeping = Housekeeping(
        service.store, service.parts.erasure, Metrics(), wake=service.parts.worker.wake
    )  # type: ignore[arg-type,union-attr]
    await housekeeping.sweep(partition, time.time_ns() // 1_000_000 + 7_200_000)


async def observations(service: HeadlessService, bandit: Bandit, expected: int, key: str = "ann") -> None:
    async def there() -> bool:
        report = await service.parts.learners.report(bandit, bandit.learner_for(key))
        assert report.observations <= expected, "a default was counted twice"
        return report.observations == expected

    await wait_until(there, what=f"{expected} observations")


@pytest.mark.parametrize("call", ["waiting.log", "waiting.append_defaults"])
async def test_a_lost_reply_changes_nothing(service: HeadlessService, call: str):
    bandit = await service.bandit(reward=WAITS)
    if call == "waiting.log":
        service.store.lose.append(call)
        with pytest.raises(Unavailable):
            await service.choose(bandit, event_id="e")
    await service.choose(bandit, event_id="e")
    partition = await due(service, bandit)
    if call == "waiting.append_defaults":
        service.store.lose.append(call)
        with pytest.raises(Unavailable):
            await sweep(service, partition)
    for _ in range(3):
        await sweep(service, partition)
    await observations(service, bandit, 1)


async def test_an_activation_whose_reply_was_lost_is_a_duplicate(service: HeadlessService):
    bandit = await service.bandit(reward=WAITS)
    token = (await service.choose(bandit, activate=False)).decision
    service.store.lose.append("waiting.activate")
    with pytest.raises(Unavailable):
        await service.parts.decisions.activate([token])
    again = await service.parts.decisions.activate([token])
    assert (again.activated, again.duplicate) == (0, 1)
    await sweep(service, await due(service, bandit))
    await observations(service, bandit, 1)


async def test_a_default_is_due_before_its_decision_expires(service: HeadlessService):
    """Of one that is shown late too: after that no reward could take its place."""
    bandit = await service.bandit(reward=WAITS)
    decision = decision_of(raw_of((await service.choose(bandit, activate=False)).decision))
    soon = structs.replace(decision, expires_ms=decision.issued_ms + 600_000)
    await service.parts.decisions.activate([service.parts.signer.sign(soon)])
    partition = bandit.learner_for("ann").partition(service.store.partitions)
    assert (await service.store.waiting.due(partition, soon.expires_ms, 10)).decisions


async def test_a_default_is_logged_of_its_own_arm_where_an_arm_before_it_is_gone(service: HeadlessService):
    bandit = await service.bandit(policy="softmax", temperature=1.0, log=LogRule(), reward=WAITS)
    decision = decision_of(raw_of((await service.choose(bandit, k=2, activate=False)).decision))
    token = service.parts.signer.sign(structs.replace(decision, revisions=[2**40, decision.revisions[1]]))
    await service.parts.decisions.activate([token])
    await sweep(service, await due(service, bandit))
    await observations(service, bandit, 1)
    logged = await service.parts.decision_log.find(bandit, token)
    assert logged is not None
    assert [(reward.arm, reward.value) for reward in logged.row.rewards] == [(decision.arms[1], -1.0)]


@pytest.mark.rest
async def test_what_was_not_shown_before_its_learner_was_forgotten_never_was(service: HeadlessService):
    bandit = await service.bandit(reward=WAITS)
    token = (await service.choose(bandit, activate=False)).decision
    await service.parts.erasure.forget(bandit.learner_for("ann"))
    outcome = await service.parts.decisions.activate([token])
    assert outcome.rejected == [(0, "forgotten")]
    partition = bandit.learner_for("ann").partition(service.store.partitions)
    assert not (await service.store.waiting.due(partition, 2**52, 10)).decisions


async def test_a_default_of_a_forgotten_learner_is_not_counted(service: HeadlessService):
    """Also when it was logged, and the learner forgotten, before its traces could be erased."""
    bandit = await service.bandit(reward=WAITS)
    await service.choose(bandit)
    service.store.refuse.add("side_data.erase")
    with pytest.raises(Unavailable):
        await service.parts.erasure.forget(bandit.learner_for("ann"))
    service.store.refuse.clear()
    partition = await due(service, bandit)
    await sweep(service, partition)
    await observations(service, bandit, 0)
    housekeeping = await service.store.waiting.due(partition, 0, 10)
    assert not housekeeping.erase
    assert not housekeeping.decisions


@pytest.mark.rest
async def test_choosing_for_a_bandit_that_waits_needs_the_store_and_others_do_not(service: HeadlessService):
    plain, waits = await service.bandit("plain"), await service.bandit("waits", reward=WAITS)
    await service.choose(plain)
    await service.choose(waits)
    service.store.refuse |= {"waiting.log", "learners.stored"}
    await service.choose(plain)
    with pytest.raises(Unavailable):
        await service.choose(waits)


@pytest.mark.rest
async def test_a_plain_bandit_makes_no_call_to_choose(service: HeadlessService):
    bandit = await service.bandit()
    await service.choose(bandit)
    before = {
        name: count
        for name, count in service.store.calls.items()
        if name not in {"waiting.due", "learners.watermark"}
    }
    for _ in range(5):
        await service.choose(bandit)
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
    after = {name: count for name, count in service.store.calls.items() if name not in quiet}
    assert {name: count for name, count in before.items() if name not in quiet} == after
