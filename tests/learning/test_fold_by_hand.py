"""The fold of the reward log against the same rules written out in plain Python, entry by entry."""

from __future__ import annotations

import logging
import math
import random
from collections import Counter
from operator import attrgetter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.learning import fold as module
from app.learning.fold import continued, fold, is_short, reason_of
from app.records.records import (
    LearnerState,
    RewardPayload,
    RewardTerms,
    bytes_to_vector,
    pack,
    state_to_bytes,
    unpack,
    vector_to_bytes,
)
from app.storage.types import LearnerId, LogEntry
from shortlist.errors import InvalidParameter
from shortlist.linear import ridge_sums

# Bandits by uid: dimension, half-life.
BANDITS = {
    "plain": (2, 0.0),
    "fades": (3, 1.5),
    "fast": (1, 0.5),
}
DEFAULT = 0.25
KINDS = ("reward",) * 13 + ("forget", "forget", "give", "give", "give", "bad", "bad")


Row = tuple[int, list[float], float, bool]  # time, features, reward, whether the gram counts it


def rows_of(payload: RewardPayload, first: bool, replaces: bool) -> list[Row]:
    """What a reward adds: a default is taken back; only the first of a decision adds to the gram."""
    terms, x = payload.terms, list(bytes_to_vector(payload.features))
    rewards = [(-terms.default, False)] * replaces + [(payload.value, first)]
    return [(terms.decided_ms, x, reward, counts) for reward, counts in rewards]


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
    sums = ridge_sums.RidgeSums(numbers, np.zeros(len(numbers)), sum(row[3] for row in rows), weight)
    return LearnerState(version, sums, time_ms if half_life_s else 0, half_life_s)


def log_of(draw: random.Random) -> list[tuple[str, LogEntry, RewardPayload]]:
    """Entries with what they are: rewards, forgetting, states that are given, and what cannot be folded."""
    log = []
    for number in range(draw.randrange(10, 70)):
        uid = draw.choice(list(BANDITS))
        dim, half_life_s = BANDITS[uid]
        terms = RewardTerms(DEFAULT, 500 * draw.randrange(9), half_life_s)
        x, value = np.array([draw.uniform(-2, 2) for _ in range(dim)]), draw.uniform(-1, 1)
        payload = RewardPayload(vector_to_bytes(x), value, terms)
        kind, replaces = draw.choice(KINDS), draw.random() < 0.2
        first = kind != "reward" or (not replaces and draw.random() < 0.6)
        sent = payload
        if kind == "forget":
            sent = RewardPayload(b"")
        elif kind == "give":
            given_state = state_of(rows_of(payload, True, False), 1, terms.decided_ms, uid)
            sent = RewardPayload(b"", 0.0, terms, state_to_bytes(given_state))
        elif kind == "bad":
            x[-1], value = draw.choice([(math.inf, value), (x[-1], math.nan)])
            sent = RewardPayload(vector_to_bytes(x), value, terms)
        replaces = replaces and kind == "reward"
        learner = LearnerId(uid, draw.choice("xyz"))
        log.append((kind, LogEntry(f"1-{number}", learner, first, pack(sent), replaces=replaces), payload))
    return log


def by_the_rules(log: list[tuple[str, LogEntry, RewardPayload]]) -> dict[LearnerId, LearnerState | None]:
    """The state of each learner."""
    rows, versions, times = dict[LearnerId, list[Row] | None](), Counter[LearnerId](), Counter[LearnerId]()
    for kind, entry, payload in log:
        learner = entry.learner
        before = rows.setdefault(learner, None)
        if kind == "forget":
            rows[learner], versions[learner], times[learner] = None, 0, 0
        elif kind == "reward" or (kind == "give" and not before):
            first, replaces = (entry.first, entry.replaces) if kind == "reward" else (True, False)
            rows[learner] = (before or []) + rows_of(payload, first, replaces)
            versions[learner] += 1
            times[learner] = max(times[learner], payload.terms.decided_ms)
    return {
        one: None if of is None else state_of(of, versions[one], times[one], one.bandit_uid)
        for one, of in rows.items()
    }


@given(st.integers(0, 2**32))
@settings(max_examples=60)
def test_the_states_are_what_the_rules_say(seed: int):
    log, left_out = log_of(random.Random(seed)), list[tuple[LogEntry, str]]()
    states = fold({}, [entry for _, entry, _ in log], lambda *given: left_out.append(given))
    bad = [entry.entry_id for kind, entry, _ in log if kind == "bad"]
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
    entries, bad = [entry for _, entry, _ in log], {entry.entry_id for kind, entry, _ in log if kind == "bad"}
    for uid in ("plain", "fades"):
        rewards = [
            entry
            for entry in entries
            if entry.learner.bandit_uid == uid and unpack(entry.payload, RewardPayload).features
        ]
        good = [entry for entry in rewards if entry.entry_id not in bad]
        learner = LearnerId(uid, "x")
        tail = [entry for entry in good if entry.learner == learner]
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
    broken = LogEntry("1-5", LearnerId("plain", "x"), True, b"\xc1")
    with pytest.raises(ValueError, match="entry 1-5 of its tail cannot be folded: DecodeError"):
        continued(broken.learner, None, [broken])


def test_what_is_left_out_of_a_learner_is_said_once(caplog):
    good, huge = np.ones(2), np.full(2, 1e200)
    entries = [
        LogEntry(f"1-{n}", LearnerId("u", "a"), True, pack(RewardPayload(vector_to_bytes(x), 1.0)))
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
    good = pack(RewardPayload(vector_to_bytes(np.ones(2)), 1.0))
    wrong = [pack(RewardPayload(b"", 0.0, None, state)) for state in (b"\x07" * 64, b"\x01")]
    entries = [LogEntry("1-0", rewarded, True, good)]
    entries += [LogEntry(f"1-{n}", LearnerId("u", "b"), True, data) for n, data in enumerate(wrong, start=1)]
    entries += [LogEntry("1-3", rewarded, True, good)]
    left_out = []
    found = fold({}, entries, lambda entry, reason: left_out.append((entry.entry_id, reason.split(":")[0])))
    assert left_out == [("1-1", "ValueError"), ("1-2", "error")]
    assert {learner.name: state.version for learner, state in found.items()} == {"a": 2}


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
def test_a_fold_of_so_many_squared_dimensions_is_short():
    def short(*sizes):
        return is_short(LogEntry("1-0", LearnerId("u", "a"), True, bytes(size)) for size in sizes)

    assert short()
    assert short(2_000)
    assert short(1_000, 1_000, 1_000, 1_000)
    assert not short(2_000, 8)
    assert not short(*[8] * 200, 2_000)


@pytest.mark.rest
def test_entries_with_states_are_short_only_if_they_are_few():
    """Each is carried and merged: ten of dimension 40 take some milliseconds, and ten rewards half of one."""

    def entries(count, payload):
        return [LogEntry("1-0", LearnerId("u", "a"), True, payload)] * count

    state = state_to_bytes(LearnerState(1, ridge_sums.empty(40)))
    given, rewarded = pack(RewardPayload(b"", 0.0, state=state)), pack(RewardPayload(bytes(8 * 40), 1.0))
    assert is_short(entries(10, rewarded))
    assert is_short(entries(2, given))
    assert not is_short(entries(10, given))


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
    terms = RewardTerms(DEFAULT, 7_000, half_life_s)
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
    assert sums.squares - sums.squares_error == pytest.approx(5.0**2 + 5.0**2)
    half = fold({}, entries[:3])
    assert state_to_bytes(fold(half, entries[3:])[learner]) == state_to_bytes(fold({}, entries)[learner])
