"""Directions of contexts, and draws and searches in them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from scipy.stats import chi2
from test_bilinear import DIM, M, learned, mapping, rows_of_phi, some_directions

from shortlist.errors import InvalidArgument, InvalidShape, NonFinite
from shortlist.linear import bilinear, linear_ts, ridge, ridge_sums, sub_ts
from shortlist.linear.shifted_rewards import shift_features
from shortlist.mips.exact import exact
from shortlist.types import NO_ROWS

pytestmark = pytest.mark.rest


class Scan:
    def __init__(self, features):
        self.features = features

    def search(self, query, k, exclude=NO_ROWS):
        return exact(self.features, query, k=k, exclude=exclude)


def covariance_statistic(draws, mean, covariance):
    """N times the log-likelihood ratio of the empirical covariance against ``covariance`` (known mean).

    -2 log of the ratio is chi-squared with d (d + 1) / 2 degrees of freedom (Wilks; N = 10^5, d = 5).
    """
    centred = draws - mean
    turned = np.linalg.solve(covariance, centred.T @ centred / len(draws))
    return len(draws) * (np.trace(turned) - np.linalg.slogdet(turned)[1] - len(mean))


# A false alarm has probability 1e-6 in each.
MOST = chi2.ppf(1 - 1e-6, DIM * (DIM + 1) // 2)


@pytest.mark.parametrize("p", [None, 2])
def test_drawn_queries_have_the_covariance_of_the_model(p):
    directions = None if p is None else some_directions(p)
    whole, _ = learned(rows_of_phi(directions))
    context = np.array([0.5, -1.0, 2.0], dtype=np.float32)
    m = mapping(directions, context)
    rng, exploration = np.random.default_rng(7), 0.7
    found = bilinear.given(whole, directions, context)
    draws = np.array([linear_ts.draw(found, exploration=exploration, rng=rng) for _ in range(100_000)])
    covariance = exploration**2 * m @ (whole.root @ whole.root.T) @ m.T
    assert covariance_statistic(draws, m @ whole.theta, covariance) < MOST
    mean = (draws.mean(axis=0) - m @ whole.theta) * np.sqrt(len(draws))
    assert mean @ np.linalg.solve(covariance, mean) < chi2.ppf(1 - 1e-6, DIM)
    # The test has power: a draw that takes theta and W for independent fails it, and so does one that leaves
    # out what is uncertain of W.
    block = np.zeros_like(whole.root)
    block[:DIM, :DIM], block[DIM:, DIM:] = (whole.root @ whole.root.T)[:DIM, :DIM], 0.0
    blind = exploration**2 * m @ block @ m.T
    assert covariance_statistic(draws, m @ whole.theta, blind) > MOST
    block[DIM:, DIM:] = (whole.root @ whole.root.T)[DIM:, DIM:]
    independent = exploration**2 * m @ block @ m.T
    assert covariance_statistic(draws, m @ whole.theta, independent) > MOST


@pytest.mark.parametrize("p", [None, 2])
@pytest.mark.parametrize("seed", range(5))
def test_the_search_finds_the_brute_force_argmax_of_phi(p, seed):
    rng = np.random.default_rng(seed)
    directions = None if p is None else some_directions(p)
    whole, _ = learned(rows_of_phi(directions, seed=seed))
    arms, context = rng.standard_normal((200, DIM)), rng.standard_normal(M).astype(np.float32)
    found = sub_ts.choose(
        bilinear.given(whole, directions, context),
        Scan(arms),
        k=3,
        exploration=1.0,
        rng=np.random.default_rng(9),
    )
    parameter = linear_ts.draw(whole, exploration=1.0, rng=np.random.default_rng(9))
    scores = bilinear.phi(arms, directions, context) @ parameter
    assert found.rows.tolist() == np.argsort(-scores)[:3].tolist()
    np.testing.assert_allclose(found.scores, np.sort(scores)[::-1][:3], rtol=1e-9)


def test_a_seeded_draw_is_repeated_to_the_bit():
    directions = some_directions(2)
    whole, _ = learned(rows_of_phi(directions))
    found = bilinear.given(whole, directions, np.ones(M, dtype=np.float32))
    first, second = (
        linear_ts.draw(found, exploration=1.0, rng=np.random.default_rng(1)).tobytes() for _ in range(2)
    )
    assert first == second


def test_one_hot_contexts_without_a_shared_part_are_independent_learners():
    """The shared part is the first d coordinates of phi: without it, theta and V are those of m learners."""
    rng = np.random.default_rng(11)
    features, groups = rng.standard_normal((90, DIM)), rng.integers(M, size=90)
    values = rng.standard_normal(90)
    everything = bilinear.phi(features, None, np.eye(M)[groups])[:, DIM:]
    sums = ridge_sums.add(ridge_sums.empty(DIM * M), everything, values, np.ones(90, dtype=bool))
    together = ridge.posterior(sums, ridge=1.0)
    for group in range(M):
        own = groups == group
        alone = ridge.posterior(
            ridge_sums.add(ridge_sums.empty(DIM), features[own], values[own], np.ones(own.sum(), dtype=bool)),
            ridge=1.0,
        )
        weights = together.theta.reshape(DIM, M)
        np.testing.assert_allclose(weights[:, group], alone.theta, atol=1e-12)
        probes = rng.standard_normal((8, DIM))
        joint = bilinear.phi(probes, None, np.eye(M)[group])[:, DIM:]
        np.testing.assert_allclose(ridge.widths(together, joint), ridge.widths(alone, probes), rtol=1e-10)


def test_directions_are_the_best_approximation_of_the_arms():
    rng = np.random.default_rng(12)
    arms = 2.0 + rng.standard_normal((300, 6)) * np.array([3.0, 0.1, 2.0, 0.1, 1.0, 0.1])
    found = bilinear.directions(arms.T @ arms, 3)
    np.testing.assert_allclose(found @ found.T, np.eye(3), atol=1e-12)
    left = np.square(arms - arms @ found.T @ found).sum()
    best = np.square(np.linalg.svd(arms, compute_uv=False)[3:]).sum()
    assert left == pytest.approx(best, rel=1e-9)
    assert (found[np.arange(3), np.abs(found).argmax(axis=1)] > 0).all()
    assert bilinear.directions(arms.T @ arms, 3).tobytes() == found.tobytes()
    assert bilinear.directions(arms.T @ arms, 6)[:3].tobytes() == found.tobytes()


@pytest.mark.parametrize("p", [0, -1, 5])
def test_directions_are_at_most_as_many_as_dimensions(p):
    with pytest.raises(InvalidArgument) as raised:
        bilinear.directions(np.eye(4), p)
    assert raised.value.argument == "p"


def test_directions_need_finite_arms():
    with pytest.raises(NonFinite):
        bilinear.directions(np.full((2, 2), np.nan), 1)


def test_a_posterior_of_another_bandit_is_refused():
    whole = ridge.prior(12, ridge=1.0)
    for directions, context in (
        (some_directions(2), np.ones(M)),  # 11 numbers, or 12 with a last coordinate
        (None, np.ones(1)),
    ):
        bilinear.given(whole, directions, context)
    for directions, context in (
        (some_directions(3), np.ones(M)),
        (some_directions(1), np.ones(M)),
        (None, np.ones(4)),
        (None, np.empty(0)),
        (some_directions(2), np.ones((1, M))),
    ):
        with pytest.raises(InvalidShape):
            bilinear.given(whole, directions, context)
    with pytest.raises(InvalidShape):
        bilinear.phi(np.ones((2, DIM)), some_directions(2), np.ones((3, M)))
    with pytest.raises(InvalidShape):
        bilinear.phi(np.ones((2, DIM)), some_directions(2, dim=4), np.ones(M))


@for_all(
    dim=st.integers(1, 6),
    m=st.integers(1, 5),
    p=st.integers(1, 6),
    shifted=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=60)
def test_predictions_by_query_and_by_phi_are_one(dim, m, p, shifted, seed):
    rng = np.random.default_rng(seed)
    directions = some_directions(p, dim, seed) if p <= dim else None
    size = dim + (min(p, dim)) * m
    arms, context = rng.standard_normal((7, dim)), rng.standard_normal(m)
    parameter = rng.standard_normal(size + shifted)
    whole = ridge.Factored(parameter, np.eye(size + shifted), 1.0)
    query = bilinear.given(whole, directions, context).theta
    joint = bilinear.phi(arms, directions, context)
    if shifted:
        arms, joint = shift_features(arms), shift_features(joint)
    np.testing.assert_allclose(arms @ query, joint @ parameter, atol=1e-9)
    theta, weights = bilinear.weights(parameter, directions, m)
    assert np.concatenate((theta[:dim], weights.ravel(), theta[dim:])).tolist() == parameter.tolist()
