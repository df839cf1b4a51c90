"""The net: how far a query is moved, how many points there are, how many solvers that needs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.errors import InvalidArgument
from shortlist.mips.epsilon_net import FAILURE, log_points, nearest_point, rounding_error, solvers_needed


@given(dim=st.integers(1, 40), seed=st.integers(0, 2**32), epsilon=st.floats(1e-6, 1.0))
def test_a_query_moves_by_half_a_step_at_most(dim, seed, epsilon):
    rng = np.random.default_rng(seed)
    query = rng.standard_normal(dim)
    query /= max(1.0, np.linalg.norm(query))
    point = nearest_point(query, epsilon=epsilon)
    multiples = point / (epsilon / dim)
    assert np.allclose(multiples, np.rint(multiples), rtol=0, atol=1e-6)
    assert np.linalg.norm(point - query) <= rounding_error(dim, epsilon) * (1 + 1e-9)
    assert np.linalg.norm(point - query) <= epsilon
    arms = rng.standard_normal((50, dim))
    arms /= np.maximum(1.0, np.linalg.norm(arms, axis=1))[:, None]
    assert np.abs(arms @ point - arms @ query).max() <= epsilon
    assert np.array_equal(nearest_point(point, epsilon=epsilon), nearest_point(query, epsilon=epsilon))


@pytest.mark.rest
@pytest.mark.parametrize(("dim", "epsilon"), [(1, 0.5), (1, 0.37), (2, 0.5), (2, 0.9), (3, 1.0)])
def test_every_query_is_rounded_to_one_of_the_counted_points(dim, epsilon):
    corners = np.array(list(itertools.product(np.linspace(-1, 1, 101 if dim < 3 else 31), repeat=dim)))
    inside = corners[np.linalg.norm(corners, axis=1) <= 1]
    points = {tuple(np.rint(nearest_point(q, epsilon=epsilon) * dim / epsilon)) for q in inside}
    assert len(points) <= math.exp(log_points(dim, epsilon)) + 1e-6
    if dim == 1:
        assert len(points) == round(math.exp(log_points(dim, epsilon)))


@pytest.mark.parametrize(("dim", "epsilon", "delta"), [(1, 1.0, 0.5), (16, 0.01, 0.05), (64, 1e-4, 1e-6)])
def test_the_solvers_are_as_many_as_the_union_bound_needs(dim, epsilon, delta):
    kappa = solvers_needed(dim, epsilon=epsilon, delta=delta)
    fail = log_points(dim, epsilon) + np.array([kappa, kappa - 1]) * math.log(FAILURE)
    assert fail[0] <= math.log(delta) + 1e-9 < fail[1] + 1e-9
    printed = dim * math.log(2 * dim / (epsilon * delta))
    assert kappa <= max(printed, 4)


@pytest.mark.rest
def test_a_step_too_fine_for_float64_leaves_the_query():
    query = np.array([0.3, -0.7])
    assert np.array_equal(nearest_point(query, epsilon=1e-300), query)


@pytest.mark.rest
@pytest.mark.parametrize("epsilon", [0.0, -1.0, np.nan, np.inf])
def test_bad_parameters_are_named(epsilon):
    with pytest.raises(InvalidArgument):
        nearest_point(np.zeros(2), epsilon=epsilon)
    with pytest.raises(InvalidArgument):
        nearest_point(np.array([np.nan]), epsilon=0.1)
    with pytest.raises(InvalidArgument):
        solvers_needed(2, epsilon=0.1, delta=1.0)
