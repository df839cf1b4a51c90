"""What two processes know of each other: learners, polls, leases, and names that are made anew."""

# ruff: noqa: F401, F811 - fixtures are imported

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest
from test_sync import Two, change, headless_service, two_processes, two_services

from app.bandits.bandit import Bandit
from app.bandits.settings import RewardRule
from app.catalogues.arms import Arm
from app.platform.deadlines import OneCall
from app.platform.errors import NoArms, NotFound, Unavailable
from app.replication import sync as module
from app.replication.sync import EVERY_S
from app.rewards.reward_entries import Observation, Reward
from app.rewards.tokens import Access
from app.selection.request import ChooseRequest
from app.storage.store import Store
from headless_service import HeadlessService
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


@pytest.fixture
async def teacher_and_pupil(store: Store, tmp_path: Path) -> AsyncIterator[Two]:
    """As ``two_processes``, but the second applies no rewards: whatever it knows, the first has learned."""
    async with two_services(store, tmp_path, worker=False) as services:
        yield services


async def test_a_learner_taught_by_another_process_is_chosen_from(teacher_and_pupil: Two):
    one, two = teacher_and_pupil
    bandit = await one.bandit()
    await two.parts.sync.poll()
    there = await two.parts.bandits.get("b")
    for _ in range(3):
        await two.choose(there)
    await one.observe(bandit, "o1")
    await two.parts.sync.poll()
    before = two.store.calls["learners.stored"]
    assert [(await two.choose(there)).learner_version for _ in range(3)] == [1, 1, 1]
    assert two.store.calls["learners.stored"] == before + 1, "it was read once, and nothing else was"
    await two.choose(there, "bob")
    before = two.store.calls["learners.stored"]
    await one.observe(bandit, "o2")
    await two.parts.sync.poll()
    await two.choose(there, "bob")
    assert two.store.calls["learners.stored"] == before, "who was not taught is not read again"
    await one.parts.erasure.forget(bandit.learner_for("ann"))
    await two.parts.sync.poll()
    assert (await two.choose(there)).learner_version == 0


async def test_who_waits_is_told_by_whoever_applies_it_and_chooses_from_it(two_processes: Two):
    """Half of the partitions belong to the other process; no poll in between is needed."""
    _, two = two_processes
    bandit = await two_processes[0].bandit()
    await two.parts.sync.poll()
    there = await two.parts.bandits.get("b")
    assert there.uid == bandit.uid
    for number in range(8):
        key = f"u{number}"
        token = (await two.choose(there, key)).decision
        assert (await two.reward(token)).applied
        assert (await two.choose(there, key)).learner_version == 1


async def test_a_decision_of_another_process_is_rewarded_at_once(two_processes: Two):
    """By a process that knows neither the bandit, nor the catalogue, nor the arm."""
    one, two = two_processes
    await one.catalogue("fresh")
    bandit = await one.bandit("new", "fresh")
    catalogue = await one.parts.catalogues.get("fresh")
    first = (await one.choose(bandit)).decision
    receipt = await two.parts.rewards.reward([Reward(first, 1.0)])
    assert (receipt.accepted, receipt.rejected) == (1, [])
    await one.parts.catalogues.upsert(catalogue, [Arm(f"a{i}", [5.0, float(i)]) for i in range(4)])
    second = (await one.choose(bandit)).decision
    receipt = await two.parts.rewards.reward([Reward(second, 1.0)])
    assert (receipt.accepted, receipt.rejected) == (1, [])
    await one.parts.catalogues.upsert(catalogue, [Arm("newest", [9.0, 9.0])])
    receipt = await two.parts.rewards.observe(
        await two.parts.bandits.get("new"), [Observation("o", "newest", 1.0, "ann")]
    )
    assert receipt.accepted == 1


async def test_a_deferred_decision_is_activated_by_a_process_that_knows_nothing_of_it(two_processes: Two):
    one, two = two_processes
    await one.catalogue("fresh")
    bandit = await one.bandit("new", "fresh", reward=RewardRule(wait_s=3_600.0, default=2.0))
    token = (await one.choose(bandit, activate=False)).decision
    assert (await two.reward(token)).rejected == [(0, "not_activated")]
    await one.bandit("newer", "fresh")
    other = (await one.choose(await one.parts.bandits.get("newer"), activate=False)).decision
    outcome = await two.parts.decisions.activate([token, other, token])
    assert (outcome.activated, outcome.duplicate, outcome.rejected) == (2, 1, [])
    assert (await one.reward(token)).accepted == 1


async def test_a_prior_fitted_by_another_process_is_that_of_here_after_a_poll(teacher_and_pupil: Two):
    one, two = teacher_and_pupil
    bandit = await one.bandit(prior="learned", ridge="auto", exploration="auto")
    await two.parts.sync.poll()
    there = await two.parts.bandits.get("b")
    items = [Observation(f"{n}-{arm}", f"a{arm}", 1.0 + arm, f"k{n}") for n in range(8) for arm in range(4)]
    await one.parts.rewards.wait(await one.parts.rewards.observe(bandit, items))
    assert (await two.choose(there, key="new")).prior_version == 0
    made = (await one.parts.prior_fits.fit(bandit)).version
    assert made is not None
    await two.parts.sync.poll()
    choices = [
        await service.parts.dry_runs.run(each, ChooseRequest(key=key, k=4, seed=7))
        for key in ("new", "k3")
        for service, each in ((one, bandit), (two, there))
    ]
    assert {choice.prior_version for choice in choices} == {made.number}
    assert choices[0] == choices[1], "to the bit"
    assert choices[2] == choices[3]
    again = (await two.parts.prior_fits.fit(there)).version  # a process without a worker may be asked too
    assert again is not None
    assert again.number == made.number + 1
    await one.parts.sync.poll()
    assert (await one.choose(bandit, key="new")).prior_version == again.number


async def test_a_quiet_process_pauses_for_half_of_the_time_in_which_it_serves_a_new_version(
    teacher_and_pupil: Two,
):
    """Half a second is promised. Pauses are counted, not time: a machine may be busy."""
    one, two = teacher_and_pupil
    bandit = await one.bandit(prior="learned", ridge="auto", exploration="auto")
    items = [Observation(f"{n}-{arm}", f"a{arm}", 1.0 + arm, f"k{n}") for n in range(8) for arm in range(4)]
    await one.parts.rewards.wait(await one.parts.rewards.observe(bandit, items))
    sync = two.parts.sync
    sync.every_s = EVERY_S
    await sync.poll()
    there = await two.parts.bandits.get("b")
    pauses = list[float]()
    for _ in range(8):  # nobody asks, and nothing changes
        pauses.append(sync.next_pause_s())
        await sync.poll()
    assert pauses[-1] == pauses[-2] == max(pauses) > sync.every_s, "it polls less often when it is quiet"
    made = (await one.parts.prior_fits.fit(bandit)).version
    assert made is not None
    pause_s = sync.next_pause_s()
    await sync.poll()
    assert (await two.choose(there, key="new")).prior_version == made.number
    assert pause_s <= 0.25


async def test_after_a_pause_a_choice_is_up_to_date_or_says_how_old_it_is(two_processes: Two):
    one, two = two_processes
    bandit = await one.bandit()
    await two.parts.sync.poll()
    there = await two.parts.bandits.get("b")
    assert (await two.choose(there)).stale_s is None
    await one.parts.catalogues.upsert(await one.parts.catalogues.get("c"), [Arm("new", [9.0, 9.0])])
    await one.observe(bandit, "o1", arm="new")
    two.parts.sync.confirmed_at -= 100.0
    choice = await two.choose(there)
    assert (choice.stale_s, choice.arms[0].id, choice.learner_version) == (None, "new", 1)
    two.parts.sync.confirmed_at -= 100.0
    two.store.refuse.add("registry.version")
    choice = await two.choose(there)
    assert choice.stale_s is not None
    assert choice.stale_s >= 100.0
    two.store.refuse.clear()
    two.store.hold["registry.version"] = gate = asyncio.Event()
    two.parts.sync.is_failing = False
    assert (await two.choose(there)).stale_s is not None, "a store that hangs is not waited for"
    gate.set()
    two.store.hold.clear()
    await two.parts.sync.poll()
    assert (await two.choose(there)).stale_s is None


async def test_a_store_that_is_away_leaves_what_is_known_to_choose_from(teacher_and_pupil: Two):
    """An outdated learner cannot be read again: it serves all the same."""
    one, two = teacher_and_pupil
    bandit = await one.bandit()
    await two.parts.sync.poll()
    there = await two.parts.bandits.get("b")
    await two.choose(there)
    await one.observe(bandit, "o1")
    await two.parts.sync.poll()
    two.store.refuse.add("learners.stored")
    assert (await two.choose(there)).learner_version == 0
    with pytest.raises(Unavailable):
        await two.choose(there, "never seen")
    two.store.refuse.clear()
    assert (await two.choose(there)).learner_version == 1


async def test_what_does_not_exist_is_looked_for_once_a_call(two_processes: Two):
    """Rewards of a deleted bandit, for a day after each deletion, cost a poll for each reward."""
    one, two = two_processes
    gone, hidden = await one.bandit("gone"), await one.bandit("hidden")
    deleted, shown = [
        [(await one.choose(bandit, activate=False)).decision for _ in range(30)] for bandit in (gone, hidden)
    ]
    await one.parts.bandits.delete("gone")

    async def polls(work: Awaitable[Any]) -> int:
        before = two.store.calls["registry.version"]
        with OneCall():
            await work
        return two.store.calls["registry.version"] - before

    async def reward(tokens: list[str], access: Access) -> None:
        rejected = (await two.parts.rewards.reward([Reward(t, 1.0) for t in tokens], access)).rejected
        assert {code for _, code in rejected} == {"unknown_bandit"}

    async def look_for_others() -> None:
        for number in range(5):
            with pytest.raises(NotFound):
                await two.parts.bandits.get(f"none-{number}")
            with pytest.raises(NotFound):
                await two.parts.catalogues.get(f"none-{number}")
        catalogue = await two.parts.catalogues.get("c")
        assert await two.parts.sync.missing(catalogue, ["none"]) == {"none"}

    some = Access(bandits=["another"])
    assert await polls(reward(deleted, Access())) == 1
    assert await polls(reward(deleted, Access())) == 0
    assert await polls(two.parts.decisions.activate(deleted)) == 0
    assert await polls(reward(shown, some)) == 1, "who may not see it waits as if it did not exist"
    assert await polls(reward(shown, some)) == 0
    assert await polls(look_for_others()) == 1
    assert (await two.parts.decisions.activate(shown)).activated == 30


async def test_the_partitions_are_shared_and_taken_over(store: Store, tmp_path: Path):
    async with headless_service(store, tmp_path / "one") as one:
        leases = one.parts.worker.leases  # type: ignore[union-attr]
        everything = set(range(store.partitions))
        assert set(leases.owned) == everything
        async with headless_service(store, tmp_path / "two") as two:
            others = two.parts.worker.leases  # type: ignore[union-attr]

            async def shared() -> bool:
                return len(leases.owned) == len(others.owned) == store.partitions // 2

            await wait_until(shared, what="each has half")
            assert set(leases.owned) | set(others.owned) == everything

        async def alone() -> bool:
            return set(leases.owned) == everything

        await wait_until(alone, what="the partitions of the one that left are taken over")


async def test_a_service_alone_with_its_store_has_all_partitions_whoever_had_one(
    store: Store, tmp_path: Path
):
    for number in range(2, 9):
        await store.leases.join(f"serve-{number}", 3_600_000)
    async with headless_service(store, tmp_path / "alone", name="serve-1") as service:
        await service.catalogue()
        bandit = await service.bandit()
        for number in range(2 * store.partitions):
            token = (await service.choose(bandit, f"key-{number}")).decision
            assert (await service.reward(token)).applied
        assert not service.store.calls["leases.join"]


async def test_what_another_process_has_just_made_is_found(two_processes: Two):
    """Catalogues, bandits and arms: who is asked for what is not here polls, and nobody else does."""
    one, two = two_processes
    await one.catalogue("fresh", arms=0)
    bandit = await one.bandit("new", "fresh")
    there = await two.parts.catalogues.get("fresh")
    assert (await two.parts.bandits.get("new")).uid == bandit.uid
    await one.parts.catalogues.upsert(bandit.catalogue, [Arm("x", [1.0, 1.0])])
    assert (await two.parts.catalogues.get("fresh")) is there
    assert len(there.index) == 0, "what is here is given as it is"
    assert len((await two.parts.catalogues.get_stocked("fresh")).index) == 1
    await one.parts.catalogues.upsert(bandit.catalogue, [Arm("y", [1.0, 2.0])])
    catalogues = two.parts.catalogues
    arm = await catalogues.use("fresh", lambda found: catalogues.arm_pages.one(found, "y"))
    assert list(arm.features) == [1.0, 2.0]
    polls = two.store.calls["registry.version"]
    with pytest.raises(NotFound):
        await catalogues.use("fresh", lambda found: catalogues.arm_pages.one(found, "z"))
    with pytest.raises(NotFound):
        await two.parts.bandits.get("no such bandit")
    assert await two.parts.bandits.find("no such uid", 1) is None
    assert two.store.calls["registry.version"] == polls + 3, "one poll each"


async def test_while_the_store_does_not_answer_nobody_knows_whether_a_name_exists(two_processes: Two):
    one, two = two_processes
    bandit = await one.bandit()
    two.store.refuse.add("registry.version")
    for name in (bandit.name, "no such name"):
        with pytest.raises(Unavailable):
            await two.parts.bandits.get(name)
        with pytest.raises(Unavailable):
            await two.parts.catalogues.get(name)
    two.store.refuse.clear()
    await two.parts.sync.poll()
    assert await two.parts.bandits.get("b")


async def test_a_catalogue_that_another_process_has_made_anew_is_written_to(two_processes: Two):
    """By who names it. Who holds the old one, as an import does in the middle, is told that it is gone."""
    one, two = two_processes
    old = await two.parts.catalogues.get("c")
    await one.parts.catalogues.delete("c")
    await one.catalogue("c", arms=1)
    arms, catalogues = [Arm("new", [1.0, 1.0])], two.parts.catalogues
    with pytest.raises(NotFound):
        await catalogues.upsert(old, arms)
    assert (await catalogues.use("c", lambda found: catalogues.upsert(found, arms))).added == 1
    await one.parts.catalogues.delete("c")
    await one.catalogue("c", arms=2)
    assert (await catalogues.use("c", lambda found: catalogues.remove(found, ["a1"]))).deleted == ["a1"]


async def test_a_learner_that_cannot_be_read_again_serves_by_the_earlier_terms(two_processes: Two):
    """A change of the ridge makes posteriors again; while the store does not answer the old ones serve."""
    one, _ = two_processes
    bandit = await one.bandit(exploration=0.0)
    await one.observe(bandit, *(f"o{i}" for i in range(5)))
    before = (await one.choose(bandit)).arms
    changed = await change(one, ridge=50.0)
    one.store.refuse.add("learners.stored")
    assert (await one.choose(changed)).arms == before
    one.store.refuse.clear()
    after = (await one.choose(changed)).arms
    assert after[0].score < before[0].score
    calls = one.store.calls["learners.stored"]
    assert [(await one.choose(changed)).arms for _ in range(3)] == [after] * 3
    assert one.store.calls["learners.stored"] == calls, "it is read once"
