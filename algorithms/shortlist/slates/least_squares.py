"""Least squares over totals: what the slates told so far say about single arms.

Notation
    n, k        number of arms, size of a slate
    chi_M       indicator vector (n,) of the slate M
    A, b        sum of chi chi', sum of total * chi, over the results
    theta^, W   A^-1 b, the estimated means (n,); A^-1 (n, n)
    M^          the slate of largest theta^(M^): the k arms of largest theta^, or the best base of a matroid

Under a matroid of several components A cannot be inverted (``matroids``). Then W is its pseudo-inverse, and
theta^ estimates the part of theta that slates see. Totals and gaps of slates are those of theta.

Source: Kuroki et al., section 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shortlist import checks
from shortlist.slates.matroids import Matroid, unseen
from shortlist.types import Matrix, Rows, Vector

# A counts as singular below: W would have no digits left.
_LEAST_RECIPROCAL_CONDITION = 1e-10


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """Shapes: theta (n,), W (n, n), best (k,) ascending. Ties go to the arm of lower index.

    ``matroid`` says which sets of arms are slates.
    """

    theta: Vector
    W: Matrix
    best: Rows
    matroid: Matroid

    @property
    def inside(self) -> Vector:
        """chi_M^. Shape (n,)."""
        indicator = np.zeros(len(self.theta))
        indicator[self.best] = 1.0
        return indicator

    @property
    def value(self) -> float:
        """theta^(M^), the estimated total of the best slate."""
        return float(self.theta[self.best].sum())

    @property
    def norm(self) -> float:
        """||chi_M^||_W."""
        return math.sqrt(max(float(self.W[np.ix_(self.best, self.best)].sum()), 0.0))


def as_observations(A: Matrix, b: Vector, features: Matrix, matroid: Matroid) -> tuple[Matrix, Vector]:
    """Return observations (x, y) of single arms that weigh as much as all totals: sum x x' = X'AX / k, and
    sum y x = X'b / k, for features X of the arms. A total has the noise of k arms, so its weight is 1/k.

    With A = LL' they are the rows of L'X and of L^-1 b, over sqrt(k); when they are more than d, a QR
    factorisation leaves d. Where no slate sees all of R^n, L has the eigenvectors of A that they do see.
    Shapes: A (n, n), b (n,), features (n, d) -> (m, d), (m,) with m = min(n, d).
    Cost: O(n^2 (n + d)). A must be of the rank of ``matroid``.
    """
    checks.shape("features", features, (len(b), None))
    hidden = unseen(matroid).shape[1]
    if hidden:
        values_, basis_ = np.linalg.eigh(A)
        roots, basis_ = np.sqrt(values_[hidden:]), basis_[:, hidden:]
        rows = roots[:, np.newaxis] * (basis_.T @ features) / math.sqrt(matroid.k)
        values: Vector = (basis_.T @ b) / roots / math.sqrt(matroid.k)
    else:
        lower = np.linalg.cholesky(A)
        rows = lower.T @ features / math.sqrt(matroid.k)
        values = np.linalg.solve(lower, b) / math.sqrt(matroid.k)
    if len(rows) > features.shape[1]:
        basis, rows = np.linalg.qr(rows)
        values = basis.T @ values
    return rows, values


def fit(A: Matrix, b: Vector, matroid: Matroid) -> Fit | None:
    """Return the estimate; None while A is singular, or so nearly that W has no digits left.

    Shapes: (n, n), (n,). Cost: O(n^3), in numpy, which lets other threads run meanwhile.
    """
    hidden = unseen(matroid)
    if hidden.shape[1]:
        # Ones on what no slate sees, of the size of A: they are taken out again below.
        size = float(np.trace(A)) / len(A) or 1.0
        A = A + size * (hidden @ hidden.T)
    try:
        pivots = np.diag(np.linalg.cholesky(A))
    except np.linalg.LinAlgError:
        return None
    if pivots.min() ** 2 < _LEAST_RECIPROCAL_CONDITION * pivots.max() ** 2:
        return None
    W = np.linalg.inv(A)
    if hidden.shape[1]:
        W = W - hidden @ hidden.T / size
    W = (W + W.T) / 2.0
    theta: Vector = np.linalg.solve(A, b).astype(np.float64, copy=False)
    return Fit(theta, W, matroid.best(theta), matroid)
