"""The prior of a history: the learned prior of a bandit before it has keys of its own.

Notation
    H               keys x arms: 1 where a key liked an arm, else 0
    X, x_i          features of the arms (arms, d) from the decomposition of H: X^T X is diagonal
    theta_u         h_u X (X^T X)^-1, the tastes of key u: mean mu (d,) and covariance C (d, d) over keys
    g               the real share of each direction (``embedding.real_share``)
    p_i             share of the keys that liked arm i
    left_i          p_i (1 - p_i) - x_i C x_i: the variance of arm i left by features
    R, S0           sum p left / sum p; C sqrt(g g^T) / R, in units of the noise as ``LearnedPrior`` is
    c               the last coordinate of a learner's features of an arm, with an intercept
    N, D, J, G, m   as in ``learned_prior``

A new bandit draws its keys from N(mu, R S0). In each later fit the history counts as ``_KEYS`` keys, beside
the N keys of the bandit, so a fit needs no fewest keys. Expectation-maximisation is that of
``learned_prior``, with other targets in its M-step:

    S = (the fit + _KEYS kappa S0) / (N + _KEYS) mu = (sum E + _MEAN_KEYS alpha mu0) / (N + _MEAN_KEYS)

kappa and alpha are how much more these keys differ, and like, than those of the history.

A like of the history is not a reward: a history may have a fifth of the likes, or views where rewards are
purchases. So each fit first finds the unit of the history (``unit_of``): theta ~ N(f mu, f^2 R S0) with noise
r R, of the largest marginal likelihood of the keys' sums. Without it a thin history loses.

Several signals: each has an f and an r of its own, and S0 is multiplied by the geometric mean of f^2 / r.

Source: an empirical Bayes prior, as ``learned_prior``; found by experiments of November 2026.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from shortlist import checks
from shortlist.linear.learned_prior import (
    KeySums,
    LearnedPrior,
    Tensor,
    definite,
    expectations,
    inverse_of,
    symmetric,
)
from shortlist.linear.reward_sizes import usual_sizes
from shortlist.types import Matrix, Vector

LEAST_KEYS = 10  # a history of fewer has no prior: its mean would be nearly what one of them likes
_KEYS, _MEAN_KEYS, _NOISE_REWARDS = 100.0, 30.0, 100.0  # as how many keys and rewards a history counts
_STEPS = 8
_INTERCEPT = 0.3  # standard deviation of what keys like of everything, as a share of how often arms are liked
_FLOOR = 1e-4  # of the mean variance, in every direction
_LEAST_LEFT = 1e-6
_FACTORS = (0.05, 20.0), (0.1, 10.0)  # of kappa, of alpha
_UNITS = np.arange(-2, 7) / 2.0, np.arange(-1, 4)  # log2 of f and of r
_UNIT_SPREAD = 1.5  # standard deviation of log f and of log r
_UNIT_KEYS = 300  # that tell the unit
_FAR = 4.0  # log2 of how much larger or smaller rewards are than likes, beyond which the grid is no help


@dataclass(frozen=True, slots=True, eq=False)
class HistoryPrior:
    """The prior of keys from a history.

    ``mean``        mu (d,)
    ``covariance``  S0 (d, d), in units of the noise
    ``noise``       R
    ``liking``      sum p^2 / sum p: the frequency of likes of an arm, weighed by likes
    ``keys``        number of its keys
    ``directions``  number of real ones among the d directions
    """

    mean: Vector
    covariance: Matrix
    noise: float
    liking: float
    keys: int
    directions: int

    def check(self) -> None:
        """Raise InvalidShape, NonFinite or InvalidParameter."""
        dim = len(self.mean)
        checks.shape("mean", self.mean, (dim,))
        checks.shape("covariance", self.covariance, (dim, dim))
        checks.finite("mean", self.mean)
        checks.finite("covariance", self.covariance)
        checks.in_range("noise", self.noise, above=0.0)
        checks.in_range("liking", self.liking, above=0.0, most=1.0)
        checks.in_range("keys", self.keys, least=LEAST_KEYS, whole=True)
        checks.in_range("directions", self.directions, least=1, most=dim, whole=True)
        checks.in_range("covariance", float(np.linalg.eigvalsh(self.covariance)[0]), above=0.0)

    def first(self, constant: float | None = None, *, signals: int = 1) -> LearnedPrior:
        """Return the prior of a bandit without own keys. ``constant``: c; None: without an intercept.

        Each of the signals is expected to be as a like. Cost: O(D^3).
        """
        dim = len(self.mean)
        size = dim + (constant is not None)
        mean, covariance = np.zeros(size), np.zeros((size, size))
        mean[:dim], covariance[:dim, :dim] = self.mean, self.covariance
        if constant is not None:
            covariance[dim, dim] = (_INTERCEPT * self.liking / constant) ** 2 / self.noise
        return LearnedPrior.of(
            np.tile(mean, (signals, 1)),
            inverse_of(covariance),
            self.noise * np.eye(signals),
            keys=self.keys,
            observations=0.0,
            variation=0.0,
            history=self.keys,
        )


def of_embedding(liked: sparse.csr_array, features: Matrix, share: Vector) -> HistoryPrior | None:
    """Return what the keys of an embedding show; None where they are too few, or do not differ.

    ``liked`` is H, ``features`` are X, ``share`` is g. Shapes: (keys, arms), (arms, d), (d,).
    Cost: O(likes d + (keys + arms) d^2); memory: keys x d numbers. Raises: InvalidShape, NonFinite.
    """
    checks.shape("features", features, (liked.shape[1], None))
    checks.shape("share", share, (features.shape[1],))
    checks.finite("features", features)
    checks.finite("share", share)
    liked = liked[np.diff(liked.indptr) > 0]
    keys, dim = liked.shape[0], features.shape[1]
    if keys < LEAST_KEYS:
        return None
    tastes = (liked @ features) / np.maximum(np.square(features).sum(axis=0), np.finfo(float).tiny)
    roots = np.sqrt(share)
    about = tastes - tastes.mean(axis=0)
    covariance = about.T @ about / keys * np.outer(roots, roots)
    liking = np.asarray(liked.sum(axis=0, dtype=np.float64)).ravel() / keys
    explained = np.einsum("id,id->i", features @ covariance, features)
    left = np.maximum(liking * (1.0 - liking) - explained, _LEAST_LEFT)
    noise = float(np.average(left, weights=liking))
    total = float(np.trace(covariance))
    if not total > 0.0:
        return None
    covariance = symmetric(covariance / noise)
    covariance[np.diag_indices(dim)] += _FLOOR * total / noise / dim
    return HistoryPrior(
        tastes.mean(axis=0),
        covariance,
        noise,
        float(liking @ liking / liking.sum()),
        keys,
        max(1, int(np.count_nonzero(share >= 0.5))),
    )


def fit(
    grams: Tensor,
    moments: Tensor,
    products: Tensor,
    weights: Vector,
    first: LearnedPrior,
) -> LearnedPrior:
    """Return the prior of N keys and a history. ``first``: of the history alone, ``HistoryPrior.first``.

    Always from ``first``, never from an earlier fit. Arguments, memory and errors as ``learned_prior.fit``.
    Cost: (``_STEPS`` + 1) N D^3, and 13 factorisations of at most ``_UNIT_KEYS`` keys.
    """
    used = weights > 0.0
    grams, moments, products, weights = grams[used], moments[used], products[used], weights[used]
    if not len(weights):
        return first
    checks.shape("grams", grams, (len(weights), first.dim, first.dim))
    checks.shape("moments", moments, (len(weights), *first.mean.shape))
    for name, array in (("grams", grams), ("moments", moments), ("products", products), ("weights", weights)):
        checks.finite(name, array)
    key_squares = np.einsum("ujj->uj", products)
    sizes = usual_sizes(key_squares, weights)
    factors = sizes.factors(key_squares, weights)
    moments = moments * factors[:, :, None]
    products = products * factors[:, :, None] * factors[:, None, :]
    keys = KeySums(grams, moments, products, weights, grams.sum(axis=0))
    mean, covariance, residuals = _fitted(keys, _in_unit(first, keys))
    return LearnedPrior.of(
        mean,
        inverse_of(covariance),
        residuals,
        keys=first.history + len(weights),
        observations=keys.weight,
        variation=max(0.0, float(np.vdot(keys.gram, covariance))) / keys.weight,
        sizes=sizes,
        history=first.history,
    )


def unit_of(keys: KeySums, first: LearnedPrior) -> tuple[Vector, Vector]:
    """Return f and r of each signal: of the largest marginal likelihood of the sums of the first keys.

    Shapes: (J,), (J,). Cost: 13 Cholesky factors of (D + 2 J, D + 2 J) for each key.
    """
    part = slice(0, _UNIT_KEYS)
    grams, moments, weight = keys.grams[part], keys.moments[part], float(keys.weights[part].sum())
    squares = np.einsum("ujj->j", keys.products[part])
    signals, dim = first.mean.shape
    through = first.mean @ grams
    # A row below a matrix becomes its product with the inverse of the factor: one factor tells all forms.
    bordered = np.zeros((len(grams), dim + 2 * signals, dim + 2 * signals))
    bordered[:, dim : dim + signals, :dim], bordered[:, dim + signals :, :dim] = moments, through
    best = np.full(signals, -np.inf)
    units = np.ones((2, signals))
    logs, noises = _UNITS
    logdet_first = -float(np.linalg.slogdet(first.precision)[1])
    for power in sorted({2.0 * log_f - log_r for log_f in logs for log_r in noises.tolist()}):
        bordered[:, :dim, :dim] = grams + first.precision / 2.0**power
        rows = bordered[:, dim:, :dim]
        corner = 1.0 + np.square(rows).sum(axis=(1, 2)) * (2.0**power / first.least)
        np.einsum("ujj->uj", bordered[:, dim:, dim:])[:] = corner[:, None]
        factors = np.linalg.cholesky(bordered)
        diagonal = np.einsum("udd->ud", factors[:, :dim, :dim])
        logdet = 2.0 * float(np.log(diagonal).sum()) + len(grams) * (logdet_first + dim * power * np.log(2.0))
        solved, mapped = factors[:, dim : dim + signals, :dim], factors[:, dim + signals :, :dim]
        c = squares - np.square(solved).sum(axis=(0, 2))
        b = np.einsum("ujd,jd->j", moments, first.mean) - (solved * mapped).sum(axis=(0, 2))
        a = np.einsum("ujd,jd->j", through, first.mean) - np.square(mapped).sum(axis=(0, 2))
        for log_f in logs:
            log_r = 2.0 * log_f - power
            if log_r not in noises:
                continue
            f, r = 2.0**log_f, 2.0**log_r
            noise = r * first.residuals.diagonal()
            left = np.maximum(c - 2.0 * f * b + f * f * a, 0.0)
            unlikely = (np.log(f) ** 2 + np.log(r) ** 2) / _UNIT_SPREAD**2
            value = -0.5 * (weight * np.log(noise) + logdet + left / noise + unlikely)
            better = value > best
            best[better], units[0, better], units[1, better] = value[better], f, r
    return units[0], units[1]


def _in_unit(first: LearnedPrior, keys: KeySums) -> LearnedPrior:
    """The history in the unit of the rewards of these keys."""
    sizes = _sizes(first, keys)
    if (sizes != 1.0).any():
        first = _scaled(first, sizes, sizes, 1.0)
    f, r = unit_of(keys, first)
    return _scaled(first, f, np.sqrt(r), float(np.exp(np.log(f * f / r).mean())))


def _sizes(first: LearnedPrior, keys: KeySums) -> Vector:
    """The factor of rewards over likes, where far beyond the grid: sales in cents. (J,)."""
    about = np.einsum("jd,de,je->j", first.mean, keys.gram, first.mean)
    variances = first.residuals.diagonal() * (keys.weight + np.vdot(keys.gram, first.covariance))
    sizes: Vector = np.sqrt(keys.weight * keys.squares / (about + variances))
    return np.where((sizes > 0.0) & (np.abs(np.log2(np.maximum(sizes, 1e-300))) > _FAR), sizes, 1.0)


def _scaled(first: LearnedPrior, means: Vector, noises: Vector, spread: float) -> LearnedPrior:
    return LearnedPrior.of(
        means[:, None] * first.mean,
        first.precision / spread,
        first.residuals * np.outer(noises, noises),
        keys=first.keys,
        observations=0.0,
        variation=0.0,
        history=first.history,
    )


def _fitted(keys: KeySums, first: LearnedPrior) -> tuple[Matrix, Matrix, Matrix]:
    """(mu, S, R) after ``_STEPS`` steps. Shapes: (J, D), (D, D), (J, J)."""
    count, (signals, dim) = len(keys.weights), first.mean.shape
    mean, covariance, residuals = first.mean, inverse_of(first.precision), first.residuals
    beside = covariance
    squares, kappa = (first.mean * first.pull).sum(axis=1), 1.0
    (least_kappa, most_kappa), alphas = _FACTORS
    for _ in range(_STEPS):
        step = expectations(keys, mean, covariance)
        left = keys.residual_products(step.estimates, step.through).sum(axis=0)
        np.einsum("jj->j", left)[:] = np.maximum(left.diagonal(), 0.0)
        before = residuals
        residuals = left + before * step.uncertain + _NOISE_REWARDS * first.residuals
        residuals = definite(residuals / (keys.weight + _NOISE_REWARDS))
        total = step.estimates.sum(axis=0)
        alpha = (np.einsum("jd,jd->j", first.pull, total) / kappa + 1.0) / (count * squares / kappa + 1.0)
        alpha = np.clip(alpha, *alphas)
        mean = (total + _MEAN_KEYS * alpha[:, None] * first.mean) / (count + _MEAN_KEYS)
        deviations = step.estimates - mean
        white = inverse_of(residuals)
        share = float(np.vdot(white, before)) / signals  # of R before, in today's
        spread = np.einsum("ujd,ji,uie->de", deviations, white, deviations, optimize=True) / signals
        spread += share * step.spread
        kappa = (float(np.vdot(first.precision, spread)) + _KEYS) / (count * dim + _KEYS)
        kappa = min(max(kappa, least_kappa), most_kappa)
        covariance = symmetric((spread + _KEYS * kappa * beside) / (count + _KEYS))
    return mean, covariance, residuals


def moved(first: LearnedPrior, transform: Matrix) -> LearnedPrior:
    """Return the history's prior for other features: x is near T x', so theta' is near T^T theta.

    ``transform`` is T (D, D'). Directions that the old features do not tell get the mean variance of the
    others. Cost: O(D'^3). Raises: InvalidShape, NonFinite.
    """
    checks.shape("transform", transform, (first.dim, None))
    covariance = symmetric(transform.T @ first.covariance @ transform)
    values, vectors = np.linalg.eigh(covariance)
    is_known = values > _FLOOR * values.mean()
    unknown = vectors[:, ~is_known]
    covariance += float(values[is_known].mean()) * unknown @ unknown.T
    return LearnedPrior.of(
        first.mean @ transform,
        inverse_of(covariance),
        np.array(first.residuals),
        keys=first.keys,
        observations=0.0,
        variation=0.0,
        history=first.history,
    )
