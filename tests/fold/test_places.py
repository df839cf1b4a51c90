"""The fold of the reward log into the sums of places, and the fits that go on from one another."""

from __future__ import annotations

import numpy as np
import pytest

from app.bandits.effect_version import EffectRecord, PlaceFit, bytes_to_record, record_to_bytes, version_of
from app.fold.arm_sums import arms_of, fold_arms, places_of
from app.fold.places import fitted_places, have_moved
from app.records.log_entries import DecodedEntry, ForgetEntry, RewardEntry
from app.records.place_sums import MOST_LEARNED_PLACES, AtPlace, PlaceSums, examined_at, places_to_bytes
from app.records.records import pack, unpack, vector_to_bytes
from app.storage.types import LearnerId
from log_entries import entry_of
from shortlist.linear import places
from shortlist.linear.places import PlaceNumbers

pytestmark = pytest.mark.rest

UID = "0123456789abcdef"


def entries_of(rng: np.random.Generator, count: int, *, first: float = 1.0) -> list[DecodedEntry]:
    """Rewards of a few keys at three places. ``first``: the share of those that no other came before."""
    found = list[DecodedEntry]()
    for number in range(1, count + 1):
        content = RewardEntry(
            vector_to_bytes(rng.normal(size=2)),
            float(rng.random()),
            arm=f"a{rng.integers(3)}",
            revision=1,
            decided_ms=number,
            examined=float(rng.uniform(0.3, 1.0)),
            served=(float(rng.normal()),),
            expected=(float(rng.normal()),),
            sums=True,
            at_place=AtPlace(int(rng.integers(3)), float(rng.uniform(1.0, 2.0))),
        )
        is_first = bool(rng.random() < first)
        came = () if is_first else ((0, float(rng.random())),)
        learner = LearnerId(UID, f"u{rng.integers(4)}")
        found.append(entry_of(number, learner, content, first=is_first, came=came))
    return found


def own_sums(entries: list[DecodedEntry]) -> np.ndarray:
    found = np.zeros((4, 3))
    for entry, reward in entries:
        worth, p = reward.expected[0] + reward.served[0], reward.examined
        before = 0.0 if entry.first else dict(entry.came)[0]
        squares = (before + reward.value - p * worth) ** 2 - (0 if entry.first else (before - p * worth) ** 2)
        own = np.array([entry.first, entry.first * max(worth, 0.0), reward.value, squares])
        found[:, reward.at_place.place] += own
    return found


def numbers_of(sums: PlaceSums) -> np.ndarray:
    return np.array(
        [sums.n, sums.M, np.subtract(sums.Y, sums.Y_error), np.subtract(sums.V, sums.V_error)], dtype=float
    )


def test_sums_are_those_of_each_decision_however_the_log_is_cut():
    entries = entries_of(np.random.default_rng(1), 60, first=0.7)
    of = places_of(UID)
    assert of in arms_of(entries)
    whole = fold_arms({}, entries, {}, {})[of]
    np.testing.assert_allclose(numbers_of(whole), own_sums(entries), rtol=1e-12, atol=1e-12)
    cut = dict(fold_arms({}, entries[:25], {}, {}))
    cut.update(fold_arms(cut, entries[25:], {}, {}))
    assert cut[of] == whole == unpack(pack(whole), PlaceSums)


def test_a_key_that_is_forgotten_leaves_the_places_of_the_others():
    entries, of = entries_of(np.random.default_rng(2), 60), places_of(UID)
    gone = LearnerId(UID, "u1")
    own = [each for each in entries if each.entry.learner == gone]
    left = fold_arms({}, [*entries, entry_of(99, gone, ForgetEntry())], {}, {"1-99": own})[of]
    others = [each for each in entries if each.entry.learner != gone]
    np.testing.assert_allclose(numbers_of(left), own_sums(others), rtol=1e-9, atol=1e-9)


def test_each_fit_goes_on_from_the_one_before():
    rng = np.random.default_rng(3)
    parts = [entries_of(rng, 40), entries_of(rng, 40)]
    sums = [fold_arms({}, entries, {}, {})[places_of(UID)] for entries in parts]
    assert fitted_places(None, [], may_be_below=False) is None
    first = fitted_places(None, sums[:1], may_be_below=False)
    assert fitted_places(first, sums[:1], may_be_below=False) is first
    again = fitted_places(first, sums, may_be_below=False)
    a, b = (PlaceNumbers(*own_sums(entries)) for entries in parts)
    nothing = PlaceNumbers(*np.zeros((4, 3)))
    for fit, known in ((first, places.faded(nothing, a)), (again, places.faded(places.faded(nothing, a), b))):
        p, w = places.fit(known)
        np.testing.assert_allclose(fit.p[:3], p, rtol=1e-3)
        np.testing.assert_allclose(fit.w[:3], w, rtol=1e-3)
        assert fit.p[3:] == [fit.p[2]] * (MOST_LEARNED_PLACES - 3)
    assert have_moved(None, first, only_if_far=True)
    assert not have_moved(first, first, only_if_far=False)
    record = EffectRecord(1, 0, 0, 0, [0.0], [0.0], places=again)
    assert version_of(bytes_to_record(record_to_bytes(record))).record.places == again


def test_rewards_below_zero_are_known_by_the_settings_or_by_one_that_came():
    (entry,) = entries_of(np.random.default_rng(4), 1)
    sums = fold_arms({}, [entry], {}, {})[places_of(UID)]
    assert fitted_places(None, [sums], may_be_below=True).is_below
    below = entry_of(2, LearnerId(UID, "u"), RewardEntry(
        vector_to_bytes(np.ones(2)), -0.5, arm="a", expected=(0.5,), at_place=AtPlace(0, 1.0)
    ))  # fmt: skip
    (one,) = (own for own in fold_arms({}, [below], {}, {}).values() if isinstance(own, PlaceSums))
    fit = fitted_places(None, [sums, one], may_be_below=False)
    assert fit.is_below
    assert set(fit.p) == set(fit.w) == {1.0}


def test_a_token_has_the_places_of_its_list():
    p, w = [1.0, 0.5, 0.25, 0.125], [1.0, 1.5, 2.0, 4.0]
    data = places_to_bytes(p, w, 3)
    assert PlaceFit(p, w, [], []).of_token(3) == data
    assert len(data) == 8
    assert [examined_at(data, place) for place in range(5)] == [
        (1.0, 1.0), (0.5, 1.5), (0.25, 2.0), (0.25, 2.0), (0.25, 2.0),
    ]  # fmt: skip
    assert examined_at(places_to_bytes(p, w, 1), 2) == (1.0, 1.0)
    assert len(places_to_bytes([1.0] * MOST_LEARNED_PLACES, [1.0] * MOST_LEARNED_PLACES, 1_000)) == 4 * (
        MOST_LEARNED_PLACES - 1
    )
