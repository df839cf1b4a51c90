"""Keys whose rewards are far larger than those of the others are counted in their own unit."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.linear.reward_sizes import UsualSizes, usual_sizes

SIZES = UsualSizes(np.array([2.0]), np.array([8.0]))


def factor(squares: float, weight: float, sizes: UsualSizes = SIZES) -> float:
    (found,) = sizes.factors(np.array([squares]), weight)
    return float(found)


def test_up_to_the_limit_rewards_are_as_they_are_and_beyond_it_they_fall_without_a_jump():
    weight = 50.0
    limit = max(4.0 * 2.0 * weight, 2.0 * weight + 10.0 * np.sqrt(8.0 * weight))
    assert factor(limit, weight) == factor(0.0, weight) == 1.0
    assert 1.0 - 1e-6 < factor(limit * (1.0 + 1e-8), weight) < 1.0
    beyond = [factor(limit * rho, weight) for rho in (1.01, 2.0, 10.0, 1e3, 1e9)]
    assert beyond == sorted(beyond, reverse=True)


@pytest.mark.rest
def test_what_is_very_large_is_counted_as_usual():
    squares, weight = 1e6, 50.0
    assert factor(squares, weight) ** 2 * squares / weight == pytest.approx(2.0, rel=0.01)


@pytest.mark.rest
def test_one_reward_is_not_far_beyond_but_many_of_its_size_are():
    assert factor(15.0 * 2.0, 1.0) == 1.0
    assert factor(15.0 * 2.0 * 50, 50.0) < 1.0


def test_one_large_key_does_not_change_what_is_usual():
    rng = np.random.default_rng(1)
    weights = rng.integers(1, 40, size=41).astype(float)
    squares = rng.chisquare(weights)[:, None]
    sizes = usual_sizes(squares, weights)
    squares[7] *= 400.0
    large = usual_sizes(squares, weights)
    assert large.mean_squares[0] == pytest.approx(sizes.mean_squares[0], rel=0.1)
    factors = large.factors(squares, weights)[:, 0]
    assert factors[7] < 0.1
    assert (np.delete(factors, 7) == 1.0).all()


def test_what_is_usual_leaves_out_the_largest_mean_squares_and_not_the_largest_sums():
    """Two keys of one large reward each, among forty that have a thousand usual ones."""
    weights = np.full(40, 1_000.0)
    weights[[3, 5]] = 1.0
    squares = weights[:, None].copy()
    squares[[3, 5]] = 400.0
    assert usual_sizes(squares, weights).mean_squares[0] == pytest.approx(1.0, rel=1e-12)


@pytest.mark.rest
def test_two_large_keys_of_forty_do_not_hide_each_other():
    weights = np.full(40, 30.0)
    squares = np.random.default_rng(2).chisquare(weights)[:, None]
    squares[[3, 5]] *= 400.0
    factors = usual_sizes(squares, weights).factors(squares, weights)[:, 0]
    assert set(np.flatnonzero(factors < 1.0)) == {3, 5}


@pytest.mark.rest
def test_a_click_among_few_is_not_far_beyond():
    """1 % of decisions are clicked, in 200 keys of 20 decisions; seeded."""
    weights = np.full(200, 20.0)
    clicks = np.random.default_rng(3).binomial(20, 0.01, size=(200, 1)).astype(float)
    assert (usual_sizes(clicks, weights).factors(clicks, weights) == 1.0).all()


@pytest.mark.rest
def test_where_the_others_have_nothing_a_reward_is_as_it_is():
    squares = np.zeros((6, 2))
    squares[2] = 5.0
    assert (usual_sizes(squares, np.ones(6)).factors(squares, np.ones(6)) == 1.0).all()
    assert (usual_sizes(squares[:1], np.ones(1)).factors(squares[:1], np.ones(1)) == 1.0).all()


@pytest.mark.rest
def test_every_signal_has_its_own_size_and_units_do_not_matter():
    rng = np.random.default_rng(4)
    weights = np.full(20, 25.0)
    squares = rng.chisquare(25.0, size=(20, 2))
    squares[4, 1] *= 400.0
    factors = usual_sizes(squares, weights).factors(squares, weights)
    assert (factors[:, 0] == 1.0).all()
    assert factors[4, 1] < 0.1
    in_cents = usual_sizes(squares * 2.0**20, weights).factors(squares * 2.0**20, weights)
    np.testing.assert_array_equal(in_cents, factors)


def test_one_reward_is_far_beyond_a_square_of_q_and_1000_deviations():
    bound = 2.0 + 1_000.0 * np.sqrt(8.0)
    assert not SIZES.is_far(np.sqrt(bound) * (1.0 - 1e-12))
    assert SIZES.is_far(-np.sqrt(bound) * (1.0 + 1e-12))
    assert not UsualSizes(np.zeros(1), np.zeros(1)).is_far(1e9)  # nothing is known of what is usual


@pytest.mark.parametrize("chance", [0.5, 1e-2, 1e-4])
def test_a_click_is_never_far_however_rare_clicks_are(chance: float):
    clicks = np.full((200, 1), 1e5 * chance)  # of each key
    noisy = clicks + np.sqrt(clicks) * np.random.default_rng(2).normal(size=clicks.shape)
    sizes = usual_sizes(np.maximum(noisy, 0.0), np.full(200, 1e5))
    assert not sizes.is_far(1.0)
    assert sizes.is_far(1e4)
