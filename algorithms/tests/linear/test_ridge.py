"""Ridge regression against exact rational arithmetic, for any order, any batching and a million rows."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from folds import fold
from shortlist.errors import InvalidParameter, InvalidShape, NonFinite
from shortlist.linear import ridge, ridge_sums


def exact_theta(gram, moment, strength):
    """Solve (strength I + gram) theta = moment over the rationals, by elimination."""
    dim = len(moment)
    rows = [
        [gram[i][j] + (Fraction(strength) if i == j else 0) for j in range(dim)] + [moment[i]]
        for i in range(dim)
    ]
    for i in range(dim):
        rows[i] = [entry / rows[i][i] for entry in rows[i]]
        for j in range(dim):
            if j != i:
                factor = rows[j][i]
                rows[j] = [a - factor * b for a, b in zip(rows[j], rows[i], strict=True)]
    return np.array([float(row[-1]) for row in rows])


def exact_sums(features, values, first, times=1):
    dim = features.shape[1]
    gram = [[Fraction(0)] * dim for _ in range(dim)]
    moment = [Fraction(0)] * dim
    for x, r, counted in zip(features.tolist(), values.tolist(), first.tolist(), strict=True):
        xs = [Fraction(entry) for entry in x]
        for i in range(dim):
            moment[i] += times * xs[i] * Fraction(r)
            for j in range(dim):
                gram[i][j] += times * xs[i] * xs[j] if counted else 0
    return gram, moment


def relative_error(found, wanted):
    return np.linalg.norm(found - wanted) / np.linalg.norm(wanted)


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_theta_is_the_closed_form_in_any_order_and_batching(dim):
    rng = np.random.default_rng(3)
    features = rng.standard_normal((300, dim)) * rng.lognormal(0, 2, (300, 1))
    values = rng.standard_normal(300) * 100
    first = rng.random(300) < 0.8
    gram, moment = exact_sums(features, values, first)
    for strength in (1e-3, 1.0, 50.0):
        wanted = exact_theta(gram, moment, strength)
        for trial in range(5):
            order = rng.permutation(300) if trial else np.arange(300)
            cuts = tuple(np.sort(rng.integers(0, 301, trial)))
            sums = fold(features[order], values[order], first[order], cuts)
            assert relative_error(ridge.posterior(sums, ridge=strength).theta, wanted) < 1e-8


@pytest.mark.slow
def test_a_million_rewards_of_one_arm_leave_the_other_directions_exact():
    """Rounding that grew with the rows would show, n-fold, in the directions never tried."""
    arm = np.array([[0.1, 0.7, -0.3]])
    value = np.array([0.1])
    others = np.random.default_rng(0).standard_normal((50, 3)) * 0.1
    seen = np.random.default_rng(1).standard_normal(50)
    sums = fold(np.repeat(arm, 1_000_000, axis=0), np.repeat(value, 1_000_000))
    sums = ridge_sums.add(sums, others, seen, np.ones(50, dtype=bool))
    gram, moment = exact_sums(arm, value, np.array([True]), times=1_000_000)
    more_gram, more_moment = exact_sums(others, seen, np.ones(50, dtype=bool))
    gram = [[a + b for a, b in zip(p, q, strict=True)] for p, q in zip(gram, more_gram, strict=True)]
    moment = [a + b for a, b in zip(moment, more_moment, strict=True)]
    found = ridge.posterior(sums, ridge=1.0)
    assert relative_error(found.theta, exact_theta(gram, moment, 1)) < 1e-8
    assert (sums.gram == sums.gram.T).all()
    # The same rows, added without compensation, are off by far more: the test has power.
    plain = np.cumsum(np.broadcast_to(arm.T @ arm, (1_000_000, 3, 3)), axis=0)[-1]
    plain_moment = np.cumsum(np.broadcast_to(arm[0] * value, (1_000_000, 3)), axis=0)[-1]
    naive = np.linalg.solve(plain + others.T @ others + np.eye(3), plain_moment + others.T @ seen)
    assert relative_error(naive, exact_theta(gram, moment, 1)) > 1e-8


@pytest.mark.parametrize("dim", [1, 3, 16, 40])
def test_factors_and_widths_are_those_of_the_precision(dim):
    rng = np.random.default_rng(dim)
    features, values = rng.standard_normal((3 * dim, dim)), rng.standard_normal(3 * dim)
    found = ridge.posterior(fold(features, values), ridge=0.5)
    precision = 0.5 * np.eye(dim) + features.T @ features
    np.testing.assert_allclose(found.root @ found.root.T, np.linalg.inv(precision), rtol=1e-9, atol=1e-12)
    assert (np.triu(found.root) == found.root).all()
    points = rng.standard_normal((9000, dim))
    wanted = np.sqrt(np.einsum("ij,ij->i", points @ np.linalg.inv(precision), points))
    np.testing.assert_allclose(ridge.widths(found, points), wanted, rtol=1e-9)
    np.testing.assert_allclose(ridge.widths(found, points.astype(np.float32)), wanted, rtol=1e-5)
    assert ridge.widths(found, points[:0]).shape == (0,)


@pytest.mark.parametrize("dim", [1, 3, 16, 40])
def test_one_reward_after_the_other_is_the_posterior_of_their_sums(dim):
    rng = np.random.default_rng(dim)
    features, values = rng.standard_normal((3_000, dim)), rng.standard_normal(3_000)
    features[100:] *= np.geomspace(1.0, 1e-3, dim)
    found = ridge.prior(dim, ridge=0.5)
    for row, value in zip(features, values, strict=True):
        found = ridge.learned(found, row, value)
    wanted = ridge.posterior(fold(features, values), ridge=0.5)
    assert found.ridge == 0.5
    np.testing.assert_allclose(found.theta, wanted.theta, rtol=1e-10, atol=1e-12)
    inverse = wanted.root @ wanted.root.T
    np.testing.assert_allclose(found.root @ found.root.T, inverse, rtol=1e-10, atol=1e-10 * inverse.max())
    np.testing.assert_allclose(ridge.widths(found, features), ridge.widths(wanted, features), rtol=1e-10)
    assert not found.theta.flags.writeable
    assert not found.root.flags.writeable


@pytest.mark.rest
@pytest.mark.parametrize("dim", [1, 2, 16, 64])
@pytest.mark.parametrize("scale", [1e-150, 1e-3, 1.0, 1e6, 1e150])
def test_collinear_features_and_a_tiny_ridge_never_crash(dim, scale):
    rng = np.random.default_rng(5)
    line = rng.standard_normal((1, dim)) * scale
    features = rng.standard_normal((200, 1)) * line + rng.standard_normal((200, dim)) * scale * 1e-12
    sums = fold(features, rng.standard_normal(200))
    for strength in (1e-300, 1e-12, 1.0):
        found = ridge.posterior(sums, ridge=strength)
        assert np.isfinite(found.theta).all()
        assert np.isfinite(found.root).all()
        assert (found.root.diagonal() > 0).all()
        assert found.ridge >= strength
        assert found.ridge in (strength, ridge.rounding_floor(sums.gram))
        if strength >= ridge.rounding_floor(sums.gram):
            assert found.ridge == strength


@pytest.mark.rest
@pytest.mark.parametrize("dim", [1, 2, 16, 300, 1_024])
def test_the_floor_is_twice_what_a_factorisation_asks_for(dim):
    """Higham, Theorem 10.7, for a gram that is itself rounded by at most eps of its largest entry."""
    largest, eps = 7.0, float(np.finfo(np.float64).eps)
    gamma = (dim + 1) * eps / 2 / (1 - (dim + 1) * eps / 2)

    def runs_to_its_end(strength):
        least_eigenvalue = strength - dim * eps * largest
        return least_eigenvalue >= (strength + largest) * dim * gamma / (1 - gamma)

    gram = np.diag(np.linspace(0.0, largest, dim) if dim > 1 else [largest])
    floor = ridge.rounding_floor(gram)
    assert runs_to_its_end(floor / 2)
    assert not runs_to_its_end(floor / 4)


@pytest.mark.rest
def test_sums_that_are_no_gram_matrix_are_refused():
    broken = ridge_sums.RidgeSums(np.array([1.0, 0.0, -9.0, 0.0, 0.0]), np.zeros(5), 1, 1.0)
    assert broken.gram.tolist() == [[1.0, 0.0], [0.0, -9.0]]
    with pytest.raises(InvalidParameter, match="positive definite"):
        ridge.posterior(broken, ridge=1.0)


@pytest.mark.rest
def test_bad_input_is_named():
    sums, ones = ridge_sums.empty(2), np.ones(1, dtype=bool)
    good = np.ones((1, 2))
    with pytest.raises(InvalidShape, match="features"):
        ridge_sums.add(sums, np.ones((1, 3)), np.ones(1), ones)
    with pytest.raises(InvalidShape, match="values"):
        ridge_sums.add(sums, good, np.ones(2), ones)
    with pytest.raises(InvalidShape, match="first"):
        ridge_sums.add(sums, good, np.ones(1), np.ones(2, dtype=bool))
    with pytest.raises(NonFinite, match="features"):
        ridge_sums.add(sums, np.array([[1.0, np.nan]]), np.ones(1), ones)
    with pytest.raises(NonFinite, match="values"):
        ridge_sums.add(sums, good, np.array([np.inf]), ones)
    with pytest.raises(NonFinite, match="features and values"):
        ridge_sums.add(sums, 1e200 * good, np.ones(1), ones)
    for strength in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(InvalidParameter, match="ridge"):
            ridge.posterior(sums, ridge=strength)
    with pytest.raises(InvalidParameter, match="dim"):
        ridge_sums.empty(0)
    for count in (1, 2):
        with pytest.raises(InvalidShape, match="features"):
            ridge.widths(ridge.prior(2, ridge=1.0), np.ones((count, 3)))


@pytest.mark.rest
def test_widths_of_many_arms_under_a_prior_are_their_norms():
    points = np.random.default_rng(3).standard_normal((1_000, 5))
    found = ridge.prior(5, ridge=4.0)
    np.testing.assert_allclose(ridge.widths(found, points), np.linalg.norm(points, axis=1) / 2.0, rtol=1e-14)
    uneven = ridge.posterior(fold(np.eye(5)[:1], np.zeros(1)), ridge=4.0)
    wanted = np.sqrt(points[:, 0] ** 2 / 5.0 + (points[:, 1:] ** 2).sum(axis=1) / 4.0)
    np.testing.assert_allclose(ridge.widths(uneven, points), wanted, rtol=1e-12)


@pytest.mark.rest
@pytest.mark.parametrize("dim", [256, 257, 700])
def test_a_large_matrix_is_factored_as_a_small_one_is(dim: int):
    rng = np.random.default_rng(dim)
    features = rng.normal(size=(2 * dim, dim))
    precision = features.T @ features + np.eye(dim)
    factor = ridge.factor_precision(np.tril(precision))
    inverse = ridge.invert_factor(factor)
    np.testing.assert_allclose(factor @ factor.T, precision, rtol=1e-10, atol=1e-8)
    np.testing.assert_allclose(inverse @ factor, np.eye(dim), atol=1e-10)
    assert not np.triu(factor, 1).any()
    assert not np.triu(inverse, 1).any()


@pytest.mark.rest
@pytest.mark.parametrize("dim", [3, 300])
def test_a_matrix_that_is_not_definite_is_refused(dim: int):
    with pytest.raises(InvalidParameter):
        ridge.factor_precision(-np.eye(dim))


@pytest.mark.rest
@pytest.mark.parametrize("dim", [128, 129, 257])
def test_a_draw_is_the_root_times_normal_numbers(dim):
    features = np.random.default_rng(dim).standard_normal((20, dim))
    whole = ridge.with_noise(ridge.posterior(fold(features, np.ones(20)), ridge=2.0), 3.0, length=5.0)
    before = whole.noise(np.random.default_rng(1))
    root = whole.root
    expected = root @ np.random.default_rng(1).standard_normal(dim)
    np.testing.assert_allclose(before, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(whole.noise(np.random.default_rng(1)), before)  # also with the inverse
    covariance = 9.0 * np.linalg.inv(2.0 * np.eye(dim) + features.T @ features)
    np.testing.assert_allclose(root @ root.T, covariance, rtol=1e-9, atol=1e-11)
    assert whole.unit == pytest.approx(math.sqrt(9.0 + 5.0 * covariance.trace() / dim), rel=1e-12)


@pytest.mark.rest
def test_the_posterior_of_many_dimensions_has_no_inverse_until_it_is_asked_for(monkeypatch):
    inverses = []
    invert = ridge.invert_factor
    monkeypatch.setattr(ridge, "invert_factor", lambda lower: inverses.append(len(lower)) or invert(lower))
    whole = ridge.posterior(fold(np.ones((1, 129)), np.ones(1)), ridge=2.0)
    whole.noise(np.random.default_rng(1))
    assert not inverses
    assert whole.root.shape == whole.root.shape == (129, 129)
    assert inverses == [129]
