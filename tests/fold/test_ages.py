"""The fold of the reward log into the sums of ages, and the fits that go on from one another."""

from __future__ import annotations

import struct

import msgspec
import numpy as np
import pytest

from app.bandits.effect_version import AgeFit, EffectRecord, bytes_to_record, record_to_bytes, version_of
from app.fold.ages import MOVED, STALE_MS, fitted_ages, have_moved
from app.fold.arm_sums import ages_of, arm_of, arms_of, fold_arms
from app.records.age_sums import AgeSums, AtAge, TokenAges, age_at, as_in_tokens
from app.records.arm_sums import pair_at, pairs_to_bytes
from app.records.log_entries import DecodedEntry, ForgetEntry, RewardEntry
from app.records.place_sums import AtPlace
from app.records.records import pack, unpack, vector_to_bytes
from app.storage.types import LearnerId
from log_entries import entry_of
from shortlist.linear import ages
from shortlist.linear.ages import BINS, FIRST_MS, STRETCH

pytestmark = pytest.mark.rest

UID = "0123456789abcdef"
NOISE = 0.25


def entries_of(
    rng: np.random.Generator, count: int, *, first: float = 1.0, bins: int = 4
) -> list[DecodedEntry]:
    """Rewards of a few keys for arms of some ages. ``first``: the share of those that came before others."""
    found = list[DecodedEntry]()
    for number in range(1, count + 1):
        age = float(rng.normal())
        content = RewardEntry(
            vector_to_bytes(rng.normal(size=2)),
            float(rng.random()),
            arm=f"a{rng.integers(3)}",
            revision=1,
            decided_ms=number,
            examined=float(rng.uniform(0.3, 1.0)),
            served=(float(rng.normal()) + age,),
            expected=(float(rng.normal()),),
            sums=True,
            at_place=AtPlace(int(rng.integers(3)), float(rng.uniform(1.0, 2.0))),
            at_age=AtAge(int(rng.integers(bins)), age),
        )
        is_first = bool(rng.random() < first)
        came = () if is_first else ((0, float(rng.random())),)
        learner = LearnerId(UID, f"u{rng.integers(4)}")
        found.append(entry_of(number, learner, content, first=is_first, came=came))
    return found


def own_sums(entries: list[DecodedEntry]) -> np.ndarray:
    """What is wanted of each bin, n and R, decision by decision."""
    found = np.zeros((2, BINS))
    for entry, reward in entries:
        p, w = reward.examined, reward.at_place.weight
        effect = reward.served[0] - reward.at_age.effect
        surprise = reward.value - entry.first * p * (reward.expected[0] + effect)
        found[:, reward.at_age.bin] += np.array([entry.first * w * p**2, w * p * surprise])
    return found


def numbers_of(sums: AgeSums) -> np.ndarray:
    return np.array([sums.n, np.subtract(sums.R, sums.R_error)])


def test_sums_are_those_of_each_decision_however_the_log_is_cut():
    entries, of = entries_of(np.random.default_rng(1), 60, first=0.7), ages_of(UID)
    assert of in arms_of(entries)
    whole = fold_arms({}, entries, {}, {})[of]
    np.testing.assert_allclose(numbers_of(whole), own_sums(entries), rtol=1e-12, atol=1e-12)
    cut = dict(fold_arms({}, entries[:25], {}, {}))
    cut.update(fold_arms(cut, entries[25:], {}, {}))
    assert cut[of] == whole == unpack(pack(whole), AgeSums)


def test_an_arm_learns_what_neither_features_nor_age_say():
    entries = entries_of(np.random.default_rng(5), 40)
    found, wanted = fold_arms({}, entries, {}, {}), dict[object, float]()
    for each in entries:
        reward = each.content
        p, w = reward.examined, reward.at_place.weight
        rho = reward.value - p * (reward.expected[0] + reward.at_age.effect)
        wanted[arm_of(each)] = wanted.get(arm_of(each), 0.0) + w * p * rho
    for arm, R in wanted.items():
        assert found[arm].R[0] - found[arm].R_error[0] == pytest.approx(R)


def test_a_key_that_is_forgotten_leaves_the_ages_of_the_others():
    entries, of = entries_of(np.random.default_rng(2), 60), ages_of(UID)
    gone = LearnerId(UID, "u1")
    own = [each for each in entries if each.entry.learner == gone]
    left = fold_arms({}, [*entries, entry_of(99, gone, ForgetEntry())], {}, {"1-99": own})[of]
    others = [each for each in entries if each.entry.learner != gone]
    np.testing.assert_allclose(numbers_of(left), own_sums(others), rtol=1e-9, atol=1e-9)


def sums_of(n: np.ndarray, R: np.ndarray) -> AgeSums:
    return AgeSums(1, tuple(n.tolist()), tuple((R + 0.5).tolist()), (0.5,) * BINS)


def test_each_fit_goes_on_from_the_one_before_where_a_stretch_is_over():
    rng = np.random.default_rng(3)
    n, R = rng.uniform(20.0, 40.0, size=(2, BINS)), 30.0 * rng.normal(size=(2, BINS))
    assert n.sum(axis=1).min() > STRETCH
    assert fitted_ages(None, [], NOISE) is None
    assert fitted_ages(None, [sums_of(n[0] * 0.9 * STRETCH / n[0].sum(), R[0])], NOISE) is None
    half = [sums_of(0.5 * n[0], 0.25 * R[0]), sums_of(0.5 * n[0], 0.75 * R[0])]  # of two partitions
    first = fitted_ages(None, half, NOISE)
    assert first is not None
    assert fitted_ages(first, half, NOISE) is first
    assert fitted_ages(first, [*half, sums_of(np.full(BINS, 1.0), R[1])], NOISE) is first
    again = fitted_ages(first, [*half, sums_of(n[1], R[1])], NOISE)
    known = ages.nothing()
    for fit, own in ((first, 0), (again, 1)):
        known = ages.added(known, n[own], R[own])
        f, deviations = ages.fit(known, NOISE)
        np.testing.assert_allclose(fit.effects, f, rtol=0.01)
        np.testing.assert_allclose(fit.deviations, deviations)
        assert as_in_tokens(np.array(fit.effects)) == fit.effects
    record = EffectRecord(1, 0, 0, 0, [0.0], [0.0], ages=again)
    assert version_of(bytes_to_record(record_to_bytes(record))).record.ages == again
    # a key was forgotten that taught more of one bin than has come since
    less = n[0].copy()
    less[3] = 0.0
    forgotten = fitted_ages(first, [sums_of(less + np.eye(BINS)[5] * 300.0, R[0])], NOISE)
    assert np.isfinite(forgotten.effects).all()
    assert forgotten.n[3] == 0.0


def test_a_version_is_due_where_an_age_has_moved_or_arms_have_aged():
    fit = AgeFit([0.0] * BINS, [0.1] * BINS, [[0.0] * BINS] * BINS, [0.0] * BINS, [1.0] * BINS, [0.0] * BINS)
    step = MOVED * 0.1
    moved, stayed = (
        msgspec.structs.replace(fit, effects=[0.0, factor * step, *[0.0] * (BINS - 2)])
        for factor in (1.1, 0.9)
    )
    assert have_moved(None, moved, 0)
    assert not have_moved(fit, stayed, STALE_MS - 1)
    assert have_moved(fit, stayed, STALE_MS)
    assert not have_moved(None, fit, 10**9), "nothing is added, so it does not matter how old arms are"
    assert not have_moved(fit, None, 10**9)


def test_a_version_takes_arms_for_as_old_as_they_were_when_it_was_made():
    effects = as_in_tokens(np.linspace(1.0, -1.0, BINS))
    fit = AgeFit(effects, [0.1] * BINS, [], [], [], [])
    version = version_of(EffectRecord(1, 10**12, 0, 0, [0.0], [0.0], ages=fit))
    came = np.array([0, 10**12 + 5, 10**12 - 1, 10**12 - FIRST_MS, 10**12 - 2 * FIRST_MS, 1])
    wanted = [0.0, effects[0], effects[0], effects[1], effects[2], effects[-1]]
    assert version.age_effects(came).tolist() == wanted
    token = version.token_ages.of(came.tolist(), 10**12)
    served = [age_at(bytes(8 * len(came)) + token, number, len(came)) for number in range(len(came))]
    assert [0.0 if at is None else at.effect for at in served] == wanted
    assert version.first_age == effects[0]
    assert version.says_anything
    assert version.shown_number == 1
    nothing = version_of(EffectRecord(1, 10**12, 0, 0, [0.0], [0.0]))
    assert not nothing.says_anything
    assert nothing.age_effects(came).tolist() == [0.0] * len(came)


def test_a_token_has_the_ages_of_its_arms_after_their_pairs():
    rng = np.random.default_rng(4)
    effects = as_in_tokens(np.array([0.7, -123.4, 1e-9, *np.zeros(BINS - 3)]))
    now = 10**12
    came = [now - 5, now - 3 * FIRST_MS, now + 10, 0]
    ages = TokenAges(now - 2 * FIRST_MS, effects)
    data = ages.of(came, now)
    assert len(data) == 3 * 4
    for signals in (1, 2, 3):
        pairs = pairs_to_bytes(rng.normal(size=(4, signals)), rng.normal(size=(4, signals)))
        for number in range(4):
            assert pair_at(pairs + data, number, 4) == pair_at(pairs, number, 4)
            assert age_at(pairs, number, 4) is None
        found = [age_at(pairs + data, number, 4) for number in range(4)]
        # as old as it is now, served as it was when the version was made
        assert found == [AtAge(0, effects[0]), AtAge(2, effects[1]), AtAge(0, effects[0]), None]
    assert ages.of([0, 0], now) == b""
    for later in (now + FIRST_MS - 6, now + FIRST_MS - 5, now + 10**9, now):  # whatever is kept
        assert ages.of(came, later) == TokenAges(now - 2 * FIRST_MS, effects).of(came, later)
    assert effects[0] == pytest.approx(0.7, rel=2**-7)
    assert struct.unpack("<I", struct.pack("<f", effects[1]))[0] & 0xFFFF == 0
