"""Online ridge regression: the sums a learner keeps, and the posterior they imply.

Notation
    d               dimension of the features
    x, r            features of a chosen arm (d,), its reward
    gram            sum x x^T (d, d), without the ridge
    moment          sum r x (d,)
    V               ridge * I + gram (d, d), the precision
    theta           V^-1 moment (d,), the estimate theta^ of the paper
    root            (d, d) with V^-1 = root root^T; L^-T for the Cholesky factor L of V, until ``learned``
    ||x||_{V^-1}    sqrt(x^T V^-1 x), the width of x: how uncertain x.theta is

Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", Equation 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from app.algorithms import checks
from app.algorithms.types import Matrix, Vector
from app.errors import InvalidParameter

_BLOCK_ROWS = 4096
_SHORT = 256


@dataclass(frozen=True, slots=True, eq=False)
class RidgeSums:
    """What a learner has seen. ``gram - gram_error`` is sum x x^T, ``moment - moment_error`` sum r x.

    The error terms are below half a unit in the last place of the sums; they are part of the state,
    because the next addition takes them up. Shapes: (d, d), (d,), (d, d), (d,). ``observations`` counts
    the rows that were ``first``.
    """

    gram: Matrix
    moment: Vector
    gram_error: Matrix
    moment_error: Vector
    observations: int


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """The estimate and the precision after some rewards; all arrays are read-only.

    Shapes: theta (d,), root (d, d). ``ridge`` is the one in V: see ``posterior``.
    """

    theta: Vector
    root: Matrix
    ridge: float


def empty(dim: int) -> RidgeSums:
    """Return the sums of no reward at all. Raises InvalidParameter (dim < 1)."""
    if dim < 1:
        raise InvalidParameter("dim must be at least 1", loc=("dim",))
    return RidgeSums(np.zeros((dim, dim)), np.zeros(dim), np.zeros((dim, dim)), np.zeros(dim), 0)


def add(sums: RidgeSums, features: Matrix, values: Vector, first: NDArray[np.bool_]) -> RidgeSums:
    """Return the sums after more rewards, one row after the other.

    A row with ``first`` false is a further reward for a decision already counted: it adds r x to the
    moment and nothing else. Every entry is a compensated sum (Kahan) in row order, so the result is the
    same to the bit however a log is cut into batches, and its error does not grow with the number of rows.

    Shapes: features (n, d), values (n,), first (n,).
    Cost: n d (d + 1) multiply-adds, five array operations a row.
    Raises: InvalidShape, NonFinite (also when a sum leaves the range of float64).
    """
    dim = len(sums.moment)
    checks.shape("features", features, (None, dim))
    checks.shape("values", values, (len(features),))
    checks.shape("first", first, (len(features),))
    left = np.ascontiguousarray(features, dtype=np.float64)
    right = np.empty((len(left), dim + 1))
    right[:, :dim] = left
    right[:, dim] = values
    counted = int(np.count_nonzero(first))
    if counted < len(left):
        right[~first, :dim] = 0.0
    total, error = _side_by_side(sums.gram, sums.moment), _side_by_side(sums.gram_error, sums.moment_error)
    with np.errstate(over="ignore", invalid="ignore"):
        total = _fold(total, error, left, right)
    if not np.isfinite(total).all():  # which is to blame is looked for only then
        checks.finite("features", features)
        checks.finite("values", values)
        checks.finite("features and values", total)
    return RidgeSums(
        gram=total[:, :dim].copy(),
        moment=total[:, dim].copy(),
        gram_error=error[:, :dim].copy(),
        moment_error=error[:, dim].copy(),
        observations=sums.observations + counted,
    )


def _side_by_side(matrix: Matrix, vector: Vector) -> Matrix:
    """A new array (d, d + 1) with the vector as the last column."""
    both = np.empty((len(vector), len(vector) + 1))
    both[:, :-1] = matrix
    both[:, -1] = vector
    return both


def _fold(total: Matrix, error: Matrix, left: Matrix, right: Matrix) -> Matrix:
    """Add every left[i] right[i]^T to ``total - error``; changes both, returns the new total."""
    multiply, subtract, plus = np.multiply, np.subtract, np.add
    term, spare = np.empty_like(total), np.empty_like(total)
    for column, row in zip(left[:, :, None], right, strict=True):
        multiply(column, row, out=term)
        subtract(term, error, out=term)
        plus(total, term, out=spare)
        subtract(spare, total, out=error)
        subtract(error, term, out=error)
        total, spare = spare, total
    return total


def prior(dim: int, *, ridge: float) -> Posterior:
    """Return the posterior of a learner that has seen nothing: theta = 0, V = ridge * I."""
    return posterior(empty(dim), ridge=ridge)


def posterior(sums: RidgeSums, *, ridge: float) -> Posterior:
    """Return theta = V^-1 moment and the factors of V = ridge * I + gram.

    A ridge below the rounding noise of gram is raised to it (``rounding_floor``), so the factorisation
    always succeeds; ``Posterior.ridge`` says which ridge was used. The relative error of theta is about
    1e-16 * d * cond(V).

    Cost: O(d^3). Raises InvalidParameter (ridge <= 0, not finite).
    """
    checks.in_range("ridge", ridge, above=0.0)
    dim = len(sums.moment)
    # DEVIATION (Eq. 1): collinear features and a tiny ridge make I + X^T X numerically singular.
    used = max(ridge, rounding_floor(sums.gram))
    factor, failed = lapack.dpotrf(sums.gram + used * np.eye(dim), lower=1, clean=1)
    inverse, singular = lapack.dtrtri(factor, lower=1)
    if failed or singular:
        raise InvalidParameter("ridge and gram must make a positive definite matrix", loc=("ridge",))
    theta, _ = lapack.dpotrs(factor, sums.moment, lower=1)
    return _read_only(theta, np.ascontiguousarray(inverse.T), used)


def learned(before: Posterior, features: Vector, value: float) -> Posterior:
    """Return the posterior after one more reward, from the one before it.

    V' = V + x x^T. With z = root^T x, u = V^-1 x and s^2 = 1 + z.z, I - z z^T / (s^2 + s) is the square root
    of (I + z z^T)^-1, so root' = root - u z^T / (s^2 + s); theta' = theta + u (r - x.theta) / s^2 (Sherman
    and Morrison). For a learner whose rewards come one by one: no sums are kept, and rounding adds
    up, about 1e-16 * cond(V) a reward. Whoever needs the same bits from any batches folds ``RidgeSums``.

    Shapes: features (d,). Cost: 4 d^2 multiply-adds.
    """
    theta, root = before.theta, before.root
    turned = features @ root
    towards = root @ turned
    spread = 1.0 + float(turned @ turned)
    shrunk = towards * (1.0 / (spread + math.sqrt(spread)))
    moved = towards * ((value - float(features @ theta)) / spread)
    return _read_only(theta + moved, root - np.multiply.outer(shrunk, turned), before.ridge)


def _read_only(theta: Vector, root: Matrix, ridge: float) -> Posterior:
    theta.setflags(write=False)
    root.setflags(write=False)
    return Posterior(theta, root, ridge)


def rounding_floor(gram: Matrix) -> float:
    """Return the least ridge at which a Cholesky factorisation of ridge * I + gram cannot fail.

    d (d + 4) eps max_i gram_ii: twice what Higham, "Accuracy and Stability of Numerical Algorithms",
    Theorem 10.7 asks for, with the rounding of gram itself counted in (docs/papers.md, section 1).
    """
    dim = len(gram)
    return float(dim * (dim + 4) * np.finfo(np.float64).eps * gram.diagonal().max())


def widths(posterior: Posterior, features: Matrix) -> Vector:
    """Return ||x||_{V^-1} of every row of ``features`` (float32 or float64).

    Shapes: features (n, d) -> (n,). Cost: n d^2 multiply-adds, n d for many rows of a prior; in blocks: O(d)
    extra memory per row of a block. Raises: InvalidShape.
    """
    if features.ndim != 2 or features.shape[1] != len(posterior.theta):
        checks.shape("features", features, (None, len(posterior.theta)))
    if len(features) <= _SHORT:
        turned = features @ posterior.root
        few: Vector = np.sqrt(np.vecdot(turned, turned))
        return few
    if _is_scalar(posterior.root):  # no reward yet
        norms = np.sqrt(np.einsum("ij,ij->i", features, features, dtype=np.float64))
        scaled: Vector = float(posterior.root[0, 0]) * norms
        return scaled
    found = np.empty(len(features))
    for start in range(0, len(features), _BLOCK_ROWS):
        turned = features[start : start + _BLOCK_ROWS] @ posterior.root
        np.einsum("ij,ij->i", turned, turned, out=found[start : start + _BLOCK_ROWS])
    return np.sqrt(found, out=found)


def _is_scalar(matrix: Matrix) -> bool:
    """Whether it is a multiple of the identity."""
    diagonal = matrix.diagonal()
    return int(np.count_nonzero(matrix)) == len(diagonal) and bool((diagonal == diagonal[0]).all())
