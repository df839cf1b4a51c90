"""Which keys a learned prior is fitted from, and who makes its versions."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from app.bandits.bandit import Bandit
from app.bandits.prior_version import (
    PriorVersion,
    bytes_to_prior,
    exported,
    imported,
    version_of,
    version_to_bytes,
)
from app.bandits.settings import LogRule
from app.learners import prior_fits
from app.learners.prior_fits import FitLimits
from app.platform.errors import NotFound, Unavailable
from app.rewards.reward_entries import Observation
from app.storage.learner_states import LearnerStates
from app.storage.store import Store
from headless_service import HeadlessService
from shortlist.linear import learned_prior, ridge_sums
from workers import prior_fitting

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def nobody_else_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that every fit is one of the test."""

    async def nothing(_: Any) -> bool:
        return False

    monkeypatch.setattr(prior_fitting.PriorFitting, "round", nothing)


async def learned(service: HeadlessService, **changes: Any) -> Bandit:
    return await service.bandit(prior="learned", ridge="auto", exploration="auto", **changes)


async def teach(
    service: HeadlessService, bandit: Bandit, rewards: dict[str, int], *, value: float = 1.0
) -> None:
    """So many rewards of each key, each for another arm."""
    items = [
        Observation(f"{key}-{place}-{value}", f"a{place % 4}", value * (1 + place % 3), key)
        for key, count in rewards.items()
        for place in range(count)
    ]
    await service.parts.rewards.wait(await service.parts.rewards.observe(bandit, items))


async def fit(service: HeadlessService, bandit: Bandit) -> learned_prior.LearnedPrior:
    version = (await service.parts.prior_fits.fit(bandit)).version
    assert version is not None
    assert version.learned is not None
    return version.learned


async def test_half_of_the_places_are_for_keys_with_enough_rewards(service: HeadlessService):
    """Of 100 with one reward and 40 with five, 40 are drawn: 20 of any, the others of those with five."""
    bandit = await learned(service)
    await teach(service, bandit, {f"one-{n}": 1 for n in range(100)} | {f"five-{n}": 5 for n in range(40)})
    service.parts.prior_fits.limits = FitLimits(keys=40)
    found = await fit(service, bandit)
    assert found.keys == 40
    assert 20 * 5 + 20 <= found.observations < 40 * 5
    service.parts.prior_fits.limits = FitLimits(keys=120)
    found = await fit(service, bandit)
    assert found.keys == 120, "what is left of the places goes to the others"
    assert found.observations == 40 * 5 + 80


@pytest.mark.rest
async def test_the_draw_is_the_same_each_time_and_nobody_can_tell_it_from_the_names(service: HeadlessService):
    limits = FitLimits(keys=10)
    service.parts.prior_fits.limits = limits
    bandit = await learned(service)
    await teach(service, bandit, {f"k{n}": 1 + n for n in range(60)})  # no two are alike
    first, again = await fit(service, bandit), await fit(service, bandit)
    np.testing.assert_array_equal(first.mean, again.mean)
    other = prior_fits.PriorFits(service.store, service.parts.priors, service.parts.metrics, limits=limits)
    other._secret = b"another secret of 32 bytes, or so"[:32]  # private: another process with another secret
    version = (await other.fit(bandit)).version
    assert version is not None
    assert version.learned is not None
    assert not np.array_equal(version.learned.mean, first.mean)


@pytest.mark.rest
async def test_no_call_of_the_store_asks_for_much(service: HeadlessService, monkeypatch: pytest.MonkeyPatch):
    """Others wait for a call: so many learners at once, and not more than may be read."""
    # learners of 40 + 8 x 2 x 5 bytes each, and 16
    service.parts.prior_fits.limits = FitLimits(together_bytes=1_000, read=24)
    bandit, asked = await learned(service), list[int]()
    await teach(service, bandit, {f"k{n}": 2 for n in range(60)})
    stored = LearnerStates.stored

    async def counted(self: Any, partition: int, learners: Any, known: Any = None) -> Any:
        asked.append(len(learners))
        return await stored(self, partition, learners, known)

    monkeypatch.setattr(LearnerStates, "stored", counted)
    assert (await fit(service, bandit)).keys == 24
    assert max(asked) <= 7
    assert sum(asked) == 24


async def test_what_is_learned_while_sums_are_read_is_not_said_to_be_in_the_version(service: HeadlessService):
    bandit = await learned(service)
    await teach(service, bandit, {f"k{n}": 3 for n in range(8)})
    service.store.before["learners.names"] = lambda: teach(service, bandit, {"late": 5})
    version = (await service.parts.prior_fits.fit(bandit)).version
    assert version is not None
    assert version.record.rewards == 8 * 3
    (counts,) = await service.parts.store.priors.folded([bandit.uid])
    assert counts.entries == 8 * 3 + 5


async def test_a_version_is_never_older_than_the_one_before_it(
    service: HeadlessService, monkeypatch: pytest.MonkeyPatch
):
    """Though the clock of this process is behind that of the one which made it."""
    bandit = await learned(service)
    await teach(service, bandit, {f"k{n}": 3 for n in range(8)})
    first = (await service.parts.prior_fits.fit(bandit)).version
    clock = SimpleNamespace(time_ns=lambda: time.time_ns() - 3_600 * 10**9, thread_time=time.thread_time)
    monkeypatch.setattr(prior_fits, "time", clock)
    second = (await service.parts.prior_fits.fit(bandit)).version
    assert first is not None
    assert second is not None
    assert (second.number, second.record.since_ms) == (2, first.record.since_ms)


async def test_versions_are_kept_as_long_as_rows_that_name_them(
    service: HeadlessService, monkeypatch: pytest.MonkeyPatch
):
    bandit = await learned(service, log=LogRule(keep_s=10 * 86_400.0))
    await teach(service, bandit, {f"k{n}": 3 for n in range(8)})
    began = time.time_ns()
    for days, kept in ((0, [1]), (5, [1, 2]), (10, [1, 2, 3]), (20, [2, 3, 4])):
        now = began + days * 86_400 * 10**9
        clock = SimpleNamespace(time_ns=lambda now=now: now, thread_time=time.thread_time)
        monkeypatch.setattr(prior_fits, "time", clock)
        await service.parts.prior_fits.fit(bandit)
        assert await service.parts.store.priors.kept_versions(bandit.uid) == kept


@pytest.mark.rest
async def test_a_bandit_that_is_deleted_meanwhile_gets_no_version(service: HeadlessService):
    bandit = await learned(service)
    await teach(service, bandit, {f"k{n}": 3 for n in range(8)})
    service.store.before["priors.write"] = lambda: service.parts.bandits.delete("b")
    with pytest.raises(NotFound):
        await service.parts.prior_fits.fit(bandit)
    again = await learned(service)
    assert not await service.parts.store.priors.kept_versions(bandit.uid)
    assert await service.parts.priors.newest(again.uid) is None


async def test_while_the_store_is_away_the_version_of_before_serves(service: HeadlessService):
    bandit = await learned(service)
    await teach(service, bandit, {f"k{n}": 3 for n in range(8)})
    await fit(service, bandit)
    assert (await service.choose(bandit, key="new")).prior_version == 1
    version = await service.parts.priors.newest(bandit.uid)
    assert version is not None
    following = PriorVersion(msgspec.structs.replace(version.record, number=2), version.learned)
    write = {"record": version_to_bytes(following), "expected": 1, "since_ms": 2}
    assert await service.parts.store.priors.write("b", bandit.uid, **write) == 2
    service.store.refuse.add("priors.read")
    with pytest.raises(Unavailable):
        await service.parts.priors.sync()
    assert (await service.choose(bandit, key="new")).prior_version == 1
    service.store.refuse.clear()
    await service.parts.priors.sync()
    assert (await service.choose(bandit, key="new")).prior_version == 2
    service.parts.priors._newest.clear()  # private: as after a restart
    service.store.refuse.add("priors.read")
    with pytest.raises(Unavailable):  # nothing is known here, and nothing is made up
        await service.choose(bandit, key="new")


@pytest.mark.rest
async def test_versions_that_no_row_names_go_and_the_newest_stays(service: HeadlessService, store: Store):
    bandit, priors = await learned(service), store.priors
    for number in range(6):
        when = {"since_ms": 10 * number, "named_after_ms": 40 if number == 5 else 0}
        assert await priors.write("b", bandit.uid, b"x" * 9, expected=number, **when)
    assert await priors.kept_versions(bandit.uid) == [4, 5, 6], "4 was replaced when 5 was made, at 40"
    priors.most_versions = 2
    assert await priors.write("b", bandit.uid, b"x", expected=6, since_ms=60) == 7
    assert await priors.kept_versions(bandit.uid) == [6, 7]
    priors.most_version_bytes = 5
    assert await priors.write("b", bandit.uid, b"x" * 99, expected=7, since_ms=70) == 8
    assert await priors.kept_versions(bandit.uid) == [8], "the newest, however large"
    assert await priors.write("b", bandit.uid, b"x", expected=7, since_ms=80) == 0, "somebody was faster"
    assert await priors.write("other", bandit.uid, b"x", expected=8, since_ms=80) is None


@pytest.mark.rest
async def test_a_version_is_the_same_bits_after_it_was_stored_and_exported(service: HeadlessService):
    bandit = await learned(service)
    await teach(service, bandit, {f"k{n}": 3 + n for n in range(12)})
    version = (await service.parts.prior_fits.fit(bandit)).version
    assert version is not None
    for again in (
        bytes_to_prior(version_to_bytes(version)),
        imported(msgspec.json.encode(exported(version))),
    ):
        assert again.learned is not None
        assert version.learned is not None
        assert again.learned.variation == version.learned.variation > 0.0
        for name in ("mean", "precision", "residuals", "pull"):
            np.testing.assert_array_equal(getattr(again.learned, name), getattr(version.learned, name))


@pytest.mark.rest
@pytest.mark.parametrize("signals", [1, 2])
def test_a_version_keeps_what_is_usual_of_the_rewards_of_keys(signals: int):
    rng = np.random.default_rng(7)
    x, r = rng.normal(size=(8, 20, 3)), rng.normal(size=(8, 20, signals))
    r[0] *= 20.0
    prior = learned_prior.fit(
        x.swapaxes(1, 2) @ x, r.swapaxes(1, 2) @ x, r.swapaxes(1, 2) @ r, np.full(8, 20.0), own_units=True
    )
    assert prior is not None
    version = version_of(1, 5, prior)
    wider = version.of_signals(signals + 1).learned
    assert wider is not None
    large = ridge_sums.of(x[0], r[0, :, 0], np.ones(20, dtype=np.bool_))
    for again in (
        bytes_to_prior(version_to_bytes(version)).learned,
        imported(msgspec.json.encode(exported(version))).learned,
        wider,
    ):
        assert again is not None
        expected = prior.known(large)
        found = again.known(large)
        np.testing.assert_array_equal(found.thetas[:signals], expected.thetas)
        np.testing.assert_array_equal(found.forms[:, :signals, :signals], expected.forms)
