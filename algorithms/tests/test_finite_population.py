"""The bounds against the exact distribution of the sample: every subset, or the hypergeometric law.

Nothing here is drawn, so nothing here can be a false alarm.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from shortlist import finite_population as bounds
from shortlist.errors import InvalidParameter

pytestmark = pytest.mark.rest

LEVELS = (0.3, 1.0, 2.0, 5.0, 9.0)
SIZES = ((20, (1, 2, 5, 10, 11, 19)), (400, (3, 40, 199, 201, 320, 399)), (20_000, (60, 2_000, 15_000)))
SHARES = (0.0, 0.05, 0.3, 0.5, 0.9)


def hoeffding(t, size, *, values, deviation, level):
    found = bounds.hoeffding_serfling(t, size, spread=values.max() - values.min(), level=level)
    return np.full_like(deviation, found)


def bernstein(t, size, *, values, deviation, level):
    root, largest = math.sqrt((values**2).mean()), np.abs(values).max()
    found = bounds.bernstein_serfling(t, size, root=np.array([root]), largest=largest, level=level)
    return np.full_like(deviation, found[0])


def empirical(t, size, *, values, deviation, level):
    spread = values.max() - values.min()
    return bounds.empirical_bernstein_serfling(t, size, deviation=deviation, spread=spread, level=level)


BOUNDS = {"hoeffding": hoeffding, "bernstein": bernstein, "empirical": empirical}


def excess(bound, values, drawn, t, *, level, factor=1.0):
    """By what factor either side fails more often than exp(-level). ``drawn``: means, deviations, weights."""
    means, deviations, weights = drawn
    radius = factor * bound(t, len(values), values=values, deviation=deviations, level=level)
    miss, slack = means - values.mean(), 1e-12 * (1.0 + np.abs(values).max())
    sides = (weights[miss > radius + slack].sum(), weights[-miss > radius + slack].sum())
    return max(sides) / math.exp(-level)


def two_valued(size, share, offset=0.0):
    ones = round(share * size)
    return np.repeat((1.0 + offset, offset), (ones, size - ones))


def hypergeometric(values, t):
    """Means, deviations and probabilities of a sample of ``t`` from two values that differ by 1."""
    low, ones = values.min(), int((values > values.min()).sum())
    share = np.arange(t + 1) / t
    return low + share, np.sqrt(share * (1.0 - share)), hypergeometric_weights(len(values), ones, t)


@cache
def hypergeometric_weights(size, ones, t):
    return stats.hypergeom.pmf(np.arange(t + 1), size, ones, t)


def worst(bound, factor=1.0):
    found = 0.0
    for size, samples in SIZES:
        for t in samples:
            for share in SHARES:
                values = two_valued(size, share, offset=-share)
                drawn = hypergeometric(values, t)
                for level in LEVELS:
                    found = max(found, excess(bound, values, drawn, t, level=level, factor=factor))
    return found


@pytest.mark.parametrize("name", BOUNDS)
def test_a_bound_holds_for_two_values_of_any_share(name):
    assert worst(BOUNDS[name]) <= 1.0


@pytest.mark.parametrize(("name", "factor"), [("hoeffding", 0.8), ("bernstein", 0.65), ("empirical", 0.4)])
def test_a_smaller_radius_does_not_hold(name, factor):
    assert worst(BOUNDS[name], factor) > 1.0


@pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (0.5, False)])
def test_the_root_mean_square_is_bounded(factor, holds):
    """``factor`` scales what is added to that of the sample."""
    found = 0.0
    for size, samples in SIZES:
        for t in samples:
            for share in SHARES:
                values = two_valued(size, share)
                means, _, weights = hypergeometric(values, t) if share else (np.zeros(1), None, np.ones(1))
                for level in LEVELS:
                    bound = bounds.root_mean_square(t, means, largest=1.0, level=level)
                    bound = np.sqrt(means) + factor * (bound - np.sqrt(means))
                    missed = bound < math.sqrt(values.mean()) - 1e-12
                    found = max(found, weights[missed].sum() / math.exp(-level))
    assert (found <= 1.0) == holds


@settings(max_examples=150)
@given(
    values=st.lists(st.floats(-4.0, 4.0), min_size=1, max_size=9).map(np.array),
    t=st.integers(1, 9),
    level=st.floats(0.05, 6.0),
)
@example(values=np.array([1.0, 0.0]), t=1, level=0.6)
def test_a_bound_holds_over_all_subsets(values, t, level):
    t = min(t, len(values))
    samples = np.array(list(combinations(values, t)))
    weights = np.full(len(samples), 1.0 / len(samples))
    drawn = (samples.mean(axis=1), samples.std(axis=1), weights)
    for bound in BOUNDS.values():
        assert excess(bound, values, drawn, t, level=level) <= 1.0 + 1e-9


@pytest.mark.parametrize("name", BOUNDS)
def test_nothing_is_left_to_chance_at_the_end(name):
    values = np.array([0.0, 0.5, 1.0])
    assert BOUNDS[name](3, 3, values=values, deviation=np.ones(2), level=9.0).tolist() == [0.0, 0.0]


@given(u=st.floats(0.0, 1e12), population=st.integers(1, 10**7))
@example(u=1e300, population=5)
@example(u=math.inf, population=5)
def test_the_sample_size_is_large_enough_and_hardly_larger(u, population):
    found = bounds.sample_size(u, population)
    assert 0.0 <= found <= population
    t = max(1, math.ceil(found))
    assert bounds.rho(t, population) * u <= t * (1.0 + 1e-9) or t == population
    if t > 3 and u < 1e11:
        assert bounds.rho(t - 3, population) * u > t - 3


@pytest.mark.parametrize("t", [0, -1, 6])
def test_a_sample_is_part_of_the_population(t):
    for bound in (bounds.rho, bounds.variance_factor):
        with pytest.raises(InvalidParameter, match="t must be"):
            bound(t, 5)
