"""The prior of a history: against its definition, key by key, and brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import multivariate_normal

from shortlist.linear import history_prior
from shortlist.linear.exploration import exploration_with_history
from shortlist.linear.history_prior import HistoryPrior
from shortlist.linear.learned_prior import KeySums

D, KEYS = 5, 40
CONSTANT = 0.4


def likes_of(keys: int = 200, arms: int = 60, seed: int = 0) -> sparse.csr_array:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(keys, 3)) @ rng.normal(size=(3, arms)) * 0.7 + rng.normal(size=arms) - 2.0
    return sparse.csr_array((rng.random((keys, arms)) < 1.0 / (1.0 + np.exp(-scores))).astype(np.float32))


def features_of(liked: sparse.csr_array) -> np.ndarray:
    _, values, vectors = np.linalg.svd(liked.toarray().astype(float), full_matrices=False)
    return (vectors[:D] * values[:D, None]).T / values[0]


def history() -> HistoryPrior:
    liked = likes_of()
    found = history_prior.of_embedding(liked, features_of(liked), np.array([1.0, 0.9, 0.6, 0.3, 0.05]))
    assert found is not None
    return found


def rewards(seed: int, *, keys: int = KEYS, signals: int = 1, scale: float = 1.0):
    """Of each key x (n, D + 1) and y (n, J)."""
    rng = np.random.default_rng(seed)
    features = features_of(likes_of())
    found = []
    for _ in range(keys):
        arms = rng.integers(0, len(features), rng.integers(1, 9))
        x = np.column_stack((features[arms], np.full(len(arms), CONSTANT)))
        theta = rng.normal(size=D + 1)
        found.append((x, scale * ((x @ theta)[:, None] + rng.normal(size=(len(arms), signals)))))
    return found


def sums_of(pairs):
    return (
        np.array([x.T @ x for x, _ in pairs]),
        np.array([y.T @ x for x, y in pairs]),
        np.array([y.T @ y for _, y in pairs]),
        np.array([float(len(x)) for x, _ in pairs]),
    )


def keys_of(pairs) -> KeySums:
    sums = sums_of(pairs)
    return KeySums(*sums, sums[0].sum(axis=0))


def test_a_history_is_what_its_definition_says_key_by_key():
    liked, share = likes_of(), np.array([1.0, 0.9, 0.6, 0.3, 0.05])
    features, found = features_of(liked), history()
    used = [row for row in liked.toarray().astype(float) if row.any()]
    tastes = [np.linalg.lstsq(features.T @ features, features.T @ row, rcond=None)[0] for row in used]
    mean = sum(tastes) / len(tastes)
    covariance = sum(np.outer(taste - mean, taste - mean) for taste in tastes) / len(tastes)
    covariance *= np.sqrt(np.outer(share, share))
    liking = sum(used) / len(used)
    left = [p * (1 - p) - x @ covariance @ x for p, x in zip(liking, features, strict=True)]
    noise = sum(p * max(rest, 1e-6) for p, rest in zip(liking, left, strict=True)) / liking.sum()
    floor = 1e-4 * np.trace(covariance) / D * np.eye(D)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found.covariance, (covariance + floor) / noise, rtol=1e-6, atol=1e-8)
    assert found.noise == pytest.approx(noise, rel=1e-8)
    assert (found.keys, found.directions) == (len(used), 3)
    first = found.first(CONSTANT)
    spread = (0.3 * (liking @ liking) / liking.sum() / CONSTANT) ** 2 / noise
    assert first.covariance[-1, -1] == pytest.approx(spread, rel=1e-6)
    assert (first.keys, first.own_keys, first.history) == (found.keys, 0, found.keys)
    assert found.first().dim == D


def test_a_history_of_few_keys_or_of_keys_that_are_all_alike_says_nothing():
    liked = likes_of(keys=9)
    assert history_prior.of_embedding(liked, np.eye(60)[:, :2], np.ones(2)) is None
    same = sparse.csr_array(np.tile(np.eye(60)[0], (30, 1)))
    assert history_prior.of_embedding(same, np.eye(60)[:, :1], np.ones(1)) is None


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0])
def test_the_unit_has_the_largest_marginal_likelihood_of_all_on_the_grid(seed: int, scale: float):
    """By the densities of the rewards themselves."""
    first, pairs = history().first(CONSTANT), rewards(seed, scale=scale)
    covariance, noise = first.covariance, float(first.residuals[0, 0])
    value = {}
    for f, r in itertools.product(2.0 ** np.arange(-1.0, 3.1, 0.5), 2.0 ** np.arange(-1.0, 3.1)):
        if not -5 <= 2 * np.log2(f) - np.log2(r) <= 7:
            continue
        log_density = -0.5 * (np.log(f) ** 2 + np.log(r) ** 2) / 1.5**2
        for x, y in pairs:
            spread = r * noise * np.eye(len(x)) + f * f * noise * x @ covariance @ x.T
            log_density += multivariate_normal.logpdf(y[:, 0], f * x @ first.mean[0], spread)
        value[f, r] = log_density
    f, r = history_prior.unit_of(keys_of(pairs), first)
    assert (f[0], r[0]) == max(value, key=value.__getitem__)


def by_the_definition(pairs, first):
    """Expectation-maximisation of one signal, key by key. -> mu, S, R."""
    f, r = (number[0] for number in history_prior.unit_of(keys_of(pairs), first))
    mean0, beside = f * first.mean[0], f * f / r * first.covariance
    noise0 = r * first.residuals[0, 0]
    precision0 = np.linalg.inv(beside)
    mean, covariance, noise, kappa = mean0, beside, noise0, 1.0
    count, total, dim = len(pairs), sum(len(x) for x, _ in pairs), len(mean0)
    for _ in range(8):
        inverses = [np.linalg.inv(x.T @ x + np.linalg.inv(covariance)) for x, _ in pairs]
        estimates = [
            v @ (x.T @ y[:, 0] + np.linalg.solve(covariance, mean))
            for v, (x, y) in zip(inverses, pairs, strict=True)
        ]
        left = sum(((y[:, 0] - x @ e) ** 2).sum() for e, (x, y) in zip(estimates, pairs, strict=True))
        unsure = sum(np.trace(x.T @ x @ v) for v, (x, _) in zip(inverses, pairs, strict=True))
        new = (left + noise * unsure + 100.0 * noise0) / (total + 100.0)
        liking = mean0 @ precision0 @ sum(estimates) / kappa + 1.0
        alpha = np.clip(liking / (count * (mean0 @ precision0 @ mean0) / kappa + 1.0), 0.1, 10.0)
        mean = (sum(estimates) + 30.0 * alpha * mean0) / (count + 30.0)
        found = sum(np.outer(e - mean, e - mean) for e in estimates) / new + sum(inverses) * noise / new
        kappa = np.clip((np.trace(precision0 @ found) + 100.0) / (count * dim + 100.0), 0.05, 20.0)
        covariance, noise = (found + 100.0 * kappa * beside) / (count + 100.0), new
    return mean, covariance, noise


@pytest.mark.parametrize("seed", range(3))
def test_a_fit_is_what_its_definition_says_key_by_key(seed: int):
    first, pairs = history().first(CONSTANT), rewards(seed)
    found = history_prior.fit(*sums_of(pairs), first)
    mean, covariance, noise = by_the_definition(pairs, first)
    np.testing.assert_allclose(found.mean[0], mean, rtol=1e-8, atol=1e-8 * np.abs(mean).max())
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-8, atol=1e-8 * covariance.max())
    assert found.residuals[0, 0] == pytest.approx(noise, rel=1e-8)
    assert (found.own_keys, found.history) == (KEYS, first.keys)
    assert found.observations == sum(len(x) for x, _ in pairs)


def test_a_fit_without_own_rewards_is_the_history_and_with_many_keys_what_they_say():
    first = history().first(CONSTANT)
    nothing = tuple(np.zeros_like(each) for each in sums_of(rewards(0)))
    assert history_prior.fit(*nothing, first) is first
    one = history_prior.fit(*sums_of(rewards(0, keys=1)), first)
    assert one.own_keys == 1
    pairs = rewards(1, keys=4_000)
    many = history_prior.fit(*sums_of(pairs), first)
    assert many.residuals[0, 0] == pytest.approx(1.0, rel=0.25)


def test_rewards_that_are_far_larger_or_smaller_than_likes_have_a_unit_of_their_own():
    first = history().first(CONSTANT)
    small, large = (
        history_prior.fit(*sums_of(rewards(2, keys=300, scale=scale)), first) for scale in (1e-3, 1e3)
    )
    assert large.residuals[0, 0] == pytest.approx(1e6, rel=0.3)
    # nearly: alpha is held to 1 in the unit of the rewards
    np.testing.assert_allclose(large.residuals, 1e12 * small.residuals, rtol=0.05)
    np.testing.assert_allclose(large.mean, 1e6 * small.mean, rtol=0.1, atol=0.05 * np.abs(large.mean).max())
    spread = small.covariance.max()
    np.testing.assert_allclose(large.covariance, small.covariance, rtol=0.05, atol=0.05 * spread)


def test_each_signal_has_its_own_unit():
    """A second signal of 3 times the size, and a third that is never given."""
    first = history().first(CONSTANT, signals=3)
    pairs = [
        (x, np.column_stack((y[:, 0], 3.0 * y[:, 1], 0.0 * y[:, 0])))
        for x, y in rewards(3, keys=300, signals=2)
    ]
    found = history_prior.fit(*sums_of(pairs), first)
    f, r = history_prior.unit_of(keys_of(pairs), first)
    for signal in range(3):
        alone = [(x, y[:, [signal]]) for x, y in pairs]
        own = history_prior.unit_of(keys_of(alone), history().first(CONSTANT))
        assert (f[signal], r[signal]) == (own[0][0], own[1][0])
    spread = found.residuals.diagonal()
    assert spread[1] == pytest.approx(9.0 * spread[0], rel=0.3)
    assert 0.0 < spread[2] < 0.1 * spread[0]


def test_what_moves_to_turned_features_expects_the_same_of_every_arm():
    """Features that are turned, with a number more that says nothing."""
    first, features = history().first(), features_of(likes_of())
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(D + 1, D)))[0]  # x' = turn x
    moved = history_prior.moved(first, turn.T)
    seen = features @ turn.T
    np.testing.assert_allclose(seen @ moved.mean[0], features @ first.mean[0], rtol=1e-9, atol=1e-12)
    before = np.einsum("id,de,ie->i", features, first.covariance, features)
    after = np.einsum("id,de,ie->i", seen, moved.covariance, seen)
    np.testing.assert_allclose(after, before, rtol=1e-6)
    unknown = np.linalg.svd(turn)[0][:, -1]
    variance = unknown @ moved.covariance @ unknown
    assert variance == pytest.approx(np.trace(first.covariance) / D, rel=1e-6)


def test_exploration_grows_with_own_rewards():
    found = [exploration_with_history(own) for own in (0.0, 300.0, 1e9)]
    assert found == pytest.approx([0.1, 0.3, 0.5])
