"""The fold of a log with moves: every row as if it had had the features of the last space."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.bandits.spaces import SpaceMap, Spaces
from app.fold.fold import fold, moves_of
from app.fold.fold_batches import CheckpointedLearner, fold_stored
from app.records.log_entries import MOVED, DecodedEntry, MoveEntry, RewardEntry
from app.records.records import LearnerState, bytes_to_state, state_to_bytes, vector_to_bytes
from app.storage.types import LearnerId, LogEntry
from log_entries import entry_of
from shortlist.linear import ridge_sums

UID = "0123456789abcdef"
DIMS = (3, 2, 4)  # of the spaces
RNG = np.random.default_rng(3)
ROOTS = {number: RNG.normal(size=(DIMS[number], DIMS[number])) for number in (1, 2)}
MAPS = {
    number: SpaceMap(
        number,
        RNG.normal(size=(DIMS[number], DIMS[number - 1])),
        ROOTS[number] @ ROOTS[number].T,
        DIMS[number - 1],
    )
    for number in (1, 2)
}
KEYS = ("ann", "bob")


def entry(number: int, learner: str, content: RewardEntry | MoveEntry) -> DecodedEntry:
    return entry_of(f"{number}-{number}", LearnerId(UID, learner), content)


def reward(dim: int, space: int = 0) -> RewardEntry:
    return RewardEntry(vector_to_bytes(np.ones(dim)), 1.0, space=space)


def through(features: np.ndarray, space: int, to: int = 2) -> np.ndarray:
    for number in range(space + 1, to + 1):
        features = MAPS[number].transform @ features
    return features


def open_part(features: np.ndarray, space: int) -> np.ndarray:
    """What a row adds to the gram of the last space besides the product of its mapped features."""
    gram = np.outer(features, features)
    for number in range(space + 1, 3):
        transform = MAPS[number].transform
        gram = transform @ gram @ transform.T + np.trace(gram) * MAPS[number].residual
    mapped = through(features, space)
    return gram - np.outer(mapped, mapped)


def a_log(seed: int, count: int, *, half_life_s: float = 0.0) -> list[DecodedEntry]:
    """Rewards of two keys, of any space that had begun by then or one that has not yet, and two moves."""
    rng, found = np.random.default_rng(seed), list[DecodedEntry]()
    moves = sorted(rng.choice(np.arange(1, count), size=2, replace=False).tolist())
    for number in range(1, count + 1):
        if number in moves:
            found.append(entry(number, MOVED, MoveEntry(moves.index(number) + 1)))
            continue
        begun = sum(move < number for move in moves)
        space = min(2, int(rng.integers(0, begun + 2)))  # a process may hear of a move before the log has it
        content = RewardEntry(
            vector_to_bytes(rng.normal(size=DIMS[space])),
            float(rng.normal()),
            decided_ms=number * 1_000,
            space=space,
            half_life_s=half_life_s,
        )
        found.append(entry(number, KEYS[int(rng.integers(2))], content))
    return found


def in_batches(log: list[DecodedEntry], cuts: list[int]) -> dict[LearnerId, bytes | None]:
    """As workers fold it, who know what is folded, and begin each batch from what is stored."""
    stored, folded = dict[LearnerId, LearnerState | None](), dict[str, int]()
    bounds = [0, *sorted({cut % len(log) for cut in cuts}), len(log)]
    for start, stop in pairwise(bounds):
        some = log[start:stop]
        known = {learner: stored.get(learner) for learner in {each.entry.learner for each in some}}
        after = fold(known, some, _never, Spaces(folded, {UID: MAPS}))
        stored |= {
            learner: None if state is None else bytes_to_state(state_to_bytes(state))
            for learner, state in after.items()
        }
        folded |= moves_of(some)
    spaces = Spaces({}, {UID: MAPS})
    carried = {learner: spaces.carried(UID, state, 2) for learner, state in stored.items()}
    return {learner: None if state is None else state_to_bytes(state) for learner, state in carried.items()}


def _never(entry: LogEntry, reason: str) -> None:
    raise AssertionError(reason)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(4, 30), st.lists(st.integers(0, 1_000), max_size=5))
def test_the_states_are_the_same_to_the_bit_however_the_log_is_cut(seed, count, cuts):
    log = a_log(seed, count, half_life_s=60.0 if seed % 2 else 0.0)
    assert in_batches(log, cuts) == in_batches(log, [])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(4, 30), st.sampled_from([0.0, 3.0]))
def test_they_are_those_of_the_rows_in_the_last_space(seed, count, half_life_s):
    log = a_log(seed, count, half_life_s=half_life_s)
    states = in_batches(log, [seed])
    for name in KEYS:
        rows = [reward for entry, reward in log if entry.learner.name == name]
        data = states.get(LearnerId(UID, name))
        assert (data is not None) == bool(rows)
        if data is None:
            continue
        features = np.array([through(np.frombuffer(row.features), row.space) for row in rows])
        values = np.array([row.value for row in rows])
        state = bytes_to_state(data)
        decided = np.array([row.decided_ms for row in rows])
        weights = (
            0.5 ** ((state.time_ms - decided) / 1_000 / half_life_s) if half_life_s else np.ones(len(rows))
        )
        expected = ridge_sums.of(features, values, np.ones(len(rows), dtype=bool), weights)
        open_parts = [open_part(np.frombuffer(row.features), row.space) for row in rows]
        gram = expected.gram + np.einsum("n,nij->ij", weights, open_parts)
        scale = 1e-9 * max(1.0, np.abs(gram).max())
        np.testing.assert_allclose(state.sums.gram, gram, atol=scale)
        np.testing.assert_allclose(state.sums.moments, expected.moments, atol=scale)
        assert math.isclose(state.sums.squares, expected.squares, rel_tol=1e-9)
        assert (state.version, state.space) == (len(rows), 2)


def test_where_nothing_is_carried_learners_begin_anew_and_earlier_entries_are_passed_over():
    maps = {UID: {1: SpaceMap(1, None)}}
    log = [entry(1, "ann", reward(3)), entry(2, MOVED, MoveEntry(1)), entry(3, "ann", reward(3))]
    spaces = Spaces({}, maps)
    assert fold({}, log, _never, spaces)[LearnerId(UID, "ann")] is None
    state = fold({}, [*log, entry(4, "ann", reward(2, 1))], _never, spaces)[LearnerId(UID, "ann")]
    assert state is not None
    assert (state.version, state.space, state.sums.dim) == (1, 1, 2)


@pytest.mark.rest
def test_an_entry_of_a_move_that_nobody_knows_is_left_out():
    left_out = list[str]()
    log = [entry(1, "ann", reward(2, 1))]
    before = fold({}, [entry(1, "ann", reward(3))])
    states = fold(before, log, lambda each, reason: left_out.append(each.entry_id))
    assert left_out == ["1-1"]
    assert states[LearnerId(UID, "ann")] == before[LearnerId(UID, "ann")]


@pytest.mark.parametrize("late", [0, 1])
def test_a_learner_that_was_carried_is_written_whole(late):
    """So whoever reads checkpoint and tail needs to know of no move."""
    learner = LearnerId(UID, "ann")
    (state,) = fold({}, [entry(1, "ann", reward(3))]).values()
    assert state is not None
    space, dim = (0, 3) if late else (1, 2)
    log = [entry(2, MOVED, MoveEntry(1)), entry(3, "ann", reward(dim, space))]
    done = fold_stored({learner: CheckpointedLearner(state)}, log, Spaces({}, {UID: MAPS}))
    assert done.tails == {}
    assert done.moved == {UID: 1}
    assert bytes_to_state(done.checkpoints[learner] or b"").space == 1


@pytest.mark.rest
@pytest.mark.parametrize("space", [0, 1])
def test_a_reward_of_an_earlier_space_is_in_no_tail(space: int):
    """However short the tail is beside the state: whoever folds it knows of no move."""
    learner, dim = LearnerId(UID, "ann"), 64
    (state,) = fold({}, [entry(1, "ann", reward(dim, space))]).values()
    before = {learner: CheckpointedLearner(state)}
    assert [*fold_stored(before, [entry(2, "ann", reward(dim, space))]).tails] == [learner]
    moved = Spaces({UID: 1}, {UID: {1: SpaceMap(1, np.eye(dim))}})
    done = fold_stored(before, [entry(2, "ann", reward(dim))], moved)
    assert done.tails == {}
    assert bytes_to_state(done.checkpoints[learner] or b"").space == 1


@pytest.mark.rest
def test_a_state_without_a_space_is_stored_as_it_always_was():
    state = LearnerState(3, ridge_sums.empty(2))
    data = state_to_bytes(state)
    assert data[4:8] == bytes(4)
    assert bytes_to_state(state_to_bytes(LearnerState(3, ridge_sums.empty(2), space=7))).space == 7


def test_states_of_any_space_are_carried_together_as_each_alone():
    """Also those that know nothing."""
    rng, spaces = np.random.default_rng(7), Spaces({}, {UID: MAPS})
    first = np.ones(4, dtype=bool)

    def state(space: int) -> LearnerState:
        rows = rng.normal(size=(4, DIMS[space]))
        return LearnerState(4, ridge_sums.of(rows, rng.normal(size=4), first), space=space)

    states = [state(0), None, state(1), state(2), state(1), state(0)]
    found = spaces.carried_each(UID, states, 2)
    for before, after in zip(states, found, strict=True):
        alone = spaces.carried(UID, before, 2)
        assert (after is None) == (before is None)
        if after is not None and alone is not None:
            assert (after.space, after.version) == (2, 4)
            assert state_to_bytes(after) == state_to_bytes(alone)
    assert spaces.carried_each(UID, [None], 2) == [None]
