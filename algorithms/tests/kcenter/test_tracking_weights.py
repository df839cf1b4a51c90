"""The proportions of NS-TandS are optimal, and the threshold is the formula it claims to be."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import zeta

from shortlist.kcenter import tracking_weights
from shortlist.kcenter.ns_tands import comparisons, exploration
from shortlist.kcenter.tracking_weights import rate, weights

pytestmark = pytest.mark.rest

PAPER = np.array([[0.45, 0.5, 0.55], [0.35, 0.4, 0.6], [0.3, 0.47, 0.52]])


def gaps(means):
    """G of the boxes (rows of ``means``), the first of which is best."""
    return (means[0][:, None] - means[1:].min(axis=1)) ** 2 / 2.0


def test_the_paper_s_example_is_solved_better_than_printed():
    found = weights(gaps(PAPER))
    np.testing.assert_allclose(found[0], [0.3666, 0.1051, 0.0526], atol=2e-4)
    np.testing.assert_allclose(found[1], [0.3703, 0.1054], atol=2e-4)
    best, printed = rate(gaps(PAPER), *found), ([0.3633, 0.1057, 0.0532], [0.3738, 0.1040])
    assert best >= 9.2e-4
    assert best > 1.01 * rate(gaps(PAPER), *map(np.array, printed))


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    p=st.integers(1, 9),
    r=st.integers(1, 30),
    spread=st.floats(0.0, 6.0),
    scale=st.floats(1e-12, 1e6),
)
def test_the_optimality_conditions_hold_for_any_gaps(seed, p, r, spread, scale):
    """Duality: for multipliers l >= 0 summing to 1, f* <= (max over arms of the mean marginal rate).

    For every l the value sum_ij l_ij F_ij(w, u) is concave and homogeneous, so its largest over the simplex
    bounds f*; the bound is taken at the random point that a few rounds of reweighting find.
    """
    rng = np.random.default_rng(seed)
    matrix = scale * 10.0 ** (-spread * rng.random((p, r)))
    w, u = weights(matrix)
    assert (w > 0).all()
    assert (u > 0).all()
    assert w.sum() + u.sum() == pytest.approx(1.0)
    value = rate(matrix, w, u)
    for _ in range(30):
        other_w, other_u = w * np.exp(0.3 * rng.standard_normal(p)), u * np.exp(0.3 * rng.standard_normal(r))
        total = other_w.sum() + other_u.sum()
        assert rate(matrix, other_w / total, other_u / total) <= value * (1 + 2e-4)


@pytest.mark.parametrize("x", [0.1, 1.0, 4.4, 8.0, 20.0])
def test_the_exploration_function_is_the_least_over_a_grid(x):
    part = np.linspace(0.5, 1.0, 200_002)[1:-1]
    shape = 2 * part - 2 * part * np.log(4 * part) + np.log(zeta(2 * part)) - 0.5 * np.log(1 - part)
    assert exploration(x) == pytest.approx(float(((shape + x) / part).min()), rel=1e-6)
    assert exploration(x) > x


def test_comparisons_counts_those_on_the_path_of_greedy():
    """At most (n - p - 1) p comparisons in the stage with p centres, p = 1..k-1."""
    for n, k in [(2, 2), (5, 3), (30, 10)]:
        assert comparisons(n, k, 0.0) >= sum((n - p - 1) * p for p in range(1, k))
    assert comparisons(30, 3, 0.1) == (30 * 29 // 2) ** 2
    assert comparisons(1, 1, 0.0) == 1


# The solver: one step of Newton's method, written out pair by pair


def barrier(matrix, a, b, sharpness):
    """What a step is to decrease."""
    total = sharpness * (sum(1 / one for one in a) + sum(1 / one for one in b))
    return total - sum(math.log(matrix[j, i] - a[j] - b[i]) for j in range(len(a)) for i in range(len(b)))


def inside(seed):
    """Gaps, and a point at which every constraint holds."""
    rng = np.random.default_rng(seed)
    p, r = int(rng.integers(1, 5)), int(rng.integers(1, 6))
    a, b = rng.uniform(0.1, 0.4, p), rng.uniform(0.1, 0.5, r)
    return a[:, None] + b + rng.uniform(0.05, 2.0, (p, r)), a, b, float(10 ** rng.uniform(-1, 2))


@pytest.mark.parametrize("seed", range(12))
def test_a_step_is_newtons(seed, monkeypatch):
    matrix, a, b, sharpness = inside(seed)
    p, r = matrix.shape
    gradient = np.array([-sharpness / one**2 for one in (*a, *b)])
    hessian = np.diag([2 * sharpness / one**3 for one in (*a, *b)])
    for j in range(p):
        for i in range(r):
            slack, pair = matrix[j, i] - a[j] - b[i], np.zeros(p + r)
            pair[[j, p + i]] = 1.0
            gradient += pair / slack
            hessian += np.outer(pair, pair) / slack**2
    newton = -np.linalg.solve(hessian, gradient)
    seen = []

    def stays(*given):
        seen.append(given)
        return 0.0

    monkeypatch.setattr(tracking_weights, "step_length_of", stays)
    left = tracking_weights.centered_weights(matrix, a, b, sharpness)
    ((_, point, step, of, decrease),) = seen
    assert [part.tolist() for part in (*left, *point)] == [part.tolist() for part in (a, b, a, b)]
    assert np.concatenate(step) == pytest.approx(newton)
    assert (of, decrease) == (sharpness, pytest.approx(-gradient @ newton))


@pytest.mark.parametrize("seed", range(12))
def test_a_step_is_halved_until_it_decreases_enough(seed):
    """At least a quarter of what a straight line would; a point outside is never enough."""
    matrix, a, b, sharpness = inside(seed)
    rng = np.random.default_rng(seed)
    before = barrier(matrix, a, b, sharpness)
    assert tracking_weights.objective_of(matrix, a, b, sharpness) == pytest.approx(before)
    for reach, decrease in ((0.01, 0.02), (0.3, 0.1), (5.0, 1e-3), (5.0, 3.0), (0.3, 1e9)):
        step_a, step_b = reach * rng.standard_normal(len(a)), reach * rng.standard_normal(len(b))
        expected = 0.0
        for halvings in range(40):
            length = 0.5**halvings
            new_a, new_b = a + length * step_a, b + length * step_b
            if min(*new_a, *new_b, *(matrix - new_a[:, None] - new_b).ravel()) <= 0:
                continue
            if barrier(matrix, new_a, new_b, sharpness) <= before - decrease * length / 4:
                expected = length
                break
        found = tracking_weights.step_length_of(matrix, (a, b), (step_a, step_b), sharpness, decrease)
        assert found == expected


def test_a_point_at_an_edge_is_outside():
    gap, half = np.array([[1.0]]), np.array([0.5])
    assert np.isfinite(tracking_weights.objective_of(gap, half, half - 1e-9, 1.0))
    for a, b in (
        (half, half),
        (half * 0, half),
        (half, half * 0),
        (half * 2, half),
        (-half, half),
        (half, -half),
    ):
        assert tracking_weights.objective_of(gap, a, b, 1.0) == np.inf
