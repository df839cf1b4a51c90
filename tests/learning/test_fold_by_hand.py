"""The fold of the reward log against the same rules written out in plain Python, entry by entry."""

from __future__ import annotations

import logging
import math
import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.learning import fold as module
from app.learning.fold import continued, fold, is_short, learners_of, reason_of, replaces_state
from app.records.records import (
    POOLED,
    LearnerState,
    RewardPayload,
    RewardTerms,
    pack,
    state_to_bytes,
    vector_to_bytes,
)
from app.storage.types import LearnerId, LogEntry
from shortlist.errors import InvalidParameter
from shortlist.linear import ridge_sums

# Bandits by uid: dimension, half-life, whether they pool and shift.
BANDITS = {
    "plain": (2, 0.0, False, False),
    "pools": (2, 0.0, True, False),
    "fades": (3, 1.5, False, False),
    "fades and pools": (2, 0.5, True, False),
    "shifts": (2, 0.0, True, True),
    "all": (1, 2.0, True, True),
}
DEFAULT = 0.25


@dataclass
class Told:
    """A learner as the rules say: each row has a time, features, a reward, and whether the gram counts it."""

    rows: list[tuple[int, list[float], float, bool]] = field(default_factory=list)
    version: int = 0
    observations: int = 0
    time_ms: int = 0

    def learn(self, terms: RewardTerms, x: list[float], value: float, first: bool, replaces: bool) -> None:
        # A default is taken back; of a decision only the first reward adds to the gram, and brings the 1 / 2.
        for reward, counts in [(-terms.default, False)] * replaces + [(value, first)]:
            features = [*(one / math.sqrt(2) for one in x), math.sqrt(0.5)] if terms.shifted else x
            moved = reward / 2 + 0.5 * counts if terms.shifted else reward
            self.rows.append((terms.decided_ms, features, moved, counts))
        self.version, self.observations = self.version + 1, self.observations + first
        self.time_ms = max(self.time_ms, terms.decided_ms)

    def add(self, other: Told) -> None:
        self.rows = self.rows + other.rows
        self.version, self.observations = self.version + other.version, self.observations + other.observations
        self.time_ms = max(self.time_ms, other.time_ms)

    def forget(self, other: Told) -> None:
        for row in other.rows:
            self.rows.remove(row)
        self.version, self.observations = self.version + 1, self.observations - other.observations

    def state(self, half_life_s: float, dim: int) -> LearnerState:
        age_s = np.array([self.time_ms - decided_ms for decided_ms, _, _, _ in self.rows]) / 1_000
        weights = 0.5 ** (age_s / half_life_s) if half_life_s else np.ones(len(self.rows))
        features = np.array([x for _, x, _, _ in self.rows]).reshape(-1, dim)
        values = np.array([value for _, _, value, _ in self.rows])
        counted = weights * [counts for _, _, _, counts in self.rows]
        gram = (features.T * counted) @ features
        numbers = np.array([*gram[np.tril_indices(dim)], *(features.T @ (weights * values))])
        sums = ridge_sums.RidgeSums(numbers, np.zeros(len(numbers)), self.observations, counted.sum())
        time_ms = self.time_ms if half_life_s else 0
        return LearnerState(self.version, sums, time_ms, half_life_s)


def log_of(draw: random.Random) -> tuple[list[LogEntry], dict[LearnerId, LearnerState | None], list[str]]:
    """Entries of all kinds, what they teach, and which cannot be folded."""
    entries, told, bad = list[LogEntry](), dict[LearnerId, Told | None](), list[str]()
    for number in range(draw.randrange(10, 70)):
        uid = draw.choice(list(BANDITS))
        dim, half_life_s, pooled, shifted = BANDITS[uid]
        learner, pool, kind = LearnerId(uid, draw.choice("xyz")), LearnerId(uid, POOLED), draw.random()
        terms = RewardTerms(DEFAULT, 500 * draw.randrange(9), half_life_s, pooled, shifted)
        x, value = [draw.uniform(-2, 2) for _ in range(dim)], draw.uniform(-1, 1)
        payload = RewardPayload(vector_to_bytes(np.array(x)), value, terms)
        first = kind < 0.7
        replaces = kind > 0.85
        if kind < 0.1:  # forgets
            payload, replaces = RewardPayload(b""), False
            if (own := told.get(learner)) and (total := told.get(pool)):
                total.forget(own)
            told[learner] = None
        elif kind < 0.25:  # gives a state to a learner without one
            given_state = Told()
            given_state.learn(terms, x, value, first=True, replaces=False)
            state = given_state.state(half_life_s, dim + shifted)
            payload = RewardPayload(b"", 0.0, terms, state_to_bytes(state))
            if not told.get(learner):
                told[learner] = given_state
                if pooled:
                    told[pool] = told.get(pool) or Told()
                    told[pool].add(given_state)
        elif kind < 0.35:  # cannot be folded
            broken = vector_to_bytes(np.array([*x[1:], math.inf]))
            features, wrong = draw.choice([(broken, value), (payload.features, math.nan)])
            payload = RewardPayload(features, wrong, terms)
            told.setdefault(learner, None)
            bad.append(f"1-{number}")
        else:
            for one in (learner, pool) if pooled else (learner,):
                told[one] = told.get(one) or Told()
                told[one].learn(terms, x, value, first, replaces)
        entries.append(LogEntry(f"1-{number}", learner, first, pack(payload), replaces=replaces))
    states = {}
    for one, own in told.items():
        dim, half_life_s, _, shifted = BANDITS[one.bandit_uid]
        states[one] = own and own.state(half_life_s, dim + shifted)
    return entries, states, bad


@given(st.integers(0, 2**32))
@settings(max_examples=60)
def test_the_states_are_what_the_rules_say(seed: int):
    entries, expected, bad = log_of(random.Random(seed))
    left_out = list[tuple[str, str]]()
    states = fold({}, entries, lambda entry, reason: left_out.append((entry.entry_id, reason)))
    assert sorted(entry_id for entry_id, _ in left_out) == sorted(bad)
    assert all(reason.startswith("NonFinite: ") for _, reason in left_out)
    assert states.keys() == expected.keys()
    for learner, state in states.items():
        rule = expected[learner]
        assert (state is None) == (rule is None)
        if state is not None and rule is not None:
            assert (state.version, state.sums.observations) == (rule.version, rule.sums.observations)
            assert (state.time_ms, state.half_life_s) == (rule.time_ms, rule.half_life_s)
            assert state.sums.weight == pytest.approx(rule.sums.weight, rel=1e-9, abs=1e-9)
            np.testing.assert_allclose(state.sums.gram, rule.sums.gram, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(state.sums.moment, rule.sums.moment, rtol=1e-9, atol=1e-9)


@given(st.integers(0, 2**32))
@settings(max_examples=20)
def test_a_tail_gives_what_the_fold_gave(seed: int):
    """Of a learner, and of the pooled prior: rewards that were left out there are left out again."""
    entries, _, bad = log_of(random.Random(seed))
    for uid in ("plain", "pools", "fades and pools"):
        rewards = [
            entry for entry in entries if entry.learner.bandit_uid == uid and not replaces_state(entry)
        ]
        good = [entry for entry in rewards if entry.entry_id not in bad]
        for name in ("x", POOLED):
            learner = LearnerId(uid, name)
            tail = [entry for entry in good if name == POOLED or entry.learner == learner]
            start = fold({}, tail[:1]).get(learner)
            expected = fold({learner: start}, tail[1:]).get(learner, start)
            made = continued(learner, start, tail[1:])
            assert (made and state_to_bytes(made)) == (expected and state_to_bytes(expected))
        wrong = [entry for entry in rewards if entry.entry_id in bad]
        if wrong:
            with pytest.raises(
                ValueError, match=f"entry {wrong[0].entry_id} of its tail cannot be folded: Non"
            ):
                continued(wrong[0].learner, None, wrong[:1])
            pool = LearnerId(uid, POOLED)
            assert continued(pool, None, wrong) is None
    broken = LogEntry("1-5", LearnerId("plain", "x"), True, b"\xc1")
    with pytest.raises(ValueError, match="entry 1-5 of its tail cannot be folded: DecodeError"):
        continued(broken.learner, None, [broken])


def test_what_is_left_out_of_a_learner_is_left_out_of_the_pooled_prior_and_said_once(caplog):
    terms = RewardTerms(pooled=True)
    good, huge = np.ones(2), np.full(2, 1e200)
    entries = [
        LogEntry(f"1-{n}", LearnerId("u", "a"), True, pack(RewardPayload(vector_to_bytes(x), 1.0, terms)))
        for n, x in enumerate((good, huge, good))
    ]
    with caplog.at_level(logging.ERROR, logger="shortlist.fold"):
        found = fold({}, entries)
    assert {learner.name: state and state.version for learner, state in found.items()} == {"a": 2, POOLED: 2}
    (record,) = caplog.records
    assert record.getMessage().startswith("entry 1-1 is left out: NonFinite: ")


@pytest.mark.rest
def test_a_state_that_cannot_be_read_is_left_out_alone():
    rewarded = LearnerId("u", "a")
    good = pack(RewardPayload(vector_to_bytes(np.ones(2)), 1.0, RewardTerms(pooled=True)))
    narrow = LearnerState(1, ridge_sums.empty(1))
    wrong = [
        pack(RewardPayload(b"", 0.0, RewardTerms(pooled=pooled), state))
        for pooled, state in ((True, b"\x07" * 64), (False, b"\x01"), (True, state_to_bytes(narrow)))
    ]
    entries = [LogEntry("1-0", rewarded, True, good)]
    entries += [LogEntry(f"1-{n}", LearnerId("u", "b"), True, data) for n, data in enumerate(wrong, start=1)]
    entries += [LogEntry("1-4", rewarded, True, good)]
    left_out = []
    found = fold({}, entries, lambda entry, reason: left_out.append((entry.entry_id, reason.split(":")[0])))
    assert left_out == [("1-1", "ValueError"), ("1-2", "error"), ("1-3", "InvalidShape")]
    assert {learner.name: state.version for learner, state in found.items()} == {"a": 2, POOLED: 2}


@pytest.mark.rest
def test_rewards_of_another_dimension_are_left_out_whichever_came_first():
    def entry(number, name, dim):
        return LogEntry(f"1-{number}", LearnerId("u", name), True, pack(RewardPayload(bytes(8 * dim), 1.0)))

    left_out = []
    log = [
        entry(n, name, dim) for n, (name, dim) in enumerate(zip("abaabb", (2, 3, 3, 2, 2, 3), strict=True))
    ]
    found = fold({}, log, lambda entry, reason: left_out.append((entry.entry_id, reason)))
    assert [entry_id for entry_id, _ in left_out] == ["1-2", "1-4"]
    assert {learner.name: (state.version, state.sums.dim) for learner, state in found.items()} == {
        "a": (2, 2),
        "b": (2, 3),
    }
    module.rows_of([(log[0], RewardPayload(bytes(16), 1.0))])
    with pytest.raises(Exception, match="features must have the same length") as raised:
        module.rows_of([(log[0], RewardPayload(bytes(16), 1.0)), (log[1], RewardPayload(bytes(24), 1.0))])
    assert raised.value.argument == "features"


@pytest.mark.rest
def test_the_learners_of_entries_are_named_with_their_pooled_priors_once():
    names = [("v", "b"), ("u", "z"), ("v", "b"), ("v", "a")]
    entries = [LogEntry("1-0", LearnerId(*name), True, b"") for name in names]
    found = [(one.bandit_uid, one.name) for one in learners_of(entries)]
    assert found == sorted({*names, ("u", POOLED), ("v", POOLED)})


@pytest.mark.rest
def test_a_fold_of_so_many_squared_dimensions_is_short():
    def short(*sizes):
        return is_short(LogEntry("1-0", LearnerId("u", "a"), True, bytes(size)) for size in sizes)

    assert short()
    assert short(2_000)
    assert short(1_000, 1_000, 1_000, 1_000)
    assert not short(2_000, 8)
    assert not short(*[8] * 200, 2_000)


@pytest.mark.rest
def test_a_reason_names_the_error_and_is_cut():
    assert reason_of(InvalidParameter("value is wrong", argument="value")).startswith(
        "InvalidParameter: value is wrong"
    )
    assert reason_of(ValueError("why")) == "ValueError: why"
    assert reason_of(ValueError("y" * 500)) == "ValueError: " + "y" * 188


@pytest.mark.rest
@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("half_life_s", [0.0, 1.5])
def test_the_squares_are_those_of_what_decisions_have_earned(shifted: bool, half_life_s: float):
    """Decision 1: 2 and 3 are summed. Decision 2: a default, which 4 replaces, and 1 more."""
    terms = RewardTerms(DEFAULT, 7_000, half_life_s, False, shifted)
    rows = [
        (2.0, True, False, 0.0), (DEFAULT, True, False, 0.0), (3.0, False, False, 2.0),
        (4.0, False, True, 0.0), (1.0, False, False, 4.0),
    ]  # fmt: skip
    learner, x = LearnerId("u", "x"), vector_to_bytes(np.array([1.0, 2.0]))
    entries = [
        LogEntry(f"1-{n}", learner, first, pack(RewardPayload(x, value, terms)), "", replaces, before)
        for n, (value, first, replaces, before) in enumerate(rows, start=1)
    ]
    sums = fold({}, entries)[learner].sums
    expected = 3.0**2 + 3.0**2 if shifted else 5.0**2 + 5.0**2
    assert sums.squares - sums.squares_error == pytest.approx(expected)
    half = fold({}, entries[:3])
    assert state_to_bytes(fold(half, entries[3:])[learner]) == state_to_bytes(fold({}, entries)[learner])
