"""The fold of the reward log into the sums of arms: any cut of the log, forgotten keys, dead letters."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.bandits.settings import BanditRecord, RewardRule, SignalRef, SignalRule, reward_payload
from app.learning.arm_sums import arms_of, fold_arms
from app.learning.effect_pairs import EffectPairs
from app.learning.fold import fold
from app.platform.metrics import Metrics
from app.records.arm_sums import ArmSums, EffectTerms, pair_at, teaches
from app.records.records import move_payload, state_payload, state_to_bytes, unpack
from app.storage.types import ArmId, LearnerId, LogEntry
from workers.batches import ArmsBefore, fold_stored

UID = "0123456789abcdef"
SIGNALS = {"click": SignalRule(), "buy": SignalRule(default=0.5)}


def record(**fields) -> BanditRecord:
    return BanditRecord("c", "sub_ts", "per_key", prior="learned", arm_effects="auto", **fields)


def terms(rng: np.random.Generator, arm: str, revision: int, *, signals: int = 1) -> EffectTerms:
    expected, served = rng.normal(size=(2, signals)).astype("<f4")
    return EffectTerms(served.tobytes(), expected.tobytes(), arm, revision, float(rng.choice([1.0, 0.5])))


def entries_of(rng: np.random.Generator, count: int, bandit: BanditRecord) -> list[LogEntry]:
    """Rewards of a few keys for a few arms, in which features are replaced and keys forgotten."""
    found = list[LogEntry]()
    for place in range(1, count + 1):
        learner = LearnerId(UID, f"u{rng.integers(4)}")
        if rng.random() < 0.05:
            found.append(LogEntry(f"1-{place}", learner, first=True, payload=state_payload()))
            continue
        names = list(bandit.signals or ())
        judged = SignalRef.of(bandit.signals, names[int(rng.integers(2))]) if bandit.signals else None
        effect = terms(rng, f"a{rng.integers(3)}", 1 + 2 * place // count, signals=len(names) or 1)
        payload = reward_payload(
            bandit, rng.normal(size=2), float(rng.normal()), 1_000 * place, judged=judged, effect=effect
        )
        found.append(LogEntry(f"1-{place}", learner, first=bool(rng.random() < 0.8), payload=payload))
    return found


def taught_of(entries: list[LogEntry]) -> dict[str, list[LogEntry]]:
    """By each entry that forgets a key, what the log has of it before that and since the one before."""
    found, since = dict[str, list[LogEntry]](), dict[LearnerId, list[LogEntry]]()
    for entry in entries:
        if arms_of([entry]):
            since.setdefault(entry.learner, []).append(entry)
        else:
            found[entry.entry_id] = since.pop(entry.learner, [])
    return found


@pytest.mark.parametrize(("sigma", "is_taught"), [(1.0, True), (9.0, False)])
def test_a_key_whose_rewards_are_in_a_unit_of_its_own_teaches_no_arm(sigma, is_taught):
    bandit = SimpleNamespace(has_own_unit=lambda noise: noise > 5.0)
    pairs = EffectPairs(SimpleNamespace(has_space=lambda: True), Metrics())
    data = pairs.of(bandit, np.ones((2, 1)), np.zeros((2, 1)), sigma=sigma)
    assert [teaches(pair_at(data, place, 2)) for place in range(2)] == [is_taught] * 2


@pytest.mark.parametrize(
    "bandit",
    [record(), record(half_life_s=3.0), record(signals=SIGNALS), record(reward=RewardRule(wait_s=9.0))],
    ids=["plain", "fading", "signals", "waiting"],
)
@pytest.mark.parametrize("seed", range(3))
def test_any_cut_of_the_log_gives_the_same_bits(bandit: BanditRecord, seed: int):
    rng = np.random.default_rng(seed)
    entries = entries_of(rng, 120, bandit)
    taught = taught_of(entries)
    whole = fold_arms({}, entries, {}, taught)
    cut = dict[ArmId, ArmSums | None]()
    for some in np.array_split(np.arange(len(entries)), sorted(rng.integers(1, 119, 6))):
        cut.update(fold_arms(cut, [entries[place] for place in some], {}, taught))
    assert cut == whole
    assert {arm.arm for arm in whole} == {"a0", "a1", "a2"}
    assert {arm.revision for arm in whole} >= {1, 2}


@pytest.mark.rest
@pytest.mark.parametrize("bandit", [record(), record(half_life_s=5.0), record(signals=SIGNALS)])
def test_a_forgotten_key_leaves_what_the_others_taught(bandit: BanditRecord):
    rng = np.random.default_rng(4)
    entries = [each for each in entries_of(rng, 90, bandit) if arms_of([each]) and each.first]
    gone = LearnerId(UID, "u1")
    forget = LogEntry("1-99", gone, first=True, payload=state_payload())
    own = [each for each in entries if each.learner == gone]
    assert own
    left = fold_arms({}, [*entries, forget], {}, {forget.entry_id: own})
    wanted = fold_arms({}, [each for each in entries if each.learner != gone], {}, {})
    for arm, sums in wanted.items():
        found = left[arm]
        assert (found.decisions, found.revision) == (sums.decisions, sums.revision)
        numbers = [(each.n, each.F, *each.R, *each.Q) for each in (found, sums)]
        # each fades to the newest decision that it has seen
        factor = 2.0 ** ((found.time_ms - sums.time_ms) / 1_000 / (bandit.half_life_s or 1.0))
        fades = np.array([factor, factor**2, *[factor] * len(sums.R), *[factor**2] * len(sums.Q)])
        np.testing.assert_allclose(np.array(numbers[0]) * fades, numbers[1], rtol=1e-9, atol=1e-9)
    # and nothing at all where there was nobody else
    assert not any(fold_arms({}, [*own, forget], {}, {forget.entry_id: own}).values())


@pytest.mark.rest
def test_entries_of_an_earlier_catalogue_teach_no_arm():
    rng, bandit = np.random.default_rng(5), record()

    def reward(place: int, revision: int, space: int) -> LogEntry:
        of_space = msgspec.structs.replace(bandit, space=space)
        payload = reward_payload(of_space, rng.normal(size=2), 1.0, 1_000, effect=terms(rng, "a", revision))
        return LogEntry(f"1-{place}", LearnerId(UID, "u"), first=True, payload=payload)

    move = LogEntry("1-4", LearnerId(UID, "_moved"), first=True, payload=move_payload(1))
    log = [reward(1, 5, 0), reward(2, 7, 0), reward(3, 5, 0), move, reward(5, 9, 0), reward(6, 2, 1)]
    assert [arm.revision for arm in arms_of(log)] == [2, 5, 7, 9]
    found = fold_arms({}, log, {}, {})
    assert {arm.revision: (sums.decisions, sums.space, sums.revision) for arm, sums in found.items()} == {
        5: (2, 0, 5),
        7: (1, 0, 7),
        2: (1, 1, 2),
    }
    # a revision of the same number, of the catalogue of after the move
    again = fold_arms(found, [reward(7, 5, 1)], {UID: 1}, {})
    assert [(sums.decisions, sums.space) for sums in again.values()] == [(1, 1)]


@pytest.mark.rest
def test_what_is_a_dead_letter_teaches_neither_key_nor_arm():
    rng, bandit = np.random.default_rng(6), record()
    effect = terms(rng, "a", 1)
    entries = [
        LogEntry(
            f"1-{place}",
            LearnerId(UID, "u"),
            first=True,
            payload=reward_payload(bandit, np.ones(dim), 1.0, 1_000, effect=effect),
        )
        for place, dim in ((1, 2), (2, 3))
    ]
    arm = ArmId(UID, "a", 1)
    done = fold_stored({}, entries, arms=ArmsBefore({arm: None}))
    assert [letter.entry.entry_id for letter in done.dead] == ["1-2"]
    assert done.arms[arm].decisions == 1
    forget = LogEntry("1-3", LearnerId(UID, "u"), first=True, payload=state_payload())
    done = fold_stored({}, [*entries, forget], arms=ArmsBefore({arm: None}, {"1-3": entries}))
    assert done.arms[arm] is None


VALUE = st.one_of(st.floats(-2.0, 2.0), st.sampled_from([1.0, -1.0, 1e4, -1e4, 1e8, -1e8]))
REWARDS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), VALUE), min_size=1, max_size=40)


@given(rewards=REWARDS, seed=st.integers(0, 99))
def test_a_forgotten_key_of_rewards_up_to_1e8_leaves_the_others_to_fourteen_digits(rewards, seed: int):
    """As if it had never been there: others gave at most 2. With one double for Q nothing would be left."""
    rng, entries = np.random.default_rng(seed), list[LogEntry]()
    for place, (key, arm, value) in enumerate(rewards, start=1):
        bounded = value if key == 0 else max(-2.0, min(2.0, value))
        effect = terms(rng, f"a{arm}", 1)
        payload = reward_payload(record(), np.ones(2), bounded, 1_000, effect=effect)
        entries.append(LogEntry(f"1-{place}", LearnerId(UID, f"u{key}"), first=True, payload=payload))
    gone = LearnerId(UID, "u0")
    forget = LogEntry("1-99", gone, first=True, payload=state_payload())
    own = [each for each in entries if each.learner == gone]
    left = fold_arms({}, [*entries, forget], {}, {forget.entry_id: own})
    for arm, wanted in fold_arms({}, [each for each in entries if each.learner != gone], {}, {}).items():
        found, unit = left[arm], 10.0 * wanted.decisions
        assert (found.decisions, found.n, found.F) == pytest.approx((wanted.decisions, wanted.n, wanted.F))
        assert abs(found.R[0] - wanted.R[0]) <= 1e-14 * unit
        assert abs(found.Q[0] - wanted.Q[0]) <= 1e-14 * unit * 10.0


@pytest.mark.rest
def test_sums_of_2_0_0_go_on():
    """They had nine fields. What was added to them before is taken out of them too."""
    rng, bandit = np.random.default_rng(9), record()
    entries = [each for each in entries_of(rng, 40, bandit) if arms_of([each])]
    whole, first = fold_arms({}, entries, {}, {}), fold_arms({}, entries[:20], {}, {})
    old = {
        arm: unpack(msgspec.msgpack.encode(msgspec.to_builtins(sums)[:9]), ArmSums)
        for arm, sums in first.items()
        if sums is not None
    }
    assert not any(sums.R_error or sums.Q_error for sums in old.values())
    for arm, sums in fold_arms(old, entries[20:], {}, {}).items():
        assert (sums.version, sums.decisions, sums.n) == (
            whole[arm].version,
            whole[arm].decisions,
            whole[arm].n,
        )
        np.testing.assert_allclose([*sums.R, *sums.Q], [*whole[arm].R, *whole[arm].Q], rtol=1e-12, atol=1e-12)


def test_effects_of_0_change_no_learner_to_the_bit():
    rng, plain = np.random.default_rng(8), list[LogEntry]()
    served = list[LogEntry]()
    for bandit, name in ((record(), "u"), (record(signals=SIGNALS), "v")):
        for place in range(20):
            judged = SignalRef.of(bandit.signals, "click") if bandit.signals else None
            features, value = rng.normal(size=3), float(rng.normal())
            zeros = np.zeros(len(bandit.signals or (0,)), "<f4").tobytes()
            effect = EffectTerms(zeros, zeros, "a", 1)
            for log, own in ((plain, None), (served, effect)):
                payload = reward_payload(bandit, features, value, 1, judged=judged, effect=own)
                log.append(LogEntry(f"1-{place}", LearnerId(UID, name), first=True, payload=payload))
    states = [fold({}, log) for log in (plain, served)]
    assert len(states[0]) == 2
    for learner, state in states[0].items():
        assert state_to_bytes(states[1][learner]) == state_to_bytes(state)
