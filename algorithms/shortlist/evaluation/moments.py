"""Means and covariances of rows that come in pieces, in memory that does not grow with their number.

Notation
    n, c        rows so far, columns
    mean        (c,)
    scatter     (c, c): the sum of (z - mean)(z - mean)^T over all rows z

Two pieces are joined by their means and scatters, so nothing large is subtracted from something large, and
pieces can be summed by different processes.

Source: Chan, Golub, LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances"
(1979), Equation 2.1, with vectors for numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shortlist import checks
from shortlist.types import Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Of ``count`` rows. Shapes: mean (c,), scatter (c, c)."""

    count: int
    mean: Vector
    scatter: Matrix

    def variance_of_mean(self, gradient: Vector) -> float:
        """Estimated variance of gradient . mean, for independent rows; count >= 2. Shapes: gradient (c,).

        Cost: O(g^2) for g columns with a gradient.
        """
        some = np.flatnonzero(gradient)
        spread = float(gradient[some] @ self.scatter[np.ix_(some, some)] @ gradient[some])
        return max(spread, 0.0) / (self.count * (self.count - 1.0))


def nothing(columns: int) -> Moments:
    """The moments of no row."""
    return Moments(0, np.zeros(columns), np.zeros((columns, columns)))


def of(rows: Matrix) -> Moments:
    """The moments of some rows. Shapes: (n, c). Cost: O(n c^2). Raises: InvalidShape."""
    checks.shape("rows", rows, (None, None))
    if not len(rows):
        return nothing(rows.shape[1])
    mean = rows.mean(axis=0)
    centred = rows - mean
    return Moments(len(rows), mean, centred.T @ centred)


def joined(one: Moments, other: Moments) -> Moments:
    """The moments of the rows of both. Cost: O(c^2)."""
    count = one.count + other.count
    if not count:
        return one
    apart, share = other.mean - one.mean, other.count / count
    scatter = one.scatter + other.scatter + np.outer(apart, apart) * (one.count * share)
    return Moments(count, one.mean + apart * share, scatter)


def mapped(one: Moments, linear: Matrix) -> Moments:
    """The moments of the rows, each multiplied by a matrix. Shapes: linear (b, c). Cost: O(b c (b + c))."""
    return Moments(one.count, linear @ one.mean, linear @ one.scatter @ linear.T)
