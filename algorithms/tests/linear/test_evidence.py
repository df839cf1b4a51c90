"""The ratio of prior variance to noise: the mode of the probability of the rewards, row by row."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folds import fold
from shortlist.linear import evidence, ridge_sums
from shortlist.linear.discounted_sums import scaled
from shortlist.linear.scales import Scales, mean_square
from shortlist.linear.signals import Weighing, known, weighed

BY_EVIDENCE = Scales(None, 7.0, learns_noise=True, least_ratio=0.0)


def some(seed, rows=30, dim=3, noise=0.5):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((rows, dim)) * np.exp(rng.standard_normal(dim))
    return features, features @ rng.standard_normal(dim) + noise * rng.standard_normal(rows)


def ratio(sums, spreads=()):
    return evidence.ratio(sums, mean_square=mean_square(sums), spreads=spreads)


def of_rows(features, values, weights=None):
    """The logarithm of the probability of rewards that are N(0, sigma^2 (I + rho X X^T)), for each ratio.

    sigma is the one for which it is largest.
    """
    count, length = len(features), (features**2).sum() / len(features)
    result = []
    for share in evidence.RATIOS:
        covariance = np.eye(count) + share / length * features @ features.T
        left = values @ np.linalg.solve(covariance, values)
        result.append(-np.linalg.slogdet(covariance)[1] / 2 - count / 2 * math.log(left / count))
    return np.array(result)


def mode(values):
    return evidence.RATIOS[(values - (np.log(evidence.RATIOS / 4.0) / 3.0) ** 2 / 2).argmax()]


def with_reward_of_its_own(features, values, spread=None):
    """One more row, of the mean length and in a direction of its own, whose reward is the spread."""
    spread = 3.0 * math.sqrt((values**2).mean()) if spread is None else spread
    rows = np.zeros((len(features) + 1, features.shape[1] + 1))
    rows[:-1, :-1] = features
    rows[-1, -1] = math.sqrt((features**2).sum() / len(features))
    return rows, np.append(values, spread)


CASES = {
    "seed": st.integers(0, 10**6),
    "rows": st.integers(1, 40),
    "dim": st.integers(1, 6),
    "noise": st.sampled_from([0.01, 0.3, 3.0]),
}


@settings(max_examples=60, deadline=None)
@given(**CASES)
def test_it_is_the_mode_of_the_probability_of_the_rewards(seed, rows, dim, noise):
    features, values = some(seed, rows, dim, noise)
    expected = mode(of_rows(*with_reward_of_its_own(features, values)))
    assert ratio(fold(features, values)) == expected
    posterior = BY_EVIDENCE.posterior(fold(features, values))
    sums = fold(features, values)
    left = sums.squares - sums.moment @ posterior.theta + 9.0 * sums.squares / rows / (1.0 + expected)
    assert posterior.sigma**2 == pytest.approx(left / (rows + 1), rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(**CASES, spread=st.sampled_from([0.1, 2.0, 50.0]))
def test_bounds_of_rewards_count_as_one_more_reward(seed, rows, dim, noise, spread):
    features, values = some(seed, rows, dim, noise)
    expected = mode(of_rows(*with_reward_of_its_own(features, values, spread)))
    sums = fold(features, values)
    assert ratio(sums, [spread]) == expected
    posterior = replace(BY_EVIDENCE, spread=spread, spreads=(spread,)).posterior(sums)
    assert posterior.ridge == pytest.approx(mean_square(sums) / expected)
    left = sums.squares - sums.moment @ posterior.theta + spread**2 / (1.0 + expected)
    assert posterior.sigma**2 == pytest.approx(left / (rows + 1), rel=1e-6)


@pytest.mark.rest
@settings(max_examples=30, deadline=None)
@given(**CASES)
def test_signals_share_the_ratio_that_explains_them_all(seed, rows, dim, noise):
    features, values = some(seed, rows, dim, noise)
    others = np.random.default_rng(seed).standard_normal(rows)
    sums = ridge_sums.of(features, np.column_stack((values, others)), np.ones(rows, dtype=np.bool_))
    of_each = [of_rows(*with_reward_of_its_own(features, each)) for each in (values, others)]
    assert ratio(sums) == mode(of_each[0] + of_each[1])
    silent = ridge_sums.of(features, np.column_stack((values, 0 * others)), np.ones(rows, dtype=np.bool_))
    assert ratio(silent) == ratio(fold(features, values))


@pytest.mark.rest
@pytest.mark.parametrize("bounds", [(None, None), (2.0, None), (2.0, 0.5)])
def test_one_signal_of_two_is_drawn_as_a_learner_of_it_alone_with_the_shared_ratio(bounds):
    features, values = some(1, rows=25)
    sums = ridge_sums.of(features, np.column_stack((values, 0 * values)), np.ones(25, dtype=np.bool_))
    terms = replace(BY_EVIDENCE, spreads=bounds)
    first = weighed(sums, terms, Weighing((1.0, 0.0), (None, None), bounds))
    alone = replace(terms, spread=bounds[0], spreads=bounds[:1]).posterior(fold(features, values))
    np.testing.assert_allclose(first.theta, alone.theta)
    assert (first.ridge, first.sigma) == pytest.approx((alone.ridge, alone.sigma))
    assert known(sums, terms).ridge == first.ridge


@pytest.mark.rest
@pytest.mark.parametrize("spread", [None, 0.5])
def test_where_rewards_say_nothing_arms_differ_by_twice_the_noise(spread):
    terms = replace(BY_EVIDENCE, spread=spread, spreads=(spread,))
    zeros, unknown = fold(np.eye(3), np.zeros(3)), replace(fold(*some(2)), squares=math.nan)
    for sums in (zeros, unknown):
        posterior = terms.posterior(sums)
        assert (posterior.ridge, posterior.sigma) == (mean_square(sums) / 4.0, spread or 1.0)
    begins_with = terms.posterior(ridge_sums.empty(3))
    assert (begins_with.ridge, begins_with.sigma, begins_with.ratio) == (7.0, spread or 1.0, 4.0)
    without_length = fold(np.zeros((2, 3)), np.ones(2))
    assert terms.posterior(without_length).ridge == 7.0
    one = fold(np.array([[3.0, 4.0]]), np.array([-0.25]))
    assert terms.posterior(one).ridge == 25.0 / 4.0


@pytest.mark.rest
def test_what_has_faded_keeps_its_noise_and_loses_what_it_says_of_the_ratio():
    features, values = some(3, rows=60, noise=0.01)
    sums = fold(features, values)
    assert ratio(sums) > 100.0
    faded = scaled(sums, 2.0**-40)
    assert ratio(faded) == 4.0
    twice = fold(np.concatenate((features, features)), np.concatenate((values, values)))
    assert ratio(scaled(twice, 0.5)) == ratio(sums)


@pytest.mark.rest
def test_no_ratio_is_below_the_least():
    sums = fold(*some(4, noise=50.0))
    assert ratio(sums) == 4.0
    assert replace(BY_EVIDENCE, least_ratio=8.0).fit(sums).ridge == mean_square(sums) / 8.0
    assert replace(BY_EVIDENCE, ridge=3.0).posterior(sums).ridge == 3.0


@pytest.mark.parametrize("bounds", [None, 2.0])
def test_a_ridge_that_is_given_leaves_noise_and_unit_to_the_rewards(bounds):
    """As if the ratio of largest evidence were the one that this ridge means."""
    sums = fold(*some(4))
    ours = replace(BY_EVIDENCE, spread=bounds, spreads=(bounds,))
    by_ratio = ours.posterior(sums)
    given_it = replace(ours, ridge=by_ratio.ridge).posterior(sums)
    assert (given_it.sigma, given_it.unit) == pytest.approx((by_ratio.sigma, by_ratio.unit), rel=1e-12)
    other = replace(ours, ridge=9.0 * by_ratio.ridge).posterior(sums)
    left = sums.squares - sums.moment @ other.theta
    square = 9.0 * sums.squares / sums.weight if bounds is None else bounds**2
    share = 1.0 / (1.0 + mean_square(sums) / other.ridge)
    assert other.sigma**2 == pytest.approx((left + share * square) / (sums.weight + 1.0))
    begins_with = replace(ours, ridge=3.0).posterior(ridge_sums.empty(3))
    assert (begins_with.ridge, begins_with.sigma) == (3.0, bounds or 1.0)
    assert replace(ours, ridge=3.0, learns_noise=False).posterior(sums).unit == 1.0


@pytest.mark.rest
@pytest.mark.parametrize(("noise", "low", "high"), [(0.01, 100.0, 1e8), (0.3, 4.01, 60.0), (30.0, 4.0, 4.0)])
def test_more_than_256_numbers_are_told_by_two_moments(noise, low, high):
    rng = np.random.default_rng(5)
    features = rng.standard_normal((900, 300)) / math.sqrt(300)
    values = features @ rng.standard_normal(300) + noise * rng.standard_normal(900)
    sums = ridge_sums.of(features, values, np.ones(900, dtype=np.bool_))
    gram, length = features.T @ features, (features**2).sum() / 900
    squares, moments = (values**2).sum() / length, ((values @ features) ** 2).sum() / length**2
    above = 900 * moments / squares * length - 900 * length + 4 * length
    spectrum = (gram**2).sum() / length
    expected = max(above / (spectrum - 900 * moments / squares * length + 4 * length), 4.0)
    found = ratio(sums)
    assert low <= found <= high
    if found < evidence.RATIOS[-1]:
        assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.rest
def test_the_unit_counts_what_is_unknown_of_an_arm():
    rng = np.random.default_rng(6)
    sums = fold(*some(6))
    posterior, length = BY_EVIDENCE.posterior(sums), mean_square(sums)
    arms = rng.standard_normal((100_000, 3))
    arms *= math.sqrt(length) / np.linalg.norm(arms, axis=1, keepdims=True)
    widths = ((arms @ posterior.root) ** 2).sum(axis=1)
    assert posterior.unit**2 == pytest.approx(posterior.sigma**2 + widths.mean(), rel=0.02)
    assert BY_EVIDENCE.posterior(ridge_sums.empty(3)).unit == pytest.approx(math.sqrt(5.0))
    older = Scales(None, learns_noise=True).posterior(sums)
    assert (older.unit, older.ratio) == (older.sigma, 0.0)
    of_signals = known(sums, BY_EVIDENCE).weighed(Weighing((2.0,), (None,), (None,)), BY_EVIDENCE)
    assert of_signals.unit == pytest.approx(2.0 * posterior.unit)
    assert of_signals.ratio == posterior.ratio == pytest.approx(ratio(sums))
