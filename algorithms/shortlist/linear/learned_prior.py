"""A prior learned from the keys of a bandit: their common part, and their differences.

Notation
    N, D, J         keys with rewards, dimension of the parameters, number of signals (1 without signals)
    G, m, P, n      of a key: sum x x^T (D, D), moments sum r x^T (J, D), products sum r r^T (J, J), weight of
                    its decisions
    Theta           parameters of a key (J, D); a decision is rewarded Theta x + e with e ~ N(0, R)
    mu, S, R        mean (J, D) of Theta over keys; Theta - mu is matrix normal, with rows from S (D, D) and
                    columns from R (J, J). So Sigma = R_jj S is how much keys differ in signal j
    V, E            of a key: S^-1 + G (D, D), and the posterior mean (mu S^-1 + m) V^-1 (J, D)
    L, lambda       mean squared length of the chosen features; D / 320 L, the ridge of a key without this
                    prior

Model
    A hierarchical linear model: Theta is drawn once for each key, R and S are the same for all. S is in units
    of the noise, so V is the same matrix for every weighted sum of the signals: the posterior of w Theta is
    N(w E, w R w V^-1), and no choice factors a matrix for its weights.

Algorithm
    Expectation-maximisation for random effects (Laird and Ware, "Random-Effects Models for Longitudinal
    Data", 1982, section 3) from the sums of the keys alone. The E-step is E and V^-1, the posterior of
    choices. The M-step has the maximum likelihood estimates of mu, R and S, with additions against a collapse
    of S: a pseudo-reward in R, a share of ``_PRIOR_KEYS`` and D pseudo-keys in S, whose target is a moment of
    the sums (``_between_keys``), independent of the iteration. The deviations E - mu are multiplied by the
    factor of best fit: parameter expansion (Liu, Rubin and Wu, "Parameter Expansion to Accelerate EM", 1998).
    A fit always starts from the moments: from an earlier fit it would keep the errors.

    As bandits: Hong, Kveton, Zaheer and Ghavamzadeh, "Hierarchical Bayesian Bandits" (2022); Kveton et al.,
    "Meta-Thompson Sampling" (2021). They are given the prior of mu and R; here both are estimated.

A key whose rewards are far larger than those of the others may be counted in a unit of its own
(``reward_sizes``): then its rewards are multiplied by its f in the fit and for its posterior, which is given
in the unit of its rewards.

Units: where features or rewards are multiplied by a constant, mu, S and R are multiplied by its powers, so
choices stay the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.linear import ridge as regression
from shortlist.linear import scales
from shortlist.linear.reward_sizes import UsualSizes, usual_sizes
from shortlist.linear.ridge import Factored, Root, Scaled
from shortlist.linear.ridge_sums import RidgeSums
from shortlist.linear.signals import SignalPosteriors
from shortlist.types import Matrix, Vector

Tensor = NDArray[np.float64]

MIN_KEYS = 5  # fewer say too little about how keys differ
_STEPS = 12
_PRIOR_KEYS = 3.0  # as how many keys the prior counts that a key has without this one
_BETWEEN = (0.03, 0.9)  # least and largest share of the variance of rewards that keys can differ by
_EXPANSION = (0.1, 3.0)
_LEAST_SHARE = 1e-12  # of the squares that is left for noise where rounding leaves less
_BLOCK_NUMBERS = 1 << 17  # of the matrices that are worked on together: 1 MiB, which a core has at hand
_INVERTED_WHOLE = 24  # dimension up to which no half is worth its calls


@dataclass(frozen=True, slots=True, eq=False)
class LearnedPrior:
    """The start of new keys. All arrays are read-only.

    ``mean``            mu, of each signal (J, D)
    ``precision``       S^-1 (D, D)
    ``residuals``       R (J, J)
    ``keys``            number of keys in the fit
    ``observations``    the weight of their decisions
    ``pull``            mu S^-1 (J, D): the prior's addition to the moments
    ``least``           the least eigenvalue of S^-1
    ``ridge``           D / trace(S): the ridge of a prior of equal total variance, the same in all directions
    ``variation``       the mean of x^T S x over these decisions: the difference of keys on shown features, in
                        units of the variance of the noise
    ``sizes``           the usual sizes of keys' rewards; None: all keys are in one unit
    ``history``         number of ``keys`` from a history (``history_prior``)
    """

    mean: Matrix
    precision: Matrix
    residuals: Matrix
    keys: int
    observations: float
    pull: Matrix
    least: float
    ridge: float
    variation: float
    sizes: UsualSizes | None = None
    history: int = 0

    @classmethod
    def of(
        cls,
        mean: Matrix,
        precision: Matrix,
        residuals: Matrix,
        *,
        keys: int,
        observations: float,
        variation: float,
        sizes: UsualSizes | None = None,
        history: int = 0,
    ) -> LearnedPrior:
        """Return the prior of these numbers. Cost: O(D^3).

        Raises: InvalidShape, NonFinite, InvalidParameter.
        """
        signals, dim = mean.shape
        checks.shape("precision", precision, (dim, dim))
        checks.shape("residuals", residuals, (signals, signals))
        for name, array in (("mean", mean), ("precision", precision), ("residuals", residuals)):
            checks.finite(name, array)
        for number in residuals.diagonal().tolist():
            checks.in_range("residuals", number, above=0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            pull = mean @ precision
        checks.finite("mean times precision", pull)
        eigenvalues = np.linalg.eigvalsh(precision)
        least = float(eigenvalues[0])
        checks.in_range("precision", least, above=0.0)
        checks.in_range("variation", variation, least=0.0)
        if sizes is not None:
            for array in (sizes.mean_squares, sizes.variances):
                checks.shape("sizes", array, (signals,))
                checks.finite("sizes", array)
                checks.in_range("sizes", float(array.min()), least=0.0)
        for array in (mean, precision, residuals, pull):
            array.setflags(write=False)
        ridge = dim / float((1.0 / eigenvalues).sum())
        checks.in_range("history", history, least=0, most=keys)
        numbers = keys, observations, pull, least, ridge, variation, sizes, history
        return cls(mean, precision, residuals, *numbers)

    @property
    def own_keys(self) -> int:
        """The number of keys which are not from a history."""
        return self.keys - self.history

    @property
    def dim(self) -> int:
        """D."""
        return len(self.precision)

    @property
    def covariance(self) -> Matrix:
        """S (D, D), in units of the noise. Cost: O(D^3)."""
        return inverse_of(self.precision)

    def known(self, sums: RidgeSums) -> SignalPosteriors:
        """Return what a key with these sums knows of all signals. Cost: O(D^3 + J D^2).

        Raises: InvalidShape (of another dimension, or more signals than the prior has).
        """
        checks.shape("sums", sums.total, (self.dim * (self.dim + 3) // 2,))
        sums = sums.with_signals(len(self.mean))
        moments, residuals = sums.moments, self.residuals
        checks.shape("moments", moments, self.mean.shape)
        factors = self._factors(sums)
        if factors is None:
            thetas, root = self._solved(sums, (moments + self.pull).T)
        else:
            thetas, root = self._solved(sums, (moments * factors[:, None] + self.pull).T)
            thetas, residuals = thetas / factors, residuals / np.outer(factors, factors)
        thetas = np.ascontiguousarray(thetas.T)
        forms = np.stack((residuals, residuals))
        for array in (thetas, forms):
            array.setflags(write=False)
        return SignalPosteriors(thetas, root, self.ridge, 1.0, forms, noise_given=True)

    def posterior(self, sums: RidgeSums) -> Factored | Scaled:
        """Return the posterior of a key with these sums, of a prior without signals. Cost: O(D^3).

        Its root is one of R V^-1: ``sigma`` is the root of R. Raises: InvalidShape.
        """
        checks.shape("mean", self.mean, (1, None))
        checks.shape("sums", sums.total, (self.dim * (self.dim + 3) // 2,))
        factors, sigma = self._factors(sums), float(np.sqrt(self.residuals[0, 0]))
        if factors is None:
            theta, root = self._solved(sums, sums.moment + self.pull[0])
        else:
            theta, root = self._solved(sums, sums.moment * factors[0] + self.pull[0])
            theta, sigma = theta / factors[0], sigma / float(factors[0])
        return regression.with_noise(regression.of_root(theta, root, self.ridge), sigma)

    def _factors(self, sums: RidgeSums) -> Vector | None:
        """The factors of a key's rewards, (J,); None: 1."""
        if self.sizes is None or not sums.weight > 0.0:
            return None
        factors = self.sizes.factors(sums.products.diagonal(), sums.weight)
        return None if (factors == 1.0).all() else factors

    def _solved(self, sums: RidgeSums, moments: NDArray[np.float64]) -> tuple[Vector, Root]:
        """V^-1 of the moments, and the root of V^-1. Shapes: (D,) or (D, J) -> the same, (D, D)."""
        precision = sums.lower_gram()
        precision += self.precision  # what stands above the diagonal is not read
        missing = regression.rounding_floor(precision) - self.least
        if missing > 0.0:
            np.einsum("ii->i", precision)[:] += missing
        return regression.solved_by(precision, moments)


def fit(
    grams: Tensor, moments: Tensor, products: Tensor, weights: Vector, *, own_units: bool = False
) -> LearnedPrior | None:
    """Return the prior that the sums of N keys imply; None where they say nothing.

    ``own_units``: keys whose rewards are far larger than those of the others are counted in their own unit.

    They say nothing where fewer than ``MIN_KEYS`` keys have rewards, or all rewards are 0. A signal whose
    rewards are all 0 has mean 0 and hardly any noise.

    Shapes: grams (N, D, D), moments (N, J, D), products (N, J, J), weights (N,).
    Cost: (``_STEPS`` + 2) N D^3; memory: five times ``_BLOCK_NUMBERS`` besides the arguments.
    Raises: InvalidShape, NonFinite.
    """
    count, dim = len(grams), grams.shape[-1]
    signals = moments.shape[1] if moments.ndim == 3 else None
    checks.shape("grams", grams, (count, dim, dim))
    checks.shape("moments", moments, (count, signals, dim))
    checks.shape("products", products, (count, signals, signals))
    checks.shape("weights", weights, (count,))
    for name, array in (("grams", grams), ("moments", moments), ("products", products), ("weights", weights)):
        checks.finite(name, array)
    used = weights > 0.0
    if not used.all():
        grams, moments, products, weights = grams[used], moments[used], products[used], weights[used]
    sizes = None
    if own_units and len(weights) >= MIN_KEYS:
        key_squares = np.einsum("ujj->uj", products)
        sizes = usual_sizes(key_squares, weights)
        factors = sizes.factors(key_squares, weights)
        moments = moments * factors[:, :, None]
        products = products * factors[:, :, None] * factors[:, None, :]
    squares = np.einsum("ujj->j", products)
    named = np.flatnonzero(squares > 0.0)
    if len(weights) < MIN_KEYS or not len(named):
        return None
    keys = KeySums(grams, moments[:, named], products[:, named[:, None], named], weights, grams.sum(axis=0))
    if not keys.mean_square > 0.0:
        return None
    mean, covariance, residuals = _fitted(keys)
    all_mean = np.zeros((len(squares), dim))
    all_mean[named] = mean
    # What was never rewarded varies a little, so that who asks for it alone still explores.
    all_residuals = np.diag(np.full(len(squares), _LEAST_SHARE * residuals.diagonal().min()))
    all_residuals[named[:, None], named] = residuals
    return LearnedPrior.of(
        all_mean,
        inverse_of(covariance),
        all_residuals,
        keys=len(weights),
        observations=keys.weight,
        variation=max(0.0, float(np.vdot(keys.gram, covariance))) / keys.weight,
        sizes=sizes,
    )


@dataclass(frozen=True, slots=True, eq=False)
class KeySums:
    """The sums of the keys, of the signals that have a reward that is not 0; see ``fit``."""

    grams: Tensor
    moments: Tensor
    products: Tensor
    weights: Vector
    gram: Matrix  # the sum of all

    @property
    def dim(self) -> int:
        return len(self.grams[0])

    @property
    def weight(self) -> float:
        return float(self.weights.sum())

    @property
    def mean_square(self) -> float:
        """L."""
        return float(np.trace(self.gram)) / self.weight

    @property
    def squares(self) -> Vector:
        """Mean squared rewards. Shape: (J,)."""
        mean_squares: Vector = np.einsum("ujj->j", self.products) / self.weight
        return mean_squares

    def powers(self) -> tuple[Matrix, Matrix]:
        """Sum G^2 and sum G^3 (D, D). Cost: 2 N D^3."""
        squared, cubed = np.zeros_like(self.gram), np.zeros_like(self.gram)
        for part in _blocks(len(self.grams), self.dim):
            squares = self.grams[part] @ self.grams[part]
            squared += squares.sum(axis=0)
            cubed += np.tensordot(squares, self.grams[part], ((0, 2), (0, 1)))
        return squared, cubed

    def residual_products(self, thetas: Tensor, through: Tensor) -> Tensor:
        """Sum (r - Theta x)(r - Theta x)^T over the decisions of each key.

        ``thetas`` are Theta, ``through`` Theta G. Shapes: (N, J, D) or (J, D), (N, J, D) -> (N, J, J).
        """
        crossed = self.moments @ np.swapaxes(thetas, -1, -2)
        both = through @ np.swapaxes(thetas, -1, -2)
        residual: Tensor = self.products - crossed - np.swapaxes(crossed, -1, -2) + both
        return residual


def _fitted(keys: KeySums) -> tuple[Matrix, Matrix, Matrix]:
    """(mu, S, R) after ``_STEPS`` steps. Shapes: (J, D), (D, D), (J, J)."""
    count, dim = len(keys.weights), keys.dim
    alone = 1.0 / (scales.ridge_share(dim) * keys.mean_square)  # 1 / lambda
    pooled = dim / (
        keys.mean_square * keys.weight
    )  # what all rewards together leave unknown, for each number
    others = count - 1.0
    mean, between, within = _between_keys(keys, 1.0 / alone)
    covariance, residuals = np.eye(dim) * float((between / within).mean()), np.diag(within)
    for _ in range(_STEPS):
        step = expectations(keys, mean, covariance)
        # M-step: R, with one pseudo-reward, so that it is never 0.
        before = residuals
        residuals = keys.residual_products(step.estimates, step.through).sum(axis=0)
        residuals += before * step.uncertain
        np.einsum("jj->j", residuals)[:] = np.maximum(residuals.diagonal(), 0.0) + keys.squares
        residuals = definite(residuals / (keys.weight + 1.0))
        # M-step: mu, with one pseudo-key at 0.
        mean = step.estimates.mean(axis=0) * (others / count)
        # M-step: S.
        deviations = step.estimates - mean
        white = inverse_of(residuals)
        share = float(np.einsum("ij,ji->", white, before)) / len(residuals)  # of R before, in today's
        expansion = _expansion(keys, mean, step, white, share)
        spread = np.einsum("ujd,ji,uie->de", deviations, white, deviations, optimize=True) / len(residuals)
        spread = (spread + share * step.spread) * (expansion**2 / count)
        # DEVIATION (Laird and Ware, section 3): S has a floor, an anchor and D pseudo-keys; see the module.
        target = max(float((between / residuals.diagonal()).mean()), min(pooled, alone))
        anchor = _PRIOR_KEYS / (others + _PRIOR_KEYS)
        target = target ** (1.0 - anchor) * alone**anchor
        covariance = (others * symmetric(spread) + dim * target * np.eye(dim)) / (others + dim)
        covariance[np.diag_indices(dim)] += 1e-6 * float(np.trace(covariance)) / dim
    return mean, covariance, residuals


def _between_keys(keys: KeySums, ridge: float) -> tuple[Matrix, Vector, Vector]:
    """One mean for all, how much keys differ about it in each signal, and the noise, from moments.

    With A = sum G + ridge I the mean is sum m A^-1. Each key is a part of the mean: where keys were shown
    different arms, the mean lies close to every one of them. For a Theta with covariance t I about mu, sum |m
    - mean G|^2 is expected to be t a + s2 b, and the sum of squared residuals t b + s2 c, where a, b and c
    allow for this: with Q = sum G^2 and C = sum G^3, a = tr(Q) - 2 tr(A^-1 C) + tr(A^-1 Q A^-1 Q); in b one Q
    is G, in c both.

    Shapes: -> (J, D), (J,), (J,). Cost: 2 N D^3. Source: the method of moments for variance components with
    an estimated mean (Henderson 1953, method 3). The part of the ridge itself is left out.
    """
    weight, length = keys.weight, keys.mean_square
    inverse = inverse_of(keys.gram + ridge * np.eye(keys.dim))
    mean: Matrix = keys.moments.sum(axis=0) @ inverse
    through = mean @ keys.grams
    left = np.einsum("ujj->j", keys.residual_products(mean, through))
    left = np.maximum(left, _LEAST_SHARE * weight * keys.squares)
    apart = ((keys.moments - through) ** 2).sum(axis=(0, 2))
    squared, cubed = keys.powers()
    one, two = inverse @ keys.gram, inverse @ squared
    a = float(np.trace(squared) - 2.0 * np.vdot(inverse, cubed) + np.vdot(two.T, two))
    b = float(np.trace(keys.gram) - 2.0 * np.trace(two) + np.vdot(one.T, two))
    c = float(weight - 2.0 * np.trace(one) + np.vdot(one.T, one))
    variance = left / weight
    least, largest = (share * variance for share in _BETWEEN)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        ratio = (apart * c - left * b) / (a * c - b**2) * length
    between = np.clip(np.nan_to_num(ratio), least, largest) / length
    return mean, between, np.maximum(variance - between * length, 0.1 * variance)


@dataclass(frozen=True, slots=True, eq=False)
class Expectations:
    """The E-step. Shapes: estimates E, through E G (N, J, D); spread sum V^-1 (D, D).

    ``uncertain`` is sum tr(G V^-1).
    """

    estimates: Tensor
    through: Tensor
    spread: Matrix
    uncertain: float


def expectations(keys: KeySums, mean: Matrix, covariance: Matrix) -> Expectations:
    """E-step. Cost: N D^3."""
    dim = keys.dim
    precision = np.linalg.inv(covariance)
    pull = mean @ precision
    estimates, spread = np.empty_like(keys.moments), np.zeros((dim, dim))
    for part in _blocks(len(keys.grams), dim):
        inverses = _inverses(keys.grams[part] + precision)
        estimates[part] = (keys.moments[part] + pull) @ inverses
        spread += inverses.sum(axis=0)
    # As V = S^-1 + G: E G = m + mu S^-1 - E S^-1, and tr(G V^-1) = D - tr(S^-1 V^-1).
    through = keys.moments + pull - estimates @ precision
    uncertain = len(keys.grams) * dim - float(np.vdot(precision, spread))
    return Expectations(estimates, through, spread, max(uncertain, 0.0))


def _blocks(count: int, dim: int) -> Iterator[slice]:
    """Parts of so many matrices that a core has at hand."""
    block = max(1, _BLOCK_NUMBERS // dim**2)
    return (slice(start, start + block) for start in range(0, count, block))


def _inverses(matrices: Tensor) -> Tensor:
    """The inverses of positive definite matrices, by halves. Shape: (N, D, D). Cost: N D^3.

    Products do most of the work, at twice the speed of ``np.linalg.inv``. LAPACK's own inverse of a factor
    (``dpotri``) is as fast, but in scipy it keeps the interpreter's lock, for which all requests would wait.
    """
    inverses = np.empty_like(matrices)
    _invert(matrices, inverses)
    return inverses


def _invert(matrices: Tensor, out: Tensor) -> None:
    dim = matrices.shape[-1]
    if dim <= _INVERTED_WHOLE:
        out[...] = np.linalg.inv(matrices)
        return
    half = dim // 2
    below = matrices[:, half:, :half]
    upper, lower, corner = out[:, :half, :half], out[:, half:, half:], out[:, half:, :half]
    _invert(matrices[:, :half, :half], upper)
    turned = below @ upper
    _invert(matrices[:, half:, half:] - turned @ below.swapaxes(1, 2), lower)  # of the Schur complement
    np.negative(turned, out=turned)
    np.matmul(lower, turned, out=corner)
    upper += turned.swapaxes(1, 2) @ corner
    out[:, :half, half:] = corner.swapaxes(1, 2)


def _expansion(keys: KeySums, mean: Matrix, step: Expectations, white: Matrix, share: float) -> float:
    """The factor of the deviations from the mean by which rewards are explained best."""
    deviations = step.estimates - mean
    # sum (E - mu) G mu^T, of sums over keys alone: products with each G would cost a tenth of the fit
    common = (step.through.sum(axis=0) - mean @ keys.gram) @ mean.T
    explained = np.tensordot(deviations, keys.moments, ((0, 2), (0, 2))) - common
    turned = np.tensordot(deviations, step.through, ((0, 2), (0, 2))) - common
    expected = float(np.vdot(white, turned)) + share * len(white) * step.uncertain
    least, largest = _EXPANSION
    return min(max(float(np.vdot(white, explained)) / expected, least), largest) if expected > 0.0 else 1.0


def definite(matrix: Matrix) -> Matrix:
    """A covariance, kept from being singular by rounding where signals are copies of one another."""
    adjusted = symmetric(matrix)
    if len(adjusted) > 1:
        adjusted *= 1.0 - 1e-6
        np.einsum("jj->j", adjusted)[:] /= 1.0 - 1e-6
    return adjusted


def symmetric(matrix: NDArray[np.floating]) -> Matrix:
    half: Matrix = (matrix + matrix.T) / 2.0
    return half


def inverse_of(matrix: Matrix) -> Matrix:
    """The inverse of a symmetric matrix, symmetric."""
    return symmetric(np.linalg.inv(matrix))
