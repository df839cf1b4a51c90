"""Versions of arm effects: of most only the arms are stored that moved."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from app.bandits.effect_version import (
    EffectRecord,
    EffectVersion,
    bytes_to_record,
    record_to_bytes,
    version_of,
)
from app.bandits.prior_version import version_of as prior_version_of
from app.bandits.settings import BanditRecord, LogRule, SignalRule
from app.learners.effect_chains import steps_of
from app.learners.effect_fits import MOVED, WHOLE_EVERY, fitted, stored_of
from app.learners.effect_totals import CollectedSums
from app.records.arm_sums import ArmSums
from app.records.records import pack, unpack, vector_to_bytes
from app.rewards.reward_entries import Observation
from headless_service import HeadlessService
from shortlist.linear.learned_prior import LearnedPrior

SIGNALS = {"click": SignalRule(), "buy": SignalRule()}


def record(signals: int) -> BanditRecord:
    return BanditRecord(
        "c",
        "sub_ts",
        "per_key",
        prior="learned",
        arm_effects="auto",
        signals=SIGNALS if signals > 1 else None,
    )


def versions(rng: np.random.Generator, count: int, signals: int, moved: float = MOVED):
    """Fits of sums that grow, in which arms come, go and get other features; what was stored, and served."""
    sums = dict[str, ArmSums]()
    truth = {f"a{n:02d}": rng.normal(size=signals) for n in range(60)}
    before: EffectVersion | None = None
    fits, stored, served = list[EffectVersion](), list[EffectRecord](), list[EffectVersion]()
    for step in range(count):
        for arm in rng.choice(sorted(truth)[: 20 + step], 6).tolist():
            own = sums.get(arm, ArmSums(revision=1, R=(0.0,) * signals, Q=(0.0,) * signals))
            if step > 5 and rng.random() < 0.05:
                own = ArmSums(revision=own.revision + 1, R=(0.0,) * signals, Q=(0.0,) * signals)
            rho = truth[arm] + rng.normal(size=signals)
            sums[arm] = ArmSums(
                0, own.decisions + 1, 0, own.revision, 0, own.n + 1.0, own.F + 1.0,
                tuple((np.array(own.R) + rho).tolist()), tuple((np.array(own.Q) + rho**2).tolist()),
            )  # fmt: skip
        if step % 9 == 8:
            del sums[sorted(sums)[int(rng.integers(len(sums)))]]
        collected = CollectedSums(space=0, signals=signals)
        collected.add_sums([*sums.items()])
        totals = collected.totals()
        number = 1 if before is None else before.number + 1
        now, *_ = fitted(totals, steps_of(totals, {}), {}, record(signals), number=number, now_ms=0)
        found = stored_of(before, now, moved)
        if found is not None:
            stored.append(bytes_to_record(found))
            assert stored[-1].number == number
            before = version_of(stored[-1], before if stored[-1].base else None)
            fits.append(now)
            served.append(before)
    return fits, stored, served


@pytest.mark.parametrize("signals", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_no_arm_is_served_with_an_effect_that_moved_by_half_its_deviation(signals: int, seed: int):
    fits, stored, served = versions(np.random.default_rng(seed), 80, signals)
    assert len(stored) > 40
    changes = [each for each in stored if each.base]
    assert len(changes) > 30
    assert np.mean([len(each.arms) for each in changes]) < 15  # of some 60
    assert any(each.gone for each in changes)
    for fit, version in zip(fits, served, strict=True):
        own = version.served(list(fit.names), signals).T
        # Of an arm that is kept as it was the variance is that of now: it moves its effect once more.
        limit = 1.5 * MOVED * np.sqrt(fit.record.variances)[:, None]
        assert (np.abs(own - fit.effects) <= np.maximum(limit, 1e-6)).all()
        assert set(version.names) <= set(fit.names)
        assert list(version.names) == sorted(version.names)
        assert version.record.variances == fit.record.variances


def test_a_version_is_the_same_whether_it_was_followed_or_read_later():
    fits, stored, served = versions(np.random.default_rng(7), 90, 2)
    assert any(not each.base for each in stored[1:])  # all arms, from time to time
    for place, version in enumerate(served):
        first = max(each for each in range(place + 1) if not stored[each].base)
        assert place - first < WHOLE_EVERY
        chain = stored[first + 1 : place + 1]
        assert sum(len(each.arms) for each in chain) <= len(fits[place].names)
        again = version_of(stored[first])
        for change in chain:
            again = version_of(change, again)
        assert again.stored() == version.stored()
        assert (again.effects == version.effects).all()
        assert (again.deviations == version.deviations).all()


@pytest.mark.rest
def test_what_was_asked_for_has_every_arm_as_it_is_now():
    fits, _, served = versions(np.random.default_rng(3), 30, 1, moved=0.0)
    for fit, version in zip(fits, served, strict=True):
        assert msgspec.structs.replace(version.stored(), chained=0) == fit.stored()


@pytest.mark.rest
def test_nothing_is_stored_where_nothing_moved():
    fits, *_ = versions(np.random.default_rng(4), 20, 1, moved=0.0)
    last = fits[-1]
    for moved in (MOVED, 0.0):
        assert stored_of(last, last, moved) is None
    change = EffectRecord(2, 1, 1, 0, last.record.variances, last.record.noises, base=last.number)
    assert version_of(change, last).names == last.names


def test_sums_of_another_space_are_left_out_and_those_of_each_revision_stay_apart():
    """Whichever comes first."""
    shown = {
        place: pack(ArmSums(1, 1, space, revision, 0, float(n), float(n), (1.0,), (1.0,)))
        for place, (space, revision, n) in enumerate([(0, 9, 1), (1, 2, 2), (1, 1, 4), (1, 2, 8), (2, 9, 16)])
    }
    for order in (list(shown), list(shown)[::-1]):
        collected = CollectedSums(space=1, signals=1)
        stale = [collected.add({("a", place): shown[place]}) for place in order]
        totals = collected.totals()
        found = {step.revision: totals.numbers[0, 0, place] for step, place in totals.places.items()}
        assert (found, totals.decisions) == ({2: 10.0, 1: 4.0}, 3)
        assert [place for before in stale for _, place in before] == [0]


@pytest.mark.anyio
async def test_a_bandit_is_served_with_the_newest_version_after_the_next_poll(service: HeadlessService):
    await service.quiet()
    bandit = await service.bandit(
        prior="learned", arm_effects="auto", ridge="auto", exploration="auto", log=LogRule()
    )
    one = np.eye(2)
    prior = LearnedPrior.of(one[:1], one, one[:1, :1], keys=2, observations=2.0, variation=1.0)
    bandit = bandit.with_prior(prior_version_of(1, 0, prior))
    effects, one_reward = service.parts.effects, vector_to_bytes(np.ones(1))
    for number in (1, 2, 3):
        version = EffectRecord(number, 0, 0, 0, [1.0], [1.0], ["a"], [1], one_reward, one_reward)
        written = record_to_bytes(version)
        assert (
            await service.store.effects.write("b", bandit.uid, expected=number - 1, record=written) == number
        )
        await effects.sync()
        served = (await effects.serving(bandit)).effects
        assert served is not None
        assert served.number == number
    # Where nothing is found any more it is served as without effects.
    empty = record_to_bytes(EffectRecord(4, 0, 0, 0, [1.0], [1.0]))
    await service.store.effects.write("b", bandit.uid, expected=3, record=empty)
    await effects.sync()
    assert (await effects.serving(bandit)).effects is None


@pytest.mark.rest
@pytest.mark.anyio
async def test_a_far_observation_teaches_its_key_and_no_arm(service: HeadlessService):
    """One of 1e6 where all others are about 1: what it is worth to its key says nothing of the arm."""
    await service.quiet()
    auto: dict[str, Any] = {"arm_effects": "auto", "ridge": "auto", "exploration": "auto"}
    bandit = await service.bandit(prior="learned", **auto)
    rng = np.random.default_rng(5)
    observations = [
        Observation(f"{key}-{arm}", f"a{arm}", float(rng.normal()), f"u{key}")
        for key in range(8)
        for arm in range(4)
    ]
    rewards = service.parts.rewards
    await rewards.wait(await rewards.observe(bandit, observations))
    assert (await service.parts.prior_fits.fit(bandit)).is_new
    await service.parts.sync.poll()
    far = Observation("far", "a2", 1e6, "ann")
    usual = [Observation("usual", "a1", 1.0, "ann"), Observation("other", "a3", 1.0, "bob")]
    await rewards.wait(await rewards.observe(bandit, [far, *usual]))
    taught = dict[str, ArmSums]()
    for partition in range(service.store.partitions):
        async for some in service.store.effects.all_sums(partition, bandit.uid):
            taught |= {arm: unpack(data, ArmSums) for (arm, _), data in some.items()}
    assert {arm: sums.decisions for arm, sums in taught.items()} == {"a1": 1, "a3": 1}
    learner, _ = await service.parts.learners.current(bandit, bandit.learner_for("ann"))
    assert learner.version == 2
