"""Ridge regression: the posterior that the sums of a learner (``ridge_sums``) imply.

Notation
    d               dimension of the features
    x, r            features of a chosen arm (d,), its reward
    gram, moment    sum x x^T (d, d) and sum r x (d,)
    V               ridge * I + gram (d, d), the precision
    theta           V^-1 moment (d,), the estimate theta^ of the paper
    root            (d, d) with V^-1 = root root^T; L^-T for the Cholesky factor L of V, until ``learned``;
                    of more than 128 dimensions as L, with which a draw solves
    ||x||_{V^-1}    sqrt(x^T V^-1 x), the width of x: how uncertain x.theta is

Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", Equation 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.linear.ridge_sums import RidgeSums, empty
from shortlist.types import Matrix, Vector

_BLOCK_ROWS = 4096
_SHORT = 256
_BLOCK = 256  # a factorisation of this many dimensions takes a millisecond or two
WIDE_DIM = 128  # beyond, the inverse of a factor takes longer than the factorisation


class Posterior(Protocol):
    """The estimate and a root of V^-1 after some rewards; all arrays are read-only.

    ``ridge`` is the one in V, which may be larger than what was asked for: see ``posterior``. ``sigma`` is
    the standard deviation of a reward about its mean; the root is one of sigma^2 V^-1.
    Shapes: theta (d,), root (d, r) with r >= d.
    """

    @property
    def theta(self) -> Vector:
        """The estimate. Shape: (d,)."""
        ...

    @property
    def root(self) -> Matrix:
        """A root of V^-1. Shape: (d, r)."""
        ...

    @property
    def ridge(self) -> float:
        """The ridge in V."""
        ...

    @property
    def sigma(self) -> float:
        """The noise of rewards; 1 unless it was learned."""
        ...

    @property
    def unit(self) -> float:
        """The deviation by which temperatures are measured: ``sigma``, or what counts theta too."""
        ...

    @property
    def ratio(self) -> float:
        """The u of ``evidence`` that the ridge means; 0 where nothing follows from it."""
        ...

    def noise(self, rng: np.random.Generator) -> Vector:
        """A draw from N(0, V^-1). Shape: -> (d,). Cost: r normal draws."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Factored:
    """A ``Posterior`` whose root is square. Shapes: theta (d,), root (d, d).

    ``length``: the mean squared length of the arms that its unit is of; 0: its unit is sigma.
    """

    theta: Vector
    root: Matrix
    ridge: float
    sigma: float = 1.0
    length: float = 0.0

    @property
    def unit(self) -> float:
        """The deviation of a reward that was not seen yet: sigma, and the mean width. Cost: d^2."""
        return math.sqrt(self.sigma**2 + mean_variance(self.root, self.length)) if self.length else self.sigma

    @property
    def ratio(self) -> float:
        """The squared length that its unit is of, over the ridge."""
        return self.length / self.ridge

    def noise(self, rng: np.random.Generator) -> Vector:
        """Return root xi, xi standard normal. Shape: -> (d,). Cost: d normal draws, d^2 multiply-adds."""
        return self.root @ rng.standard_normal(len(self.theta))


@dataclass(frozen=True, slots=True, eq=False)
class DenseRoot:
    """A root of V^-1 as it is. Shape: array (d, d)."""

    array: Matrix

    def matrix(self) -> Matrix:
        """Shape: (d, d)."""
        return self.array

    def squares(self) -> float:
        """The sum of the squares of its numbers."""
        return float(np.vdot(self.array, self.array))

    def times(self, vector: Vector) -> Vector:
        """Return the root times a vector. Shapes: (d,) -> (d,). Cost: d^2 multiply-adds."""
        product: Vector = self.array.dot(vector)
        return product


@dataclass(slots=True, eq=False)
class FactorRoot:
    """The root L^-T by the factor: a draw solves L^T y = xi, and never needs the inverse.

    ``factor``: L^T, packed by columns. ``inverse``: L^-T in the same way, once it was asked for. So both have
    as many numbers as one square. Shapes: (d (d + 1) / 2,) both.
    """

    dim: int
    factor: Vector
    inverse: Vector | None = None

    @classmethod
    def of(cls, lower: Matrix) -> FactorRoot:
        """The root of V^-1 = L^-T L^-1, of L as ``factor_precision`` has it. Cost: d^2."""
        return cls(len(lower), _packed(lower.T))

    def matrix(self) -> Matrix:
        """Shape: (d, d), a new array. Cost: O(d^3) when it is first asked for, then d^2."""
        unpacked: Matrix = lapack.dtpttr(self.dim, self._inverted(), uplo="U")[0]
        return unpacked

    def squares(self) -> float:
        """The sum of the squares of its numbers."""
        return float(np.vdot(self._inverted(), self._inverted()))

    def times(self, vector: Vector) -> Vector:
        """Return the root times a vector. Shapes: (d,) -> (d,). Cost: d^2 / 2 multiply-adds."""
        product: Vector = blas.dtpsv(self.dim, self.factor, vector, lower=0, trans=0)
        return product

    def _inverted(self) -> Vector:
        if self.inverse is None:
            lower = lapack.dtpttr(self.dim, self.factor, uplo="U")[0].T
            self.inverse = _packed(invert_factor(lower).T)
        return self.inverse


Root = DenseRoot | FactorRoot


def _packed(upper: Matrix) -> Vector:
    packed: Vector = lapack.dtrttp(upper, uplo="U")[0]
    return packed


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """A ``Posterior`` whose root is sigma times another one. The root is made on demand.

    ``shared_root``: of V^-1. ``length``: as of ``Factored``.
    """

    theta: Vector
    shared_root: Root
    ridge: float
    sigma: float = 1.0
    length: float = 0.0

    @property
    def root(self) -> Matrix:
        """Shape: (d, d), a new array."""
        return self.shared_root.matrix() * self.sigma

    @property
    def unit(self) -> float:
        """The deviation of a reward that was not seen yet. Cost: d^2."""
        if not self.length:
            return self.sigma
        variance = self.length * self.shared_root.squares() / len(self.theta)
        return self.sigma * math.sqrt(1.0 + variance)

    @property
    def ratio(self) -> float:
        """The squared length that its unit is of, over the ridge."""
        return self.length / self.ridge

    def noise(self, rng: np.random.Generator) -> Vector:
        """Return sigma times the shared root times xi, standard normal. Shape: -> (d,). Cost: d^2."""
        drawn = self.shared_root.times(rng.standard_normal(len(self.theta)))
        drawn *= self.sigma
        return drawn


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
    theta, root, used = solved(sums, sums.moment, ridge=ridge)
    return of_root(theta, root, used)


def of_root(theta: Vector, root: Root, ridge: float) -> Factored | Scaled:
    """Return the posterior with this estimate and root of V^-1."""
    if isinstance(root, DenseRoot):
        return _read_only(theta, root.array, ridge)
    theta.setflags(write=False)
    return Scaled(theta, root, ridge)


def solved(sums: RidgeSums, moments: NDArray[np.float64], *, ridge: float) -> tuple[Vector, Root, float]:
    """Return V^-1 of one moment, or of each column of several; the root of V^-1; and the ridge that is used.

    Shapes: moments (d,) or (d, J) -> the same, a root (d, d), (). Cost: O(d^3).
    Raises InvalidParameter (ridge <= 0, not finite).
    """
    checks.in_range("ridge", ridge, above=0.0)
    precision = sums.lower_gram()
    # DEVIATION (Eq. 1): collinear features and a tiny ridge make I + X^T X numerically singular.
    used = max(ridge, rounding_floor(precision))
    np.einsum("ii->i", precision)[:] += used
    return *solved_by(precision, moments), used


def solved_by(precision: Matrix, moments: NDArray[np.float64]) -> tuple[Vector, Root]:
    """Return V^-1 of one moment, or of each column of several, and the root of V^-1.

    ``precision`` is V, as its lower triangle. Shapes: (d, d), (d,) or (d, J) -> the same as moments, a root
    (d, d). Cost: d^3 / 3 multiply-adds, to 128 dimensions as many again for the inverse of the factor.
    Raises InvalidParameter (V is not positive definite).
    """
    factor = factor_precision(precision)
    # LAPACK would copy one that is stored by rows, as numpy's is
    is_by_rows = factor.flags.c_contiguous
    thetas, _ = lapack.dpotrs(factor.T if is_by_rows else factor, moments, lower=not is_by_rows)
    if len(factor) > WIDE_DIM:
        return thetas, FactorRoot.of(factor)
    root = np.ascontiguousarray(invert_factor(factor).T)
    root.setflags(write=False)
    return thetas, DenseRoot(root)


def mean_variance(root: Matrix, length: float) -> float:
    """The mean of |root^T x|^2 over all directions of an x of this squared length. Cost: d^2."""
    return length * float(np.vdot(root, root)) / len(root)


def with_noise(before: Posterior, sigma: float, *, length: float = 0.0) -> Factored | Scaled:
    """Return the posterior where rewards vary by ``sigma`` about their mean; ``before`` has them vary by 1.

    ``length``: as of ``Factored``.

    Its root is no longer one of V^-1, so it is not for ``learned``. Cost: d^2 multiplications.
    Raises: InvalidParameter (sigma <= 0).
    """
    checks.in_range("sigma", sigma, above=0.0)
    if isinstance(before, Scaled):
        return replace(before, sigma=before.sigma * sigma, length=length)
    root = before.root * sigma
    root.setflags(write=False)
    return Factored(before.theta, root, before.ridge, sigma, length)


def factor_precision(precision: Matrix) -> Matrix:
    """The lower Cholesky factor L of a matrix, given as its lower triangle.

    scipy's LAPACK keeps the interpreter's lock, numpy does not. So large matrices are factored by numpy:
    a thread that calls this does not keep others waiting. Shapes: (d, d) -> (d, d).
    Raises InvalidParameter (it is not positive definite).
    """
    if len(precision) <= _BLOCK:
        factor, failed = lapack.dpotrf(precision, lower=1, clean=1)
        if failed:
            raise _not_definite()
        return np.asarray(factor)
    try:
        return np.asarray(np.linalg.cholesky(precision), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise _not_definite() from None


def invert_factor(lower: Matrix) -> Matrix:
    """The inverse of a lower triangular matrix: of its blocks, by products. Shape: (d, d)."""
    dim = len(lower)
    if dim <= _BLOCK:
        small, singular = lapack.dtrtri(lower, lower=1)
        if singular:
            raise _not_definite()
        return np.asarray(small)
    half = dim // 2
    inverse = np.zeros((dim, dim))
    inverse[:half, :half] = invert_factor(lower[:half, :half])
    inverse[half:, half:] = invert_factor(lower[half:, half:])
    inverse[half:, :half] = -inverse[half:, half:] @ (lower[half:, :half] @ inverse[:half, :half])
    return inverse


def _not_definite() -> InvalidParameter:
    return InvalidParameter("ridge and gram must make a positive definite matrix", argument="ridge")


def learned(before: Posterior, features: Vector, value: float) -> Posterior:
    """Return the posterior after one more reward, from the one before it.

    V' = V + x x^T. With z = root^T x, u = V^-1 x and s^2 = 1 + z.z, I - z z^T / (s^2 + s) is the square root
    of (I + z z^T)^-1, so root' = root - u z^T / (s^2 + s); theta' = theta + u (r - x.theta) / s^2 (Sherman
    and Morrison). This is for a learner whose rewards come one by one. No sums are kept, so rounding errors
    add up, about 1e-16 * cond(V) for each reward. ``RidgeSums`` give the same bits for any batches; this does
    not.

    Shapes: features (d,). Cost: 4 d^2 multiply-adds.
    """
    theta, root = before.theta, before.root
    turned = features @ root
    towards = root @ turned
    spread = 1.0 + float(turned @ turned)
    shrunk = towards * (1.0 / (spread + math.sqrt(spread)))
    moved = towards * ((value - float(features @ theta)) / spread)
    return _read_only(theta + moved, root - np.multiply.outer(shrunk, turned), before.ridge)


def _read_only(theta: Vector, root: Matrix, ridge: float) -> Factored:
    theta.setflags(write=False)
    root.setflags(write=False)
    return Factored(theta, root, ridge)


def rounding_floor(gram: Matrix) -> float:
    """Return the least ridge at which a Cholesky factorisation of ridge * I + gram cannot fail.

    It is d (d + 4) eps max_i gram_ii, twice what Higham, "Accuracy and Stability of Numerical Algorithms",
    Theorem 10.7, asks for when the rounding of gram itself is counted (docs/papers/sublinear-bandits.md).
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
    root = posterior.root  # some make it when it is asked for
    if len(features) <= _SHORT:
        turned = features.dot(root)
        widths_at_once: Vector = np.sqrt(np.vecdot(turned, turned))
        return widths_at_once
    if _is_scalar(root):  # no reward yet
        norms = np.sqrt(np.einsum("ij,ij->i", features, features, dtype=np.float64))
        scaled: Vector = float(root[0, 0]) * norms
        return scaled
    all_widths = np.empty(len(features))
    for start in range(0, len(features), _BLOCK_ROWS):
        turned = features[start : start + _BLOCK_ROWS] @ root
        np.einsum("ij,ij->i", turned, turned, out=all_widths[start : start + _BLOCK_ROWS])
    return np.sqrt(all_widths, out=all_widths)


def _is_scalar(matrix: Matrix) -> bool:
    """Return whether the matrix is a multiple of the identity."""
    diagonal = matrix.diagonal()
    return int(np.count_nonzero(matrix)) == len(diagonal) and bool((diagonal == diagonal[0]).all())
