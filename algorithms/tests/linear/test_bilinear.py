"""The bilinear model: phi, the posterior of the query for one context, and the directions."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.errors import InvalidShape
from shortlist.linear import bilinear, ridge, ridge_sums
from shortlist.linear.shifted_rewards import shift_features

DIM, M = 5, 3


def some_directions(p, dim=DIM, seed=3):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((dim, p)))[0].T.copy()


def learned(features, seed=4, ridge_=1.0):
    """The posterior after one reward for each row of phi."""
    values = np.random.default_rng(seed).standard_normal(len(features))
    sums = ridge_sums.add(
        ridge_sums.empty(features.shape[1]), features, values, np.ones(len(features), dtype=bool)
    )
    return ridge.posterior(sums, ridge=ridge_), values


def mapping(directions, context, dim=DIM):
    """M, written out."""
    rows = np.eye(dim) if directions is None else directions
    return np.hstack((np.eye(dim), rows.T @ np.kron(np.eye(len(rows)), context)))


def rows_of_phi(directions, count=40, seed=5, dim=DIM, m=M):
    rng = np.random.default_rng(seed)
    return bilinear.phi(rng.standard_normal((count, dim)), directions, rng.standard_normal((count, m)))


@pytest.mark.parametrize("p", [None, 1, 2, 5])
def test_phi_has_the_products_in_the_documented_order(p):
    rng = np.random.default_rng(0)
    features, contexts = rng.standard_normal((4, DIM)), rng.standard_normal((4, M)).astype(np.float32)
    directions = None if p is None else some_directions(p)
    found = bilinear.phi(features, directions, contexts)
    for row, x, u in zip(found, features, contexts, strict=True):
        interacting = x if directions is None else directions @ x
        np.testing.assert_allclose(row, np.concatenate((x, np.kron(interacting, u))), rtol=1e-12)
    one = bilinear.phi(features, directions, contexts[0])
    np.testing.assert_array_equal(one[0], found[0])


@pytest.mark.parametrize("p", [None, 2, 5])
@pytest.mark.parametrize("shifted", [False, True])
def test_the_posterior_of_the_query_is_the_one_that_m_maps_to(p, shifted):
    directions = None if p is None else some_directions(p)
    features = rows_of_phi(directions)
    whole, _ = learned(shift_features(features) if shifted else features)
    context = np.random.default_rng(6).standard_normal(M).astype(np.float32)
    m = mapping(directions, context)
    if shifted:
        m = np.block([[m, np.zeros((DIM, 1))], [np.zeros((1, m.shape[1])), np.ones((1, 1))]])
    found = bilinear.given(whole, directions, context)
    np.testing.assert_allclose(found.theta, m @ whole.theta, rtol=1e-10, atol=1e-12)
    wanted = m @ (whole.root @ whole.root.T) @ m.T
    np.testing.assert_allclose(found.root @ found.root.T, wanted, rtol=1e-10, atol=1e-12)
    assert found.ridge == whole.ridge


@pytest.mark.parametrize("p", [None, 3])
@pytest.mark.parametrize("shifted", [False, True])
def test_queries_of_many_contexts_are_those_of_each(p, shifted):
    directions = None if p is None else some_directions(p)
    features = rows_of_phi(directions)
    if shifted:
        features = shift_features(features)
    posterior, _ = learned(features)
    contexts = np.random.default_rng(8).standard_normal((7, M)).astype(np.float32)
    found = bilinear.queries(posterior.theta, directions, contexts)
    each = [bilinear.given(posterior, directions, context).theta for context in contexts]
    np.testing.assert_allclose(found, each, rtol=1e-12, atol=1e-12)
    with pytest.raises(InvalidShape, match="contexts"):
        bilinear.queries(posterior.theta, directions, contexts[0])


@pytest.mark.rest
@pytest.mark.parametrize("p", [None, 2])
@pytest.mark.parametrize("beside", [2, 4])
def test_numbers_beside_stay_as_they_are(p, beside):
    """Those after the products are not the context's: M becomes blockdiag(M, I)."""
    directions = None if p is None else some_directions(p)
    rng = np.random.default_rng(8)
    phi = rows_of_phi(directions)
    whole, _ = learned(np.hstack((phi, rng.standard_normal((len(phi), beside)))))
    context = rng.standard_normal(M).astype(np.float32)
    m = mapping(directions, context)
    m = np.block([[m, np.zeros((DIM, beside))], [np.zeros((beside, m.shape[1])), np.eye(beside)]])
    found = bilinear.given(whole, directions, context, beside)
    np.testing.assert_allclose(found.theta, m @ whole.theta, rtol=1e-10)
    np.testing.assert_allclose(found.root, m @ whole.root, rtol=1e-10, atol=1e-12)
    drawn, of_whole = (each.noise(np.random.default_rng(1)) for each in (found, whole))
    np.testing.assert_allclose(drawn, m @ of_whole, rtol=1e-10, atol=1e-12)
    queries = bilinear.queries(whole.theta, directions, context[None], beside)
    np.testing.assert_allclose(queries[0], found.theta, rtol=1e-10)
    own, shared = bilinear.weights(whole.theta, directions, M, beside)
    np.testing.assert_array_equal(own, np.append(whole.theta[:DIM], whole.theta[-beside:]))
    np.testing.assert_array_equal(shared.ravel(), whole.theta[DIM:-beside])
    for wrong in (beside - 1, beside + 1):
        with pytest.raises(InvalidShape):
            bilinear.given(whole, some_directions(2), context, wrong)
