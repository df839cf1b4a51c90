"""The fold of the reward log against the same rules written out in plain Python, entry by entry."""

from __future__ import annotations

import logging
import math
import random
from dataclasses import dataclass, field

import numpy as np
import pytest

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
    """A learner as the rules say: every row with its weight, none of it summed."""

    version: int = 0
    rows: list[tuple[float, list[float], float, bool]] = field(default_factory=list)
    observations: int = 0
    time_ms: int = 0
    half_life_s: float = 0.0

    def at(self, time_ms: int) -> list[tuple[float, list[float], float, bool]]:
        if not self.half_life_s:
            return list(self.rows)
        factor = 0.5 ** (max(0, time_ms - self.time_ms) / 1_000 / self.half_life_s)
        return [(weight * factor, x, value, first) for weight, x, value, first in self.rows]

    def learn(self, terms, x, value, first, replaces) -> None:
        weight, self.half_life_s = 1.0, terms.half_life_s
        if terms.half_life_s:
            newest = max(self.time_ms, terms.decided_ms)
            self.rows = self.at(newest)
            weight = 0.5 ** ((newest - terms.decided_ms) / 1_000 / terms.half_life_s)
            self.time_ms = newest
        # A default is taken back; of a decision only the first reward adds to the gram, and brings the 1 / 2.
        parts = [(-terms.default, False)] if replaces else []
        for reward, counts in [*parts, (value, first)]:
            features = x
            if terms.shifted:
                features = [one / math.sqrt(2) for one in x] + [math.sqrt(2) / 2]
                reward = reward / 2 + (0.5 if counts else 0.0)  # noqa: PLW2901 - as the fold sees it
            self.rows.append((weight, features, reward, counts))
        self.observations += first
        self.version += 1

    def weight(self):
        return math.fsum(w for w, _, _, first in self.rows if first)

    def sums(self):
        dim = len(self.rows[0][1])
        gram = [
            [math.fsum(w * x[i] * x[j] for w, x, _, f in self.rows if f) for j in range(dim)]
            for i in range(dim)
        ]
        return gram, [math.fsum(w * value * x[i] for w, x, value, _ in self.rows) for i in range(dim)]


class ByHand:
    """The rules of the fold. ``states`` by (bandit, name); ``named``: the learners that entries changed."""

    def __init__(self):
        self.states: dict[tuple[str, str], Told | None] = {}
        self.named: set[tuple[str, str]] = set()

    def learner(self, uid, name) -> Told:
        found = self.states.get((uid, name)) or Told()
        self.states[uid, name] = found
        self.named.add((uid, name))
        return found

    def reward(self, uid, name, terms, *row) -> None:
        for learner in (name, POOLED) if terms.pooled else (name,):
            self.learner(uid, learner).learn(terms, *row)

    def forget(self, uid, name) -> None:
        own, total = self.states.get((uid, name)), self.states.get((uid, POOLED))
        if own and total:
            total.rows += [(-w, x, value, first) for w, x, value, first in own.at(total.time_ms)]
            total.observations -= own.observations
            total.version += 1
            self.named.add((uid, POOLED))
        self.states[uid, name] = None
        self.named.add((uid, name))

    def restore(self, uid, name, given: Told, pooled) -> None:
        if self.states.get((uid, name)):
            return
        copy = Told(given.version, list(given.rows), given.observations, given.time_ms, given.half_life_s)
        self.states[uid, name] = copy
        self.named.add((uid, name))
        if not pooled:
            return
        self.named.add((uid, POOLED))
        total = self.states.get((uid, POOLED)) or Told(half_life_s=given.half_life_s)
        newest = max(total.time_ms, given.time_ms)
        rows = total.at(newest) + given.at(newest)
        self.states[uid, POOLED] = Told(
            total.version + given.version,
            rows,
            total.observations + given.observations,
            newest,
            given.half_life_s,
        )


def log_of(seed, length=70):
    """Entries of all kinds, and what they mean; some cannot be folded."""
    draw, entries, meant, bad = random.Random(seed), [], ByHand(), []
    for number in range(length):
        uid = draw.choice(list(BANDITS))
        dim, half_life_s, pooled, shifted = BANDITS[uid]
        name, kind = draw.choice("xyz"), draw.random()
        first, replaces, payload = True, False, RewardPayload(b"")
        terms = RewardTerms(DEFAULT, 500 * draw.randrange(9), half_life_s, pooled, shifted)
        if kind < 0.1:
            meant.forget(uid, name)
        elif kind < 0.25:
            given = Told()
            for _ in range(draw.randrange(1, 3)):
                given.learn(
                    terms, [draw.uniform(-2, 2) for _ in range(dim)], draw.uniform(-1, 1), True, False
                )
            payload = RewardPayload(b"", 0.0, terms, state_to_bytes(stated(given)))
            meant.restore(uid, name, given, pooled)
        elif kind < 0.35:
            good = vector_to_bytes(np.ones(dim))
            features, value = draw.choice([(good[:-8] + b"\xff" * 8, 1.0), (good, math.nan)])
            payload = RewardPayload(features, value, terms)
            meant.states.setdefault((uid, name), None)
            meant.named.add((uid, name))
            bad.append(f"1-{number}")
        else:
            x, value = [draw.uniform(-2, 2) for _ in range(dim)], draw.uniform(-1, 1)
            first = draw.random() < 0.6
            replaces = not first and draw.random() < 0.5
            if uid == "plain" and not replaces:
                payload = RewardPayload(vector_to_bytes(np.array(x)), value)
            else:
                payload = RewardPayload(vector_to_bytes(np.array(x)), value, terms)
            meant.reward(uid, name, terms, x, value, first, replaces)
        entries.append(LogEntry(f"1-{number}", LearnerId(uid, name), first, pack(payload), replaces=replaces))
    return entries, meant, bad


def stated(told: Told) -> LearnerState:
    """The state of what was told, with sums made from numpy's."""
    gram, moment = told.sums()
    numbers = np.array([*[gram[i][j] for i in range(len(gram)) for j in range(i + 1)], *moment])
    sums = ridge_sums.RidgeSums(numbers, np.zeros(len(numbers)), told.observations, told.weight())
    return LearnerState(told.version, sums, told.time_ms, told.half_life_s)


@pytest.mark.parametrize("seed", range(12))
def test_the_states_are_what_the_rules_say(seed):
    entries, meant, bad = log_of(seed)
    left_out = []
    found = fold({}, entries, lambda entry, reason: left_out.append((entry.entry_id, reason)))
    assert sorted(entry_id for entry_id, _ in left_out) == sorted(bad)
    assert all(reason.startswith("NonFinite: ") for _, reason in left_out)
    assert {(one.bandit_uid, one.name) for one in found} == meant.named
    for learner, state in found.items():
        told = meant.states[learner.bandit_uid, learner.name]
        if told is None or state is None:
            assert state is told is None
            continue
        assert (state.version, state.sums.observations) == (told.version, told.observations)
        assert (state.time_ms, state.half_life_s) == (told.time_ms, told.half_life_s)
        assert state.sums.weight == pytest.approx(told.weight(), rel=1e-9, abs=1e-9)
        gram, moment = told.sums()
        np.testing.assert_allclose(state.sums.gram, gram, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(state.sums.moment, moment, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_a_tail_gives_what_the_fold_gave(seed):
    """Of a learner, and of the pooled prior: rewards that were left out there are left out again."""
    entries, _, bad = log_of(seed)
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
