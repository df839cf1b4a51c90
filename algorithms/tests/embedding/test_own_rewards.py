"""Coordinates from a bandit's own rewards, and the rule that judges them on rewards which nobody has seen."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.embedding.own_rewards import Judgement, Rewards, coordinates, estimates, judge, squared_errors

KEYS, ARMS, SHOWN = 60, 80, 6_000


def rewards_by_taste(hidden, seed):
    """Rewards of a table of two numbers, of ``hidden`` times two others that no column has, and of noise."""
    rng = np.random.default_rng(seed)
    table, unsaid = rng.standard_normal((ARMS, 2)), rng.standard_normal((ARMS, 2))
    tastes, others = rng.standard_normal((KEYS, 2)), rng.standard_normal((KEYS, 2))
    keys, arms = rng.integers(KEYS, size=SHOWN), rng.integers(ARMS, size=SHOWN)
    means = np.einsum("nd,nd->n", table[arms], tastes[keys])
    means += hidden * np.einsum("nd,nd->n", unsaid[arms], others[keys])
    return Rewards(keys, arms, means + rng.standard_normal(SHOWN), KEYS), table


def split(rewards):
    end = int(0.9 * len(rewards))
    return rewards.part(slice(None, end)), rewards.part(slice(end, None))


def test_what_no_column_says_is_found_and_taken():
    rewards, table = rewards_by_taste(1.0, seed=1)
    found = judge(rewards, table, 2, np.random.default_rng(0))
    assert found.judged == SHOWN // 10
    assert found.is_taken
    assert found.after < 0.75 * found.before


@pytest.mark.rest
def test_noise_is_not_taken_and_coordinates_that_have_seen_the_judging_rewards_would_be():
    """In 12 worlds without anything to find. By chance one is taken with probability .16 at most: of twelve,
    six or more with less than .01. The broken rule takes all.
    """
    taken, leaking = 0, 0
    for seed in range(12):
        rewards, table = rewards_by_taste(0.0, seed=10 + seed)
        rng = np.random.default_rng(seed)
        taken += judge(rewards, table, 8, rng).is_taken
        first, last = split(rewards)
        seen = np.hstack((table, coordinates(rewards, table, 8, rng)))
        gains = squared_errors(first, last, table, rng) - squared_errors(first, last, seen, rng)
        leaking += Judgement(gains.mean(), 0.0, gains.std() / len(gains) ** 0.5, len(gains)).is_taken
    assert taken < 6
    assert leaking == 12


def test_the_judging_rewards_are_seen_by_nothing_that_is_judged():
    """With other values in the last tenth, features and learners are the same: so is each estimate."""
    rewards, table = rewards_by_taste(0.5, seed=3)
    first, last = split(rewards)
    found = judge(rewards, table, 3, np.random.default_rng(7))
    rng = np.random.default_rng(7)
    joint = np.hstack((table, coordinates(first, table, 3, rng)))
    before, after = (squared_errors(first, last, features, rng) for features in (table, joint))
    assert (found.before, found.after) == (pytest.approx(before.mean()), pytest.approx(after.mean()))
    moved = Rewards(rewards.keys, rewards.arms, rewards.values.copy(), KEYS)
    moved.values[len(first) :] += 100.0
    shifted = judge(moved, table, 3, np.random.default_rng(7))
    by_first = last.values - estimates(first, last, table, np.random.default_rng(1))
    assert shifted.before == pytest.approx(np.square(by_first + 100.0).mean(), rel=1e-3)


def test_the_standard_error_counts_a_key_as_one_draw():
    """The gains of a key that comes ten times as often as the others do not average out."""
    rewards, table = rewards_by_taste(0.5, seed=4)
    keys = np.where(np.arange(SHOWN) % 10 < 9, 0, rewards.keys)
    found = judge(Rewards(keys, rewards.arms, rewards.values, KEYS), table, 2, np.random.default_rng(0))
    first, last = split(Rewards(keys, rewards.arms, rewards.values, KEYS))
    rng = np.random.default_rng(0)
    joint = np.hstack((table, coordinates(first, table, 2, rng)))
    gains = squared_errors(first, last, table, rng) - squared_errors(first, last, joint, rng)
    count = len(set(last.keys.tolist()))
    sums = [(gains[last.keys == key] - gains.mean()).sum() for key in range(KEYS)]
    assert found.error == pytest.approx(np.sqrt(np.square(sums).sum() * count / (count - 1)) / len(gains))


@pytest.mark.rest
def test_learners_are_those_of_the_learned_prior():
    """A key without a reward is expected to be the mean of all."""
    rewards, table = rewards_by_taste(0.0, seed=5)
    some = rewards.part(np.flatnonzero(rewards.keys > 4))
    asked = Rewards(np.array([0, 9]), np.array([3, 3]), np.zeros(2), KEYS)
    new, known = estimates(some, asked, table, np.random.default_rng(0))
    truth = [rewards.values[(rewards.keys == 9) & (rewards.arms == 3)], new]
    assert abs(new) < 1.0
    assert known != new
    assert np.isfinite(truth[1])
