"""Real shares of directions: against the formulas, key by key, and on tastes of known rank."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from shortlist.embedding.real_share import FOLDS, LEAST_SHARE, NOISE_SHARE, TESTED_KEYS, real_dim, real_share

DIM = 16


def likes_by_taste(keys=600, arms=300, tastes=6, seed=0):
    """Likes follow ``tastes`` numbers of a key, and how popular an arm is."""
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((keys, tastes)) @ rng.standard_normal((tastes, arms)) * 0.6
    chances = 1.0 / (1.0 + np.exp(3.0 - scores - rng.standard_normal(arms)))
    found = (rng.random((keys, arms)) < chances).astype(np.float32)
    return found[found.any(axis=1)]


def exact(matrix, count, _rng):
    return np.linalg.svd(matrix.toarray().astype(float), full_matrices=False)[2][:count].T


def falling(values, weights):
    """Pool adjacent violators, pair by pair."""
    pools = []
    for value, weight in zip(values, weights, strict=True):
        pools.append((value, weight, 1))
        while len(pools) > 1 and pools[-1][0] > pools[-2][0]:
            (one, n1, size1), (other, n2, size2) = pools.pop(), pools.pop()
            pools.append(((one * n1 + other * n2) / (n1 + n2), n1 + n2, size1 + size2))
    return np.concatenate([np.full(size, value) for value, _, size in pools])


def by_the_formulas(likes, dim, seed):
    """With the decomposition of each fold, and sums over single arms."""
    fold = np.random.default_rng(seed).integers(0, FOLDS, len(likes))
    parts = []
    for one in range(FOLDS):
        made, out = likes[fold != one].astype(float), likes[fold == one].astype(float)
        vectors = np.linalg.svd(made, full_matrices=False)[2][:dim].T
        mean = (made @ vectors).mean(axis=0)
        parts.append((vectors, made.mean(axis=0), (made @ vectors - mean), (out @ vectors - mean)))
    share = np.ones(dim)
    for _ in range(10):
        real, shown = np.zeros(dim), np.zeros(dim)
        for vectors, liking, own, other in parts:
            told = (own**2).mean(axis=0) * share
            left = [max(p * (1 - p) - v**2 @ told, 0.0) for p, v in zip(liking, vectors, strict=True)]
            noise = sum(rest * v**2 for rest, v in zip(left, vectors, strict=True))
            real, shown = real + (other**2).mean(axis=0) - noise, shown + (own**2).mean(axis=0)
        share = np.clip(falling(real / shown, shown), LEAST_SHARE, 1.0)
    return share


def test_shares_are_those_of_the_formulas():
    likes = likes_by_taste(150, 60)
    found = real_share(sparse.csr_array(likes), DIM, np.random.default_rng(3), decompose=exact)
    assert found == pytest.approx(by_the_formulas(likes, DIM, 3), abs=1e-12)


def test_what_the_rank_of_the_keys_does_not_have_is_not_real():
    likes = np.eye(4, dtype=np.float32)[np.arange(40) % 4]
    found = real_share(sparse.csr_array(likes), 9, np.random.default_rng(0))
    assert found[4:].tolist() == [LEAST_SHARE] * 5
    alone = real_share(sparse.csr_array(likes[:1]), 2, np.random.default_rng(0))
    assert alone.tolist() == [LEAST_SHARE] * 2, "nobody is left to ask"


def test_of_many_keys_few_folds_are_tested():
    calls = []

    def decompose(matrix, count, rng):
        calls.append(matrix.shape[0])
        return exact(matrix, count, rng)

    for keys in (100, TESTED_KEYS, 5 * TESTED_KEYS + 5_000):
        calls.clear()
        likes = sparse.csr_array(np.ones((keys, 2), dtype=np.float32))
        real_share(likes, 1, np.random.default_rng(0), decompose=decompose)
        assert len(calls) == (1 if keys > 5 * TESTED_KEYS else FOLDS)


def groups(count, keys=600, arms=300, seed=0):
    """Each key likes arms of two of ``count`` groups; arms of one group are alike."""
    rng = np.random.default_rng(seed)
    own = rng.random((keys, count)).argpartition(2, axis=1)[:, :2]
    is_own = (np.arange(arms) % count == own[:, :, None]).any(axis=1)
    return sparse.csr_array((rng.random((keys, arms)) < np.where(is_own, 0.6, 0.01)).astype(np.float32))


def test_as_many_directions_as_tastes_have():
    for count in (10, 50):
        found = real_dim(groups(count), np.random.default_rng(0), least=4, most=100)
        assert 0.8 * count <= found <= count
    assert real_dim(groups(10), np.random.default_rng(0), least=32, most=100) == 32
    assert 27 <= real_dim(groups(50), np.random.default_rng(0), least=4, most=30) <= 30


def test_likes_without_tastes_have_the_fewest_directions_also_where_few_arms_have_most_likes():
    """There the first directions are single arms."""
    rng = np.random.default_rng(0)
    chances = np.geomspace(0.9, 0.001, 400)
    liked = sparse.csr_array((rng.random((2_000, 400)) < chances).astype(np.float32))
    assert real_dim(liked, rng, least=4, most=100) == 4
    assert np.count_nonzero(real_share(liked, 100, rng) > NOISE_SHARE) > 20, "shares that begin with 1 stay"
