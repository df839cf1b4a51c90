"""Arms of behaviour: against the dense decomposition; and features for arms that nobody has liked."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.embedding import table_map
from shortlist.embedding.behaviour import embed, keys_by_arms
from shortlist.errors import InvalidShape, NonFinite


def likes_by_taste(keys=400, arms=60, seed=0):
    """Keys like arms near them in three hidden numbers; a seventh of the arms nobody has seen."""
    rng = np.random.default_rng(seed)
    tastes, places = rng.standard_normal((keys, 3)), rng.standard_normal((arms, 3))
    liked = rng.random((keys, arms)) < 1 / (1 + np.exp(2.0 - tastes @ places.T))
    liked[:, ::7] = False
    return liked, places


def sparse_of(liked):
    keys, arms = np.nonzero(liked)
    return keys_by_arms(keys, arms, np.ones(len(keys)), shape=liked.shape)


def test_a_key_likes_an_arm_where_its_values_have_a_positive_sum():
    keys, arms = np.array([0, 0, 0, 2, 2]), np.array([1, 1, 0, 2, 2])
    found = keys_by_arms(keys, arms, np.array([1.0, 5.0, 0.0, 2.0, -2.0]), shape=(3, 4))
    assert found.toarray().tolist() == [[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]


@pytest.mark.rest
def test_events_that_make_no_sense_are_named():
    ones = np.ones(2, dtype=int)
    with pytest.raises(NonFinite, match="values"):
        keys_by_arms(ones, ones, np.array([1.0, np.inf]), shape=(3, 3))
    with pytest.raises(InvalidShape, match="arms"):
        keys_by_arms(ones, ones[:1], np.ones(2), shape=(3, 3))


def test_vectors_are_those_of_the_dense_decomposition():
    liked, _ = likes_by_taste()
    found = embed(sparse_of(liked), 5, np.random.default_rng(4))
    _, values, right = np.linalg.svd(liked.astype(float), full_matrices=False)
    dense = right[:5].T * values[:5]
    dense /= np.percentile(np.linalg.norm(dense[liked.any(axis=0)], axis=1), 99.9)
    assert found.vectors @ found.vectors.T == pytest.approx(dense @ dense.T, abs=0.02)
    assert found.likes.tolist() == liked.sum(axis=0).tolist()
    assert found.share == pytest.approx(np.square(values[:5]).sum() / np.square(values).sum(), rel=0.01)
    assert not found.vectors[::7].any()


def test_fields_place_an_arm_that_nobody_has_liked():
    liked, places = likes_by_taste(2_000)
    found = embed(sparse_of(liked), 4, np.random.default_rng(0))
    mapped = table_map.fit(places, found.vectors, found.likes, np.random.default_rng(0))
    features = mapped.mix(places, found.vectors, found.likes)
    expected = places @ mapped.linear.T + mapped.shift
    assert features[::7] == pytest.approx(expected[::7])
    n, kappa = found.likes[5], mapped.kappa
    assert features[5] == pytest.approx((n * found.vectors[5] + kappa * expected[5]) / (n + kappa))
    assert mapped.r2 > 0.7
    assert mapped.kappa >= 1.0


def test_how_many_likes_fields_are_worth_is_found():
    """The embedding of an arm is what its fields say, with a variance of 1 + 50 / n in each number."""
    rng = np.random.default_rng(2)
    table, weights = rng.standard_normal((4_000, 3)), rng.standard_normal((3, 2))
    likes = np.where(np.arange(4_000) % 2, 20, 1_000)
    noise = rng.standard_normal((4_000, 2)) * np.sqrt(1.0 + 50.0 / likes)[:, None]
    found = table_map.fit(table, table @ weights + noise, likes, rng)
    assert found.kappa == pytest.approx(50.0, rel=0.2)


@pytest.mark.rest
@pytest.mark.parametrize("likes", [np.full(30, 9), np.zeros(30, dtype=int) + (np.arange(30) == 4)])
def test_arms_that_are_alike_or_one_arm_alone_make_a_map(likes):
    rng = np.random.default_rng(0)
    found = table_map.fit(
        rng.standard_normal((30, 4)), rng.standard_normal((30, 2)) * (likes > 0)[:, None], likes, rng
    )
    assert np.isfinite(found.linear).all()
    assert found.kappa == 1.0
