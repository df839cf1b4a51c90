"""The fold of the reward log against the same rules written out in plain Python, entry by entry."""

from __future__ import annotations

import logging
import math
import random
from collections import Counter
from itertools import repeat
from operator import attrgetter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.fold import fold as module
from app.fold.fold import continued, fold, is_short, reason_of
from app.records.log_entries import DecodedEntry, ForgetEntry, RewardEntry, StateEntry
from app.records.records import LearnerState, bytes_to_vector, state_to_bytes, vector_to_bytes
from app.storage.types import LearnerId, LogEntry
from log_entries import entry_of
from shortlist.errors import InvalidParameter
from shortlist.linear import ridge_sums

# Bandits by uid: dimension, half-life.
BANDITS = {"plain": (2, 0.0), "fades": (3, 1.5)}
DEFAULT = 0.25
KINDS = ("reward",) * 13 + ("forget", "forget", "give", "give", "give", "bad", "bad")


Row = tuple[int, list[float], float, bool]  # time, features, reward, whether the gram counts it


def rows_of(reward: RewardEntry, first: bool) -> list[Row]:
    """What a reward adds: a default is taken back; only the first of a decision adds to the gram."""
    rewards = [(-reward.defaults[0], False)] * (not first) + [(reward.value, first)]
    x = list(bytes_to_vector(reward.features))
    return [(reward.decided_ms, x, value, counts) for value, counts in rewards]


def state_of(rows: list[Row], version: int, time_ms: int, uid: str) -> LearnerState:
    """The sums over all rows, each weighed by its age at ``time_ms``."""
    dim, half_life_s = BANDITS[uid]
    gram, moment, weight = np.zeros((dim, dim)), np.zeros(dim), 0.0
    for at_ms, x, reward, counts in rows:
        kept = 0.5 ** ((time_ms - at_ms) / 1_000 / half_life_s) if half_life_s else 1.0
        gram += kept * counts * np.outer(x, x)
        moment += kept * reward * np.array(x)
        weight += kept * counts
    numbers = np.concatenate((gram[np.tril_indices(len(gram))], moment))
    squares = sum(reward**2 for _, _, reward, _ in rows)
    sums = ridge_sums.RidgeSums(numbers, np.zeros(len(numbers)), sum(row[3] for row in rows), weight, squares)
    return LearnerState(version, sums, time_ms if half_life_s else 0, half_life_s)


def log_of(draw: random.Random) -> list[tuple[str, DecodedEntry, RewardEntry]]:
    """Entries with what they are: rewards, forgetting, states that are given, and what cannot be folded."""
    log = []
    for number in range(draw.randrange(10, 70)):
        uid = draw.choice(list(BANDITS))
        dim, half_life_s = BANDITS[uid]
        decided_ms = 500 * draw.randrange(9)
        x, value = np.array([draw.uniform(-2, 2) for _ in range(dim)]), draw.uniform(-1, 1)

        def reward(x, value, decided_ms=decided_ms, half_life_s=half_life_s):
            return RewardEntry(
                vector_to_bytes(x), value, decided_ms=decided_ms, half_life_s=half_life_s, defaults=(DEFAULT,)
            )

        meant, kind = reward(x, value), draw.choice(KINDS)
        sent, first = meant, kind != "reward" or draw.random() < 0.6
        if kind == "forget":
            sent = ForgetEntry()
        elif kind == "give":
            sent = StateEntry(state_to_bytes(state_of(rows_of(meant, True), 1, decided_ms, uid)))
        elif kind == "bad":
            x[-1], value = draw.choice([(math.inf, value), (x[-1], math.nan)])
            sent = reward(x, value)
        entry = entry_of(number, LearnerId(uid, draw.choice("xyz")), sent, first=first)
        log.append((kind, entry, meant))
    return log


def by_the_rules(log: list[tuple[str, DecodedEntry, RewardEntry]]) -> dict[LearnerId, LearnerState | None]:
    """The state of each learner."""
    rows, versions, times = dict[LearnerId, list[Row] | None](), Counter[LearnerId](), Counter[LearnerId]()
    for kind, (entry, _), reward in log:
        learner = entry.learner
        before = rows.setdefault(learner, None)
        if kind == "forget":
            rows[learner], versions[learner], times[learner] = None, 0, 0
        elif kind == "reward" or (kind == "give" and not before):
            rows[learner] = (before or []) + rows_of(reward, entry.first)
            versions[learner] += 1
            times[learner] = max(times[learner], reward.decided_ms)
    return {
        one: None if of is None else state_of(of, versions[one], times[one], one.bandit_uid)
        for one, of in rows.items()
    }


@given(st.integers(0, 2**32))
@settings(max_examples=60)
def test_the_states_are_what_the_rules_say(seed: int):
    log, left_out = log_of(random.Random(seed)), list[tuple[LogEntry, str]]()
    states = fold({}, [entry for _, entry, _ in log], lambda *given: left_out.append(given))
    bad = [each.entry.entry_id for kind, each, _ in log if kind == "bad"]
    assert sorted(entry.entry_id for entry, _ in left_out) == sorted(bad)
    assert all(reason.startswith("NonFinite: ") for _, reason in left_out)
    expected = by_the_rules(log)
    assert states.keys() == expected.keys()
    for learner, rule in expected.items():
        state = states[learner]
        assert (state is None) == (rule is None)
        if state is not None and rule is not None:
            for field in ("version", "time_ms", "half_life_s", "sums.observations"):
                assert attrgetter(field)(state) == attrgetter(field)(rule), field
            for field in ("sums.weight", "sums.gram", "sums.moment"):
                found, wanted = attrgetter(field)(state), attrgetter(field)(rule)
                np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9, err_msg=field)


@given(st.integers(0, 2**32))
@settings(max_examples=20)
def test_a_tail_gives_what_the_fold_gave(seed: int):
    log = log_of(random.Random(seed))
    bad = {each.entry.entry_id for kind, each, _ in log if kind == "bad"}
    for uid in ("plain", "fades"):
        rewards = [
            each
            for _, each, _ in log
            if each.entry.learner.bandit_uid == uid and isinstance(each.content, RewardEntry)
        ]
        good = [each for each in rewards if each.entry.entry_id not in bad]
        learner = LearnerId(uid, "x")
        tail = [each for each in good if each.entry.learner == learner]
        start = fold({}, tail[:1]).get(learner)
        expected = fold({learner: start}, tail[1:]).get(learner, start)
        made = continued(learner, start, tail[1:])
        assert (made and state_to_bytes(made)) == (expected and state_to_bytes(expected))
        wrong = [each for each in rewards if each.entry.entry_id in bad]
        if wrong:
            entry = wrong[0].entry
            with pytest.raises(ValueError, match=f"entry {entry.entry_id} of its tail cannot be folded: Non"):
                continued(entry.learner, None, wrong[:1])
    learner = LearnerId("plain", "x")
    with pytest.raises(ValueError, match="entry 1-5 of its tail cannot be folded: DecodeError"):
        continued(learner, None, [entry_of(5, learner, b"\xc1")])


def test_what_is_left_out_of_a_learner_is_said_once(caplog):
    good, huge = np.ones(2), np.full(2, 1e200)
    entries = [
        entry_of(n, LearnerId("u", "a"), RewardEntry(vector_to_bytes(x), 1.0))
        for n, x in enumerate((good, huge, good))
    ]
    with caplog.at_level(logging.ERROR, logger="shortlist.fold"):
        found = fold({}, entries)
    assert {learner.name: state and state.version for learner, state in found.items()} == {"a": 2}
    (record,) = caplog.records
    assert record.getMessage().startswith("entry 1-1 is left out: NonFinite: ")


@pytest.mark.rest
def test_a_state_that_cannot_be_read_is_left_out_alone():
    rewarded = LearnerId("u", "a")
    good = RewardEntry(vector_to_bytes(np.ones(2)), 1.0)
    wrong = [StateEntry(b"\x07" * 64), StateEntry(b"\x01"), RewardEntry(b""), b"\x94\x09", b""]
    entries = [entry_of(0, rewarded, good)]
    entries += [entry_of(n, LearnerId("u", "b"), each) for n, each in enumerate(wrong, start=1)]
    entries += [entry_of(6, rewarded, good)]
    left_out = []
    found = fold({}, entries, lambda entry, reason: left_out.append((entry.entry_id, reason.split(":")[0])))
    kinds = ["ValueError", "error", "InvalidParameter", "ValidationError", "DecodeError"]
    assert left_out == [(f"1-{n}", kind) for n, kind in enumerate(kinds, start=1)]
    assert {learner.name: state and state.version for learner, state in found.items()} == {"a": 2, "b": None}


@pytest.mark.rest
def test_rewards_of_another_dimension_are_left_out_whichever_came_first():
    def entry(number, name, dim):
        return entry_of(number, LearnerId("u", name), RewardEntry(bytes(8 * dim), 1.0))

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
    module.rows_of(log[:1])
    with pytest.raises(Exception, match="features must have the same length") as raised:
        module.rows_of(log[:2])
    assert raised.value.argument == "features"


@pytest.mark.rest
def test_a_fold_of_so_many_squared_dimensions_is_short():
    def short(*sizes):
        learner = LearnerId("u", "a")
        return is_short(entry_of(0, learner, RewardEntry(bytes(size))) for size in sizes)

    assert short()
    assert short(2_000)
    assert short(1_000, 1_000, 1_000, 1_000)
    assert not short(2_000, 8)
    assert not short(*[8] * 200, 2_000)


def test_of_a_long_tail_no_more_is_decoded_than_a_short_fold_takes():
    entry = entry_of(0, LearnerId("u", "a"), RewardEntry(bytes(800)))
    assert not is_short(repeat(entry))  # which never ends


@pytest.mark.rest
def test_entries_with_states_are_short_only_if_they_are_few():
    """Each is carried: ten of dimension 40 take some milliseconds, and ten rewards half of one."""
    given = StateEntry(state_to_bytes(LearnerState(1, ridge_sums.empty(40))))
    assert is_short([entry_of(0, LearnerId("u", "a"), RewardEntry(bytes(8 * 40), 1.0))] * 10)
    assert is_short([entry_of(0, LearnerId("u", "a"), given)] * 2)
    assert not is_short([entry_of(0, LearnerId("u", "a"), given)] * 10)


@pytest.mark.rest
def test_a_reason_names_the_error_and_is_cut():
    assert reason_of(InvalidParameter("value is wrong", argument="value")).startswith(
        "InvalidParameter: value is wrong"
    )
    assert reason_of(ValueError("why")) == "ValueError: why"
    assert reason_of(ValueError("y" * 500)) == "ValueError: " + "y" * 188


@pytest.mark.rest
@pytest.mark.parametrize("half_life_s", [0.0, 1.5])
def test_the_squares_are_those_of_what_decisions_have_earned(half_life_s: float):
    """Decision 1: 2 and 3 are summed. Decision 2: a default, which 4 replaces, and 1 more."""
    learner, x = LearnerId("u", "x"), vector_to_bytes(np.array([1.0, 2.0]))
    rows = [(2.0, True, ()), (DEFAULT, True, ()), (3.0, False, ((0, 2.0),)), (4.0, False, ())]
    entries = [
        entry_of(
            n,
            learner,
            RewardEntry(x, value, decided_ms=7_000, half_life_s=half_life_s, sums=True, defaults=(DEFAULT,)),
            first=first,
            came=came,
        )
        for n, (value, first, came) in enumerate([*rows, (1.0, False, ((0, 4.0),))], start=1)
    ]
    sums = fold({}, entries)[learner].sums
    assert sums.squares - sums.squares_error == pytest.approx(5.0**2 + 5.0**2)
    half = fold({}, entries[:3])
    assert state_to_bytes(fold(half, entries[3:])[learner]) == state_to_bytes(fold({}, entries)[learner])
