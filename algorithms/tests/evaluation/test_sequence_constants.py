"""Every constant of the intervals, against the sources' statements computed in another way.

Nothing here is drawn: a one-sided quantile, a level that is not shared or a factor of two changes a number,
and the test fails always.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from shortlist.evaluation import asymptotic_confidence_sequence as asymptotic
from shortlist.evaluation import confidence_sequence as bounded
from shortlist.evaluation import moments
from shortlist.evaluation.asymptotic_confidence_sequence import Unbounded
from shortlist.evaluation.estimates import around

pytestmark = pytest.mark.rest

ALPHAS = (0.3, 0.05, 1e-4)


def mixture(s, v, rho):
    """Howard et al.: the mean over lambda of exp(lambda s + (log(1 - lambda) + lambda) v), by quadrature."""

    def density(x):
        return (1 - x) ** (rho - 1) * math.exp(-rho * (1 - x))

    def mixed(x):
        return density(x) * math.exp(x * s + (math.log1p(-x) + x) * v)

    peak = min(max(s / (v + s + 1), 0.01), 0.99)
    points = {"points": [peak / 2, peak, (1 + peak) / 2], "limit": 200}
    return integrate.quad(mixed, 0, 1, **points)[0] / integrate.quad(density, 0, 1, **points)[0]


def rho_of(alpha, at):
    """About where a normal mixture is tightest: Howard et al., Equation 25 (with alpha for one side)."""
    return at / (2 * math.log(1 / alpha) + math.log(1 + 2 * math.log(1 / alpha)))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize(("count", "spread"), [(1.0, 0.25), (40.0, 9.0), (900.0, 120.0)])
def test_each_side_of_a_bounded_interval_fails_with_half_of_alpha(count, spread, alpha):
    (half,) = bounded.radius(np.array([count]), np.array([spread]), alpha=alpha)
    assert mixture(half * count, spread, rho_of(alpha / 2, 250.0)) == pytest.approx(2 / alpha, rel=1e-5)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_bounded_interval_is_nearly_tightest_where_it_says(alpha):
    """V_t = 250: no other rho of a grid is narrower there by more than a hundredth."""
    tuned = bounded.boundary_of(np.array([250.0]), alpha)

    def other(rho):
        log = math.log(1 / alpha)
        low, high = 0.0, 1e4
        while high - low > 1e-6:
            middle = (low + high) / 2
            value = bounded.log_mixture(np.array([middle]), np.array([250.0]), rho)[0][0]
            low, high = (middle, high) if value < log else (low, middle)
        return high

    own = rho_of(alpha, 250.0)
    grid = [other(own * factor) for factor in (0.1, 0.3, 0.6, 0.8, 1.25, 1.6, 3.0, 10.0)]
    assert tuned[0] <= 1.01 * min(grid)
    assert max(grid[0], grid[-1]) > 1.1 * tuned[0]


def test_a_bounded_interval_is_that_of_its_level_around_the_mean():
    group = bounded.add(bounded.start(-1.0, 3.0), np.tile([0.0, 2.0, 1.0], 400))
    for level in (0.6, 0.95, 0.999):
        low, high = group.interval(level=level)
        half = 4 * bounded.radius(np.array([1_200.0]), np.array([group.spread]), alpha=1 - level)[0]
        assert (low, high) == pytest.approx((1 - half, 1 + half))


def test_a_difference_of_bounded_groups_gives_each_half_of_what_may_fail():
    one = bounded.add(bounded.start(0.0, 1.0), np.tile([0.0, 1.0, 1.0], 300))
    other = bounded.add(bounded.start(0.0, 1.0), np.tile([0.0, 1.0], 200))
    for level, each in ((0.9, 0.95), (0.5, 0.75), (0.99, 0.995)):
        (low, high), (other_low, other_high) = one.interval(level=each), other.interval(level=each)
        found = bounded.difference(one, other, level=level)
        assert found == pytest.approx((low - other_high, high - other_low))


# For rewards without bounds


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_asymptotic_radius_is_theorem_2_2_tuned_at_a_thousand_rewards(alpha):
    rho = math.sqrt((math.log(1 / alpha**2) + math.log(1 + math.log(1 / alpha**2))) / 1_000)

    def theorem(t, sigma, rho):
        inner = t * rho**2 + 1
        return sigma * math.sqrt(2 * inner / (t * rho) ** 2 * math.log(math.sqrt(inner) / alpha))

    for t, sigma in itertools.product((100, 1_000, 10**6), (0.2, 1.0, 40.0)):
        found = asymptotic.radius(t, sigma**2 / t, alpha=alpha)
        assert found == pytest.approx(theorem(t, sigma, rho))
    grid = [theorem(1_000, 1.0, rho * factor) for factor in (0.3, 0.7, 0.9, 1.1, 1.4, 3.0)]
    assert theorem(1_000, 1.0, rho) <= 1.01 * min(grid)


def test_asymptotic_intervals_have_the_unbiased_variance_of_a_mean():
    values, others = np.sin(np.arange(150.0)), 3.0 * np.cos(np.arange(400.0))
    one, other = (asymptotic.add(Unbounded(), some) for some in (values, others))
    level = 0.9
    own = values.var(ddof=1) / 150
    half = asymptotic.radius(150, own, alpha=1 - level)
    assert one.interval(level=level) == pytest.approx((values.mean() - half, values.mean() + half))
    half = asymptotic.radius(550, own + others.var(ddof=1) / 400, alpha=1 - level)
    apart = values.mean() - others.mean()
    assert asymptotic.difference(one, other, level=level) == pytest.approx((apart - half, apart + half))


def test_an_asymptotic_interval_waits_for_a_hundred_rewards():
    for count, has in ((99, False), (100, True)):
        group = asymptotic.add(Unbounded(), np.sin(np.arange(float(count))))
        assert (group.interval() is not None) is has


# Of one look


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_an_estimate_s_interval_is_two_sided_and_its_variance_unbiased(level):
    rows = np.column_stack((np.sin(np.arange(30.0)), np.cos(np.arange(30.0)) ** 3))
    gradient = np.array([2.0, -0.5])
    tiny = 1e-6  # a step so small that nothing but the variance counts
    found = around(1.25, moments.of(rows), gradient, up=tiny, down=tiny, level=level)
    half = stats.norm.isf((1 - level) / 2) * stats.sem(rows @ gradient)
    assert found.interval == pytest.approx((1.25 - half, 1.25 + half))
    low, high = around(1.25, moments.of(rows), gradient, up=3.0, down=2.0, level=level).interval
    spread = stats.sem(rows @ gradient) * 30
    for reached, step in ((high - 1.25, 3.0), (1.25 - low, 2.0)):
        count = (spread / step) ** 2
        limit = stats.chi2.isf((1 - level) / 2, 2 * (count + 1)) / 2 - count
        assert reached * 30 == pytest.approx(step * limit)
