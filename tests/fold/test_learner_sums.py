"""Learners from rows, whichever way: what a loop over the rewards finds."""

import numpy as np
import pytest

from app.fold.learner_sums import RewardRows, merged, state_of, states_after

DIM, REWARDS = 3, 12


def rows_of(rng, signals, half_life_s) -> RewardRows:
    """Every third reward replaces a value."""
    reward_at = np.sort(np.concatenate((np.arange(REWARDS), np.arange(0, REWARDS, 3))))
    first = np.append(True, reward_at[1:] != reward_at[:-1])
    features = rng.normal(size=(REWARDS, DIM))[reward_at]
    values, before = rng.normal(size=(2, len(reward_at), signals))
    before[first] = 0.0
    decided, named = rng.integers(0, 9_000, size=REWARDS), rng.integers(1, signals + 1, size=REWARDS)
    for of_reward in (values, before):
        of_reward[np.arange(signals) >= named[reward_at][:, None]] = 0.0
    return RewardRows(
        features, values, first, before, reward_at, decided, np.full(REWARDS, half_life_s), named
    )


@pytest.mark.parametrize("half_life_s", [0.0, 2.5])
@pytest.mark.parametrize("signals", [1, 2])
def test_sums_are_those_of_a_loop_over_the_rewards(signals, half_life_s):
    rows, count = rows_of(np.random.default_rng(signals), signals, half_life_s), 7
    gram, moments, squares, observations = np.zeros((DIM, DIM)), np.zeros((signals, DIM)), 0.0, 0
    latest_ms = rows.decided_ms.max()
    for x, r, first, had, at in zip(
        rows.features, rows.values, rows.first, rows.before, rows.reward_at, strict=True
    ):
        w = 0.5 ** ((latest_ms - rows.decided_ms[at]) / 1_000 / half_life_s) if half_life_s else 1.0
        gram, observations = gram + first * w * np.outer(x, x), observations + first
        moments, squares = moments + w * np.outer(r, x), squares + w * ((had + r)[0] ** 2 - had[0] ** 2)
    parts = rows.part(0, count), rows.part(count, REWARDS)
    (whole,) = states_after([None], [REWARDS], rows)
    (cut,) = states_after(states_after([None], [count], parts[0]), [REWARDS - count], parts[1])
    two = states_after([None, None], [count, REWARDS - count], rows)
    for state in (whole, cut, state_of(rows), merged(*map(state_of, parts)), merged(*two)):
        np.testing.assert_allclose(state.sums.gram, gram, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(state.sums.with_signals(signals).moments, moments, rtol=1e-12, atol=1e-12)
        assert (state.sums.squares, state.version) == (pytest.approx(squares, abs=1e-12), REWARDS)
        assert state.sums.observations == observations
    assert np.array_equal(whole.sums.total, cut.sums.total)
