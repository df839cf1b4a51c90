"""The prior of any features: against its formulas, key by key, and on tastes that are known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from shortlist.embedding import feature_prior
from shortlist.embedding.feature_prior import FOLDS, LEAST_EIGENVALUE, LEAST_LEFT, LEAST_VARIANCE, ROUNDS

KEYS, ARMS = 400, 60


def by_taste(spread, seed=0, keys=KEYS, arms=ARMS):
    """Features of arms, and who likes them: with chance .3 + x.theta, theta of a key with this deviation."""
    rng = np.random.default_rng(seed)
    features = rng.choice([-1.0, 1.0], size=(arms, 3))
    tastes = rng.standard_normal((keys, 3)) * spread
    chances = np.clip(0.3 + tastes @ features.T, 0.0, 1.0)
    return features, sparse.csr_array((rng.random(chances.shape) < chances).astype(np.float32))


def fit(liked, make, seed=0):
    prior = feature_prior.fit(liked, make, np.random.default_rng(seed), directions=1)
    prior.check()
    return prior


def tops(liked, count=2):
    """Features that depend on who is asked: the first right singular vectors, and how many liked an arm."""
    dense = liked.toarray().astype(float)
    vectors = np.linalg.svd(dense, full_matrices=False)[2][:count].T
    return np.column_stack((vectors * np.sign(vectors.sum(axis=0)), dense.mean(axis=0)))


def inverse(features):
    return np.linalg.pinv(features, rcond=LEAST_EIGENVALUE**0.5)


def by_the_formulas(liked, make, seed):
    dense = liked.toarray().astype(float)
    dense = dense[dense.any(axis=1)]
    fold = np.random.default_rng(seed).integers(0, FOLDS, len(dense))
    features, share = make(sparse.csr_array(dense)), dense.mean(axis=0)
    mean = np.mean([np.linalg.lstsq(features, row, rcond=LEAST_EIGENVALUE**0.5)[0] for row in dense], axis=0)
    covariance = np.zeros((features.shape[1],) * 2)
    for _ in range(ROUNDS):
        total = np.zeros_like(covariance)
        for one in range(FOLDS):
            others = dense[fold != one]
            made, liking = make(sparse.csr_array(others)), others.mean(axis=0)
            to = inverse(features) @ made @ inverse(made)
            told = [x @ covariance @ x for x in features]
            left = [max(p * (1 - p) - t, LEAST_LEFT) for p, t in zip(liking, told, strict=True)]
            for row in dense[fold == one]:
                deviation = to @ (row - liking)
                total += np.outer(deviation, deviation) - to @ np.diag(left) @ to.T
        found = total / len(dense)
        values, vectors = np.linalg.eigh(features.T @ features / len(features))
        scale = np.sqrt(np.maximum(values, LEAST_EIGENVALUE * values[-1]))
        to, back = vectors * scale @ vectors.T, vectors / scale @ vectors.T
        variances, turn = np.linalg.eigh(to @ found @ to)
        least = LEAST_VARIANCE * variances[variances > 0].sum() / len(variances)
        covariance = back @ (turn * np.maximum(variances, least)) @ turn.T @ back
    told = np.array([x @ covariance @ x for x in features])
    noise = np.average(np.maximum(share * (1 - share) - told, LEAST_LEFT), weights=share)
    return mean, covariance / noise, noise


def test_it_is_what_the_formulas_say_of_features_that_keys_make():
    _, liked = by_taste(0.1, keys=120, arms=40)
    found = fit(liked, tops, 3)
    mean, covariance, noise = by_the_formulas(liked, tops, 3)
    assert found.mean == pytest.approx(mean, rel=1e-8)
    assert found.covariance == pytest.approx(covariance, rel=1e-6, abs=1e-9)
    assert found.noise == pytest.approx(noise, rel=1e-8)
    assert found.keys == np.count_nonzero(liked.sum(axis=1))


@pytest.mark.parametrize("spread", [0.05, 0.1])
def test_how_much_keys_differ_is_found_beside_the_noise_of_their_likes(spread):
    """Mean variance over ten draws of 400 keys within a tenth: its standard error is .03 of it, so the false
    alarm is below .001. Without the noise taken off it is 1.2 to 2 times as large.
    """
    found = []
    for seed in range(10):
        features, liked = by_taste(spread, seed)
        prior = fit(liked, lambda _, features=features: features)
        found.append(np.diag(prior.covariance).mean() * prior.noise)
    assert np.mean(found) == pytest.approx(spread**2, rel=0.1)


def test_a_direction_in_which_keys_do_not_differ_can_still_be_learned():
    features, liked = by_taste(0.0)
    prior = fit(liked, lambda _: features)
    variances = np.linalg.eigvalsh(prior.covariance * prior.noise)
    assert (variances > 0.0).all()
    assert variances.max() < 0.002  # of 400 keys the noise alone is as much


def test_a_key_of_which_nothing_is_known_has_the_mean_and_others_their_row():
    features, liked = by_taste(0.1)
    prior = fit(liked, lambda _: features)
    rows = liked[:3].toarray()
    rows[1] = 0.0
    tastes = feature_prior.tastes(prior, features, sparse.csr_array(rows))
    assert tastes[1] == pytest.approx(prior.mean)
    precision = np.linalg.inv(prior.covariance)
    wanted = np.linalg.solve(precision + features.T @ features, precision @ prior.mean + features.T @ rows[0])
    assert tastes[0] == pytest.approx(wanted)


def test_an_arm_that_lacks_a_value_is_expected_to_be_liked_as_others_are():
    """Each arm is of one of two kinds, and all are liked about as often: so the kinds, and how often an arm
    is liked, say nearly the same, and an arm of neither kind lies off all others.
    """
    rng = np.random.default_rng(0)
    liked = sparse.csr_array((rng.random((200, ARMS)) < 0.2).astype(np.float32))
    kinds = np.eye(2)[np.arange(ARMS) % 2]

    def make(some):
        likes = np.log1p(np.asarray(some.sum(axis=0)).ravel())
        return np.column_stack((kinds, likes / np.sqrt(np.mean(likes**2))))

    prior = fit(liked, make)
    lacking = np.append(np.zeros(2), make(liked)[:, 2].mean())
    deviation = np.sqrt(lacking @ prior.covariance @ lacking * prior.noise)
    assert 0.0 < lacking @ prior.mean < 0.2
    assert deviation < 0.1
