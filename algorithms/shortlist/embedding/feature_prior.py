"""The prior of a new key's taste from the keys of a history, for any features of arms.

Notation
    H           keys x arms: 1 where a key liked an arm, else 0
    p_i         share of keys that liked arm i
    F           features of arms (K, D), made of H and of any other data
    F_q         features (K, D_q) made of the keys outside of fold q alone
    theta       tastes: of a key with the row h, the theta with F theta nearest to h, (F^T F)^-1 F^T h (D,)
    M_q         (F^T F)^-1 F^T F_q (F_q^T F_q)^-1: the map of F_q^T h to theta (D, D_q)
    left_i      p_i (1 - p_i) - f_i C f_i, at least ``LEAST_LEFT``: the variance of arm i left open by tastes
    mu, C, R    mean of theta, its covariance, and the mean of left_i weighed by p_i

    C = mean over keys of d d^T, less mean over folds of M_q F_q^T diag(left) F_q M_q^T,
    d = M_q F_q^T (h - p of the other folds), of a key of fold q

Features made of a key fit this key better than any other, so the covariance of tastes is taken from keys
without a part in them, less the noise of their likes. C is then clipped: in coordinates with equal mean
squares of arms, no variance is below ``LEAST_VARIANCE`` of the mean, since a taste assumed equal in all keys
could not be learned of any. Features made without likes, as those of a table, need no rule of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.linear.history_prior import LEAST_KEYS, HistoryPrior
from shortlist.types import Matrix, Vector

FOLDS = 5
TESTED_KEYS = 20_000  # folds are tested until they have as many keys
ROUNDS = 8  # the noise depends on what is real
LEAST_LEFT = 1e-6
LEAST_VARIANCE = 0.01
LEAST_TOTAL = 0.01  # of the mean of p (1 - p), where keys do not seem to differ
# Of F^T F, of its largest. Arms hardly differ in a direction of less: tastes along it would be so large that
# an arm without a value, and so off the others, gets a reward beyond all arms.
LEAST_EIGENVALUE = 1e-3

Make = Callable[[sparse.csr_array], Matrix]


def fit(liked: sparse.csr_array, make: Make, rng: np.random.Generator, *, directions: int) -> HistoryPrior:
    """Return the prior of tastes, for the features made of all keys. ``liked`` is H.

    ``make`` returns the features made of some rows of H. ``rng`` draws the folds. ``directions``: how many
    of them are real. Cost: that of ``make`` six times, or fewer where a fold has more than a fifth of
    ``TESTED_KEYS``; and O(likes D + K D^2) each.
    Raises: NonFinite, InvalidParameter (fewer than ``LEAST_KEYS`` keys with a like).
    """
    checks.finite("liked", liked.data)
    liked = liked[np.diff(liked.indptr) > 0]
    if liked.shape[0] < LEAST_KEYS:
        raise InvalidParameter(f"liked must have likes of {LEAST_KEYS} keys", argument="liked")
    features = make(liked)
    shares = _shares(liked)
    inverse = _inverse(features)
    mean: Vector = inverse @ (features.T @ shares)
    parts = [_Part.of(liked, is_out, features, inverse, make) for is_out in _folds(liked.shape[0], rng)]
    covariance = np.zeros_like(inverse)
    for _ in range(ROUNDS):
        summed = np.zeros_like(inverse)
        for part in parts:
            summed += part.squares - part.keys * part.noise(features, covariance)
        covariance = _clipped(summed / max(sum(part.keys for part in parts), 1), features, shares)
    noise = float(np.average(_left(features, covariance, shares), weights=shares))
    liking = float(shares @ shares / shares.sum())
    return HistoryPrior(mean, covariance / noise, noise, liking, liked.shape[0], directions)


def tastes(prior: HistoryPrior, features: Matrix, liked: sparse.csr_array) -> Matrix:
    """Return the expected tastes of some keys, by what of their likes is known. Shape: (keys, D).

    A row of H counts as it is, with the noise R; a key of which nothing is known has the mean.
    Cost: O(K D^2 + likes D).
    """
    precision = np.linalg.inv(prior.covariance)
    moments = liked @ features + prior.mean @ precision
    solved: Matrix = np.linalg.solve(precision + features.T @ features, moments.T).T.astype(np.float64)
    solved[np.diff(liked.indptr) == 0] = prior.mean
    return solved


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A fold. Shapes: squares (D, D), weights M_q F_q^T (D, K), shares (K,), of the keys outside of it."""

    keys: int
    squares: Matrix
    weights: Matrix
    shares: Vector

    @classmethod
    def of(
        cls,
        liked: sparse.csr_array,
        is_left_out: NDArray[np.bool_],
        features: Matrix,
        inverse: Matrix,
        make: Make,
    ) -> _Part:
        others, tested = liked[~is_left_out], liked[is_left_out]
        prior, shares = make(others), _shares(others)
        weights = inverse @ (features.T @ prior) @ _inverse(prior) @ prior.T
        deviations = tested @ weights.T - weights @ shares
        return cls(tested.shape[0], deviations.T @ deviations, weights, shares)

    def noise(self, features: Matrix, covariance: Matrix) -> Matrix:
        """The noise of one key's tastes. Shape: (D, D)."""
        noise: Matrix = (self.weights * _left(features, covariance, self.shares)) @ self.weights.T
        return noise


def _folds(keys: int, rng: np.random.Generator) -> list[NDArray[np.bool_]]:
    """The keys left out, for each tested fold."""
    fold = rng.integers(0, FOLDS, keys)
    sizes = np.cumsum(np.bincount(fold, minlength=FOLDS))
    tested = range(1 + int(np.searchsorted(sizes[:-1], TESTED_KEYS)))
    return [fold == one for one in tested if 0 < np.count_nonzero(fold == one) < keys]


def _shares(liked: sparse.csr_array) -> Vector:
    shares: Vector = np.asarray(liked.sum(axis=0, dtype=np.float64)).ravel() / liked.shape[0]
    return shares


def _left(features: Matrix, covariance: Matrix, shares: Vector) -> Vector:
    told = np.einsum("ij,ij->i", features @ covariance, features)
    left: Vector = np.maximum(shares * (1.0 - shares) - told, LEAST_LEFT)
    return left


def _inverse(features: Matrix) -> Matrix:
    """(F^T F)^-1, of the directions that arms have."""
    values, vectors = np.linalg.eigh(features.T @ features)
    has = values > LEAST_EIGENVALUE * values[-1]
    inverse: Matrix = (vectors[:, has] / values[has]) @ vectors[:, has].T
    return inverse


def _clipped(estimate: Matrix, features: Matrix, shares: Vector) -> Matrix:
    """The symmetric matrix with its variances clipped, where arms have equal mean squares."""
    values, vectors = np.linalg.eigh(features.T @ features / len(features))
    scale = np.sqrt(np.maximum(values, LEAST_EIGENVALUE * values[-1]))
    to, back = (vectors * scale) @ vectors.T, (vectors / scale) @ vectors.T
    variances, turn = np.linalg.eigh(to @ estimate @ to)
    total = np.maximum(variances, 0.0).sum()
    least = (
        LEAST_VARIANCE * max(total, LEAST_TOTAL * float((shares * (1.0 - shares)).mean())) / len(variances)
    )
    clipped: Matrix = back @ (turn * np.maximum(variances, least)) @ turn.T @ back
    return (clipped + clipped.T) / 2.0
