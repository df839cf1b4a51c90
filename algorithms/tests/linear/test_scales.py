"""Noise, ridge and exploration from a learner's own sums: conjugate, and free of units to the bit."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from folds import fold
from shortlist.linear import bilinear, linear_ts, ridge, ridge_sums, scales
from shortlist.linear.discounted_sums import minus, plus, scaled
from shortlist.linear.exploration import LITTLE_NOISE, exploration_at, exploration_of_dimension

POWERS = st.integers(-12, 12)


def posterior_of(sums, *, otherwise=1.0):
    return ridge.posterior(sums, ridge=scales.ridge(sums, otherwise=otherwise))


def noise_of(sums, *, spread=None):
    return scales.noise(sums, posterior_of(sums).theta, spread=spread)


def some(seed, rows=30, dim=3):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, dim)), rng.standard_normal(rows)


def test_the_noise_is_that_of_the_posterior_by_quadrature():
    """1 / sigma^2 has the mean that follows from Bayes' rule, where theta is integrated out numerically."""
    x, r, spread = np.array([1.0, -0.5, 2.0]), np.array([0.7, 0.1, 1.9]), 0.8
    sums = fold(x[:, None], r)
    strength = scales.ridge(sums, otherwise=1.0)

    def likelihood(precision):
        def joint(theta):
            return np.exp(-precision / 2 * (((r - x * theta) ** 2).sum() + strength * theta**2))

        over_theta = precision ** (len(r) / 2) * math.sqrt(precision) * integrate.quad(joint, -30, 30)[0]
        return over_theta * precision ** (scales.PRIOR_REWARDS / 2 - 1)

    def weighed(power):
        rate = scales.PRIOR_REWARDS * spread**2 / 2
        return integrate.quad(lambda p: p**power * likelihood(p) * np.exp(-rate * p), 1e-9, 200, limit=200)[0]

    assert noise_of(sums, spread=spread) == pytest.approx((weighed(1) / weighed(0)) ** -0.5, rel=1e-5)


@settings(max_examples=50)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 40), dim=st.integers(1, 5))
def test_what_the_estimate_leaves_is_the_penalised_sum_of_squares(seed, rows, dim):
    features, values = some(seed, rows, dim)
    sums = fold(features, values)
    found = posterior_of(sums)
    left = ((values - features @ found.theta) ** 2).sum() + found.ridge * found.theta @ found.theta
    assert noise_of(sums) ** 2 == pytest.approx(left / rows, rel=1e-9)
    assert scales.mean_square(sums) == pytest.approx((features**2).sum() / rows)


@pytest.mark.rest
def test_the_noise_is_found_with_enough_rewards_and_with_few_is_near_the_spread():
    rng = np.random.default_rng(1)
    features = rng.standard_normal((5_000, 8))
    values = features @ rng.standard_normal(8) + 0.3 * rng.standard_normal(5_000)
    assert noise_of(fold(features, values)) == pytest.approx(0.3, rel=0.03)
    one = fold(features[:1], np.array([0.0]))
    assert noise_of(one, spread=0.5) == 0.5
    assert 0.3 < noise_of(fold(features[:1], np.array([0.1])), spread=0.5) < 0.5


UNIT = SimpleNamespace(ridge=scales.ridge, noise=scales.noise, exploration=exploration_of_dimension)


def choices(features, means, *, rewards=1.0, spread=None, contexts=None, unit=UNIT, seed=3):
    """Thompson sampling without a setting, by an exact search: the arms, and the scores of the last."""
    rng = np.random.default_rng(seed)
    dim = features.shape[1] * (1 if contexts is None else 1 + contexts.shape[1])
    sums, arms, found = ridge_sums.empty(dim), [], None
    for at in range(60):
        posterior = ridge.posterior(sums, ridge=unit.ridge(sums, otherwise=1.0))
        exploration = unit.exploration(dim) * unit.noise(sums, posterior.theta, spread=spread)
        if contexts is not None:
            posterior = bilinear.given(posterior, None, contexts[at])
        found = linear_ts.choose(posterior, features, k=3, exploration=exploration, rng=rng)
        arm = int(found.rows[0])
        arms.append(found.rows.tolist())
        taught = features[[arm]] if contexts is None else bilinear.phi(features[[arm]], None, contexts[at])
        reward = np.array([rewards * (means[arm] + rng.standard_normal())])
        sums = ridge_sums.add(sums, taught, reward, np.array([True]))
    return arms, found.scores, (sums, noise_of(sums, spread=spread))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), length=POWERS, value=POWERS, bounded=st.booleans(), within=st.booleans())
def test_choices_do_not_depend_on_units(*, seed, length, value, bounded, within):
    """To the bit: features are multiplied by a power of two, rewards and their bounds by another."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((50, 4))
    means = features @ rng.standard_normal(4)
    spread, contexts = (2.0 if bounded else None), (rng.standard_normal((60, 2)) if within else None)
    plain = choices(features, means, spread=spread, contexts=contexts)
    longer, larger = 2.0**length, 2.0**value
    found = choices(
        longer * features, means, rewards=larger, spread=spread and larger * spread, contexts=contexts
    )
    assert found[0] == plain[0]
    assert found[1].tobytes() == (larger * plain[1]).tobytes()
    assert found[2][1] == larger * plain[2][1]
    assert scales.mean_square(found[2][0]) == longer**2 * scales.mean_square(plain[2][0])


@pytest.mark.rest
def test_discounted_sums_are_taken_as_they_are():
    features, values = some(2)
    own, others = fold(features[:10], values[:10]), fold(features[10:], values[10:])
    old = scaled(own, 0.25)
    left = old.squares - old.moment @ posterior_of(old).theta
    assert noise_of(old) ** 2 == pytest.approx(left / 2.5)
    assert scales.ridge(old, otherwise=1.0) == scales.ridge(own, otherwise=1.0)
    assert noise_of(minus(plus(own, others), others)) == pytest.approx(noise_of(own), rel=1e-9)


@pytest.mark.rest
@pytest.mark.parametrize("spread", [None, 0.5])
def test_where_nothing_says_how_large_rewards_are_the_spread_is_the_noise(spread):
    expected = 1.0 if spread is None else spread
    unknown = replace(fold(*some(4)), squares=math.nan)
    too_large = fold(np.eye(3), np.full(3, 1e200))
    for sums in (ridge_sums.empty(3), unknown, too_large):
        assert scales.noise(sums, np.zeros(3), spread=spread) == expected
    zeros = fold(np.eye(3), np.zeros(3))
    assert noise_of(zeros, spread=spread) == expected
    assert scales.ridge(ridge_sums.empty(3), otherwise=7.0) == 7.0
    assert scales.ridge(fold(np.zeros((2, 3)), np.ones(2)), otherwise=7.0) == 7.0


@pytest.mark.rest
def test_rounding_leaves_a_noise_above_zero():
    sums = replace(fold(*some(5)), squares=1e-30)
    assert noise_of(sums) > 0.0


@pytest.mark.rest
@pytest.mark.parametrize("left", [0.0, -1e-18, -1e-3])
def test_what_rounding_leaves_below_nothing_is_taken_for_a_small_share_of_the_rewards(left):
    share = scales.noise_of(4.0, left, 3.0, spread=None) ** 2 * 3.0 / 4.0
    assert share == pytest.approx(2.0**-40)


@pytest.mark.rest
def test_exploration_grows_to_a_half_where_rewards_have_little_noise():
    half_way = (0.25 + 0.5) / 2
    grown = [exploration_at(0.25, ratio) for ratio in (0.0, LITTLE_NOISE, 1e9)]
    assert grown == [0.25, half_way, pytest.approx(0.5)]
    for least in (0.5, 0.5625, 16.0):  # as large already
        assert exploration_at(least, LITTLE_NOISE) == least


@pytest.mark.rest
def test_a_posterior_is_in_the_unit_of_the_noise():
    sums = fold(*some(7))
    known = scales.Scales(None, otherwise=7.0, learns_noise=True, spread=2.0).posterior(sums)
    plain = scales.Scales(scales.ridge(sums, otherwise=7.0)).posterior(sums)
    assert (plain.sigma, known.ridge) == (1.0, plain.ridge)
    np.testing.assert_array_equal(known.theta, plain.theta)
    assert known.sigma == scales.noise(sums, plain.theta, spread=2.0)
    np.testing.assert_array_equal(known.root, plain.root * known.sigma)
    assert not known.root.flags.writeable


@pytest.mark.rest
@pytest.mark.parametrize(
    ("made", "begins"),
    [
        (scales.Scales(2.0), (2.0, 1.0)),
        (scales.Scales(None, 3.0, learns_noise=True), (3.0, 1.0)),
        (scales.Scales(None, 3.0, learns_noise=True, spread=4.0), (3.0, 4.0)),
    ],
)
def test_what_a_learner_begins_with(made: scales.Scales, begins: tuple[float, float]):
    known = made.posterior(ridge_sums.empty(3))
    assert begins == (known.ridge, known.sigma)
