"""The fold of the reward log into the sums of arms: any cut of the log, forgotten keys, dead letters."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.fold.arm_sums import arms_of, fold_arms
from app.fold.fold import fold
from app.fold.fold_batches import ArmsBefore, fold_stored
from app.learners.effect_pairs import EffectPairs
from app.platform.metrics import Metrics
from app.records.arm_sums import ArmSums, ArmTime, pair_at, taken_off
from app.records.log_entries import MOVED, DecodedEntry, ForgetEntry, MoveEntry, RewardEntry
from app.records.records import state_to_bytes, vector_to_bytes
from app.storage.types import ArmId, LearnerId
from log_entries import entry_of

UID = "0123456789abcdef"
TERMS = [
    pytest.param({}, id="plain"),
    pytest.param({"half_life_s": 3.0}, id="fading"),
    pytest.param({"clock": True}, id="fading-later"),
    pytest.param({"defaults": (0.0, 0.5)}, id="signals"),
]


def reward(rng: np.random.Generator, arm: str, revision: int, place: int, *, signals: int = 1, **terms):
    """A reward with arm effects. ``place``: in the log, from which its time follows."""
    terms.setdefault("value", float(rng.normal()))
    if terms.pop("clock", False):  # which stands at 0 at first, and then runs half as fast as time
        terms["arm_time"] = ArmTime(3.0, 500 * place - 10_000) if place > 20 else ArmTime(0.0, 0)
    expected, served = (tuple(map(float, numbers)) for numbers in rng.normal(size=(2, signals)))
    return RewardEntry(
        vector_to_bytes(rng.normal(size=2)),
        arm=arm,
        revision=revision,
        decided_ms=1_000 * place,
        examined=float(rng.choice([1.0, 0.5])),
        served=served,
        expected=expected,
        **terms,
    )


def entries_of(rng: np.random.Generator, count: int, terms: dict[str, Any]) -> list[DecodedEntry]:
    """Rewards of a few keys for a few arms, in which features are replaced and keys forgotten."""
    found, signals = list[DecodedEntry](), len(terms.get("defaults", (0,)))
    for place in range(1, count + 1):
        learner = LearnerId(UID, f"u{rng.integers(4)}")
        if rng.random() < 0.05:
            found.append(entry_of(place, learner, ForgetEntry()))
            continue
        arm, signal = f"a{rng.integers(3)}", int(rng.integers(signals))
        content = reward(rng, arm, 1 + 2 * place // count, place, signals=signals, signal=signal, **terms)
        found.append(entry_of(place, learner, content, first=bool(rng.random() < 0.8)))
    return found


def taught_of(entries: list[DecodedEntry]) -> dict[str, list[DecodedEntry]]:
    """By each entry that forgets a key, what the log has of it before that and since the one before."""
    found, since = dict[str, list[DecodedEntry]](), dict[LearnerId, list[DecodedEntry]]()
    for each in entries:
        if arms_of([each]):
            since.setdefault(each.entry.learner, []).append(each)
        else:
            found[each.entry.entry_id] = since.pop(each.entry.learner, [])
    return found


@pytest.mark.parametrize(("sigma", "is_taught"), [(1.0, True), (9.0, False)])
def test_a_key_whose_rewards_are_in_a_unit_of_its_own_teaches_no_arm(sigma, is_taught):
    bandit = SimpleNamespace(has_own_unit=lambda noise: noise > 5.0)
    pairs = EffectPairs(SimpleNamespace(has_space=lambda: True), Metrics())
    data = pairs.of(bandit, np.ones((2, 1)), np.zeros((2, 1)), sigma=sigma)
    assert [bool(taken_off(pair_at(data, place, 2))[1]) for place in range(2)] == [is_taught] * 2


@pytest.mark.parametrize("terms", [*TERMS, pytest.param({"defaults": (0.5,)}, id="waiting")])
@pytest.mark.parametrize("seed", range(3))
def test_any_cut_of_the_log_gives_the_same_bits(terms: dict[str, Any], seed: int):
    rng = np.random.default_rng(seed)
    entries = entries_of(rng, 120, terms)
    taught = taught_of(entries)
    whole = fold_arms({}, entries, {}, taught)
    cut = dict[ArmId, ArmSums | None]()
    for some in np.array_split(np.arange(len(entries)), sorted(rng.integers(1, 119, 6))):
        cut.update(fold_arms(cut, [entries[place] for place in some], {}, taught))
    assert cut == whole
    assert {arm.arm for arm in whole} == {"a0", "a1", "a2"}
    assert {arm.revision for arm in whole} >= {1, 2}


@pytest.mark.rest
def test_arms_fade_by_their_clock_whatever_came_first():
    rng = np.random.default_rng(6)
    log = [
        entry_of(place, LearnerId(UID, "u"), reward(rng, "a", 1, place, clock=True)) for place in range(1, 60)
    ]
    (sums,) = fold_arms({}, log, {}, {}).values()
    times = np.array([each.content.arm_time.time_ms for each in log])
    p = np.array([each.content.examined for each in log])
    rho = np.array([each.content.value - each.content.examined * each.content.expected[0] for each in log])
    w = 0.5 ** ((times.max() - times) / 3_000)
    found = [sums.n, sums.F, sums.R[0], sums.Q[0]]
    wanted = [w @ p**2, w**2 @ p**4, (w * p) @ rho, (w * p) ** 2 @ rho**2]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    (shuffled,) = fold_arms({}, [log[place] for place in rng.permutation(len(log))], {}, {}).values()
    np.testing.assert_allclose([shuffled.n, shuffled.F, shuffled.R[0], shuffled.Q[0]], wanted, rtol=1e-12)
    assert shuffled.time_ms == sums.time_ms == times.max()


@pytest.mark.rest
@pytest.mark.parametrize("terms", TERMS)
def test_a_forgotten_key_leaves_what_the_others_taught(terms: dict[str, Any]):
    rng = np.random.default_rng(4)
    entries = [each for each in entries_of(rng, 90, terms) if arms_of([each]) and each.entry.first]
    gone = LearnerId(UID, "u1")
    forget = entry_of(99, gone, ForgetEntry())
    own = [each for each in entries if each.entry.learner == gone]
    assert own
    left = fold_arms({}, [*entries, forget], {}, {"1-99": own})
    wanted = fold_arms({}, [each for each in entries if each.entry.learner != gone], {}, {})
    for arm, sums in wanted.items():
        found = left[arm]
        assert (found.decisions, found.revision) == (sums.decisions, sums.revision)
        numbers = [(each.n, each.F, *each.R, *each.Q) for each in (found, sums)]
        # each fades to the newest decision that it has seen
        factor = 2.0 ** ((found.time_ms - sums.time_ms) / 1_000 / terms.get("half_life_s", 3.0))
        fades = np.array([factor, factor**2, *[factor] * len(sums.R), *[factor**2] * len(sums.Q)])
        np.testing.assert_allclose(np.array(numbers[0]) * fades, numbers[1], rtol=1e-9, atol=1e-9)
    # and nothing at all where there was nobody else
    assert not any(fold_arms({}, [*own, forget], {}, {"1-99": own}).values())


@pytest.mark.rest
def test_entries_of_an_earlier_catalogue_teach_no_arm():
    rng = np.random.default_rng(5)

    def rewarded(place: int, revision: int, space: int) -> DecodedEntry:
        return entry_of(place, LearnerId(UID, "u"), reward(rng, "a", revision, 1, space=space))

    move = entry_of(4, LearnerId(UID, MOVED), MoveEntry(1))
    log = [
        rewarded(1, 5, 0),
        rewarded(2, 7, 0),
        rewarded(3, 5, 0),
        move,
        rewarded(5, 9, 0),
        rewarded(6, 2, 1),
    ]
    assert [arm.revision for arm in arms_of(log)] == [2, 5, 7, 9]
    found = fold_arms({}, log, {}, {})
    assert {arm.revision: (sums.decisions, sums.space, sums.revision) for arm, sums in found.items()} == {
        5: (2, 0, 5),
        7: (1, 0, 7),
        2: (1, 1, 2),
    }
    # a revision of the same number, of the catalogue of after the move
    again = fold_arms(found, [rewarded(7, 5, 1)], {UID: 1}, {})
    assert [(sums.decisions, sums.space) for sums in again.values()] == [(1, 1)]


@pytest.mark.rest
def test_what_is_a_dead_letter_teaches_neither_key_nor_arm():
    learner = LearnerId(UID, "u")
    entries = [
        entry_of(place, learner, RewardEntry(bytes(8 * dim), 1.0, arm="a", revision=1, expected=(0.0,)))
        for place, dim in ((1, 2), (2, 3))
    ]
    arm = ArmId(UID, "a", 1)
    done = fold_stored({}, entries, arms=ArmsBefore({arm: None}))
    assert [letter.entry.entry_id for letter in done.dead] == ["1-2"]
    assert done.arms[arm].decisions == 1
    forget = entry_of(3, learner, ForgetEntry())
    done = fold_stored({}, [*entries, forget], arms=ArmsBefore({arm: None}, {"1-3": entries}))
    assert done.arms[arm] is None


VALUE = st.one_of(st.floats(-2.0, 2.0), st.sampled_from([1.0, -1.0, 1e4, -1e4, 1e8, -1e8]))
REWARDS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), VALUE), min_size=1, max_size=40)


@given(rewards=REWARDS, seed=st.integers(0, 99))
def test_a_forgotten_key_of_rewards_up_to_1e8_leaves_the_others_to_fourteen_digits(rewards, seed: int):
    """As if it had never been there: others gave at most 2. With one double for Q nothing would be left."""
    rng, entries = np.random.default_rng(seed), list[DecodedEntry]()
    for place, (key, arm, value) in enumerate(rewards, start=1):
        bounded = value if key == 0 else max(-2.0, min(2.0, value))
        entries.append(
            entry_of(place, LearnerId(UID, f"u{key}"), reward(rng, f"a{arm}", 1, 1, value=bounded))
        )
    gone = LearnerId(UID, "u0")
    forget = entry_of(99, gone, ForgetEntry())
    own = [each for each in entries if each.entry.learner == gone]
    left = fold_arms({}, [*entries, forget], {}, {"1-99": own})
    others = [each for each in entries if each.entry.learner != gone]
    for arm, wanted in fold_arms({}, others, {}, {}).items():
        found, unit = left[arm], 10.0 * wanted.decisions
        assert (found.decisions, found.n, found.F) == pytest.approx((wanted.decisions, wanted.n, wanted.F))
        assert abs(found.R[0] - wanted.R[0]) <= 1e-14 * unit
        assert abs(found.Q[0] - wanted.Q[0]) <= 1e-14 * unit * 10.0


def test_effects_of_0_change_no_learner_to_the_bit():
    rng, plain, served = np.random.default_rng(8), list[DecodedEntry](), list[DecodedEntry]()
    for name, signals in (("u", 1), ("v", 2)):
        for place in range(20):
            content = RewardEntry(vector_to_bytes(rng.normal(size=3)), float(rng.normal()), arm="a")
            zeros = (0.0,) * signals
            plain.append(entry_of(place, LearnerId(UID, name), content))
            served.append(
                entry_of(
                    place,
                    LearnerId(UID, name),
                    msgspec.structs.replace(content, served=zeros, expected=zeros, signal=0),
                )
            )
    states = [fold({}, log) for log in (plain, served)]
    assert len(states[0]) == 2
    for learner, state in states[0].items():
        sums = states[1][learner].sums
        same = replace(states[1][learner], sums=sums.without_signals(1))
        assert state_to_bytes(same) == state_to_bytes(state)
