"""Thompson sampling: the draw has the posterior's moments, the choice is the argmax of the draw."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from shortlist.errors import InvalidParameter, InvalidShape
from shortlist.linear import linear_ts, ridge, ridge_sums, sub_ts
from shortlist.types import NO_ROWS, TopK


def some_posterior(dim, rows=30, seed=0, strength=1.0):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((rows, dim)) * np.linspace(0.1, 3, dim)
    sums = ridge_sums.add(
        ridge_sums.empty(dim), features, rng.standard_normal(rows), np.ones(rows, dtype=bool)
    )
    return ridge.posterior(sums, ridge=strength)


class Scan:
    """A solver by brute force, with its own idea of how to sort."""

    def __init__(self, features):
        self.features = features

    def search(self, query, k, exclude=NO_ROWS):
        scored = sorted(
            (-score, row) for row, score in enumerate(self.features @ query) if row not in set(exclude)
        )[:k]
        return TopK(np.array([row for _, row in scored]), np.array([-s for s, _ in scored]), exact=True)


def mahalanobis_tail(posterior, draws, exploration):
    """Return the p-value of ||V^1/2 (theta~ - theta^)||^2 / exploration^2 being chi-square(d)."""
    white = (draws - posterior.theta) @ np.linalg.inv(posterior.root).T / exploration
    return stats.kstest((white**2).sum(axis=1), stats.chi2(white.shape[1]).cdf).pvalue


@pytest.mark.parametrize("dim", [1, 3, 12])
def test_the_draw_is_gaussian_with_the_covariance_of_the_posterior(dim):
    """False alarm at most 1e-6: nine tests at 1e-7 over the three dimensions, seeds fixed."""
    posterior, rng = some_posterior(dim), np.random.default_rng(1)
    draws = np.array([linear_ts.draw(posterior, exploration=2.0, rng=rng) for _ in range(4000)])
    white = (draws - posterior.theta) @ np.linalg.inv(posterior.root).T / 2.0
    assert mahalanobis_tail(posterior, draws, 2.0) > 1e-7
    assert stats.kstest(white.ravel(), stats.norm.cdf).pvalue > 1e-7
    covariance = np.cov(white.T).reshape(dim, dim)
    bound = stats.norm.isf(1e-7 / 2 / dim**2) * np.sqrt(2 / 4000)
    assert np.abs(covariance - np.eye(dim)).max() < bound


@pytest.mark.rest
def test_a_draw_with_the_factor_untransposed_is_found_out():
    """The broken variant L^-1 xi has covariance (L^T L)^-1, not V^-1: the same test rejects it."""
    posterior, rng = some_posterior(12), np.random.default_rng(1)
    draws = posterior.theta + 2.0 * rng.standard_normal((4000, 12)) @ posterior.root
    assert mahalanobis_tail(posterior, draws, 2.0) < 1e-7


@pytest.mark.rest
def test_no_exploration_is_the_estimate():
    posterior = some_posterior(4)
    found = linear_ts.draw(posterior, exploration=0.0, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(found, posterior.theta)


@settings(max_examples=80)
@given(seed=st.integers(0, 2**32), arms=st.integers(0, 12), k=st.integers(1, 14), data=st.data())
def test_both_policies_choose_the_best_eligible_arms_for_the_draw(seed, arms, k, data):
    rng = np.random.default_rng(seed)
    features = rng.integers(-2, 3, (arms, 3)).astype(float)
    excluded = data.draw(st.sets(st.integers(0, max(arms - 1, 0)), max_size=arms))
    exclude = np.array(sorted(excluded), dtype=np.int64)
    posterior = some_posterior(3, seed=seed)
    options = {"k": k, "exploration": 1.5, "exclude": exclude}
    exact = linear_ts.choose(posterior, features, **options, rng=np.random.default_rng(seed))
    searched = sub_ts.choose(posterior, Scan(features), **options, rng=np.random.default_rng(seed))
    theta = linear_ts.draw(posterior, exploration=1.5, rng=np.random.default_rng(seed))
    assert len(exact.rows) == min(k, arms - len(exclude))
    assert exact.exact
    assert not set(exact.rows.tolist()) & excluded
    np.testing.assert_allclose(exact.scores, features[exact.rows] @ theta, rtol=1e-12)
    np.testing.assert_allclose(exact.scores, searched.scores, rtol=1e-9)
    wanted = np.sort(np.delete(features @ theta, exclude))[::-1][:k]
    np.testing.assert_allclose(exact.scores, wanted, rtol=1e-9)


@pytest.mark.rest
def test_ties_go_to_the_earlier_row():
    posterior = some_posterior(2)
    features = np.ones((6, 2))
    found = linear_ts.choose(posterior, features, k=3, exploration=1.0, rng=np.random.default_rng(0))
    assert found.rows.tolist() == [0, 1, 2]


@pytest.mark.rest
def test_bad_shapes_and_k_are_named():
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidShape, match="features"):
        linear_ts.choose(some_posterior(2), np.ones((3, 3)), k=1, exploration=1.0, rng=rng)
    with pytest.raises(InvalidParameter, match="k"):
        linear_ts.choose(some_posterior(2), np.ones((3, 2)), k=0, exploration=1.0, rng=rng)


def test_many_draws_are_those_of_one_after_the_other():
    posterior = some_posterior(5)
    one, many = np.random.default_rng(4), np.random.default_rng(4)
    each = [linear_ts.draw(posterior, exploration=0.7, rng=one) for _ in range(20)]
    together = linear_ts.draws(posterior, 20, exploration=0.7, rng=many)
    np.testing.assert_allclose(together, each, rtol=1e-12, atol=1e-12)
    with pytest.raises(InvalidParameter):
        linear_ts.draws(posterior, 2, exploration=-1.0, rng=many)
