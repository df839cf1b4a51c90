"""Means and covariances of rows in pieces, in constant memory.

Notation
    n, c        rows so far, columns
    s           how many rows a row stands for: 1 / the probability of being kept; 1 where all were
    mean        (c,): sum s z / sum s over all rows z
    centre      (c,): the same with s^2 for s
    scatter     (c, c): the sum of s^2 (z - centre)(z - centre)^T

Two pieces are joined by their means and scatters, so nothing large is subtracted from something large, and
pieces can be summed by different processes.

Source: Chan, Golub, LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances"
(1979), Equation 2.1, with vectors for numbers. The mean of rows which stand for others is Hajek's, with
its variance by the delta method: Sarndal, Swensson, Wretman, "Model Assisted Survey Sampling" (1992), section
5.7.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shortlist import checks
from shortlist.types import Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Moments of ``count`` rows. Shapes: mean (c,), centre (c,), scatter (c, c).

    ``total``, ``squares`` and ``largest``: the sum, the sum of squares and the largest of their s.
    """

    count: int
    total: float
    squares: float
    largest: float
    mean: Vector
    centre: Vector
    scatter: Matrix

    def variance_of_mean(self, gradient: Vector) -> float:
        """Estimated variance of gradient . mean, for independent rows; count >= 2. Shapes: gradient (c,).

        Cost: O(g^2) for g columns with a gradient.
        """
        nonzero = np.flatnonzero(gradient)
        spread = float(gradient[nonzero] @ self.scatter[np.ix_(nonzero, nonzero)] @ gradient[nonzero])
        apart = float(gradient[nonzero] @ (self.centre - self.mean)[nonzero])
        spread = max(spread, 0.0) + self.squares * apart**2
        return spread / self.total**2 * (self.count / (self.count - 1.0))


def nothing(columns: int) -> Moments:
    """The moments of no row."""
    zero = np.zeros(columns)
    return Moments(0, 0.0, 0.0, 0.0, zero, zero, np.zeros((columns, columns)))


def of(rows: Matrix, stands_for: Vector | None = None) -> Moments:
    """The moments of some rows. Shapes: (n, c), (n,). Cost: O(n c^2). Raises: InvalidShape.

    ``stands_for``: the s of each row; None: 1.
    """
    checks.shape("rows", rows, (None, None))
    if not len(rows):
        return nothing(rows.shape[1])
    if stands_for is None:
        mean = rows.mean(axis=0)
        centred = rows - mean
        count = float(len(rows))
        return Moments(len(rows), count, count, 1.0, mean, mean, centred.T @ centred)
    mean = np.average(rows, axis=0, weights=stands_for)
    centre = np.average(rows, axis=0, weights=stands_for**2)
    centred = stands_for[:, None] * (rows - centre)
    total, squares = float(stands_for.sum()), float(stands_for @ stands_for)
    return Moments(len(rows), total, squares, float(stands_for.max()), mean, centre, centred.T @ centred)


def joined(one: Moments, other: Moments) -> Moments:
    """The moments of the rows of both. Cost: O(c^2)."""
    count, total, squares = one.count + other.count, one.total + other.total, one.squares + other.squares
    if not count:
        return one
    mean = one.mean + (other.mean - one.mean) * (other.total / total)
    apart, share = other.centre - one.centre, other.squares / squares
    scatter = one.scatter + other.scatter + np.outer(apart, apart) * (one.squares * share)
    largest = max(one.largest, other.largest)
    return Moments(count, total, squares, largest, mean, one.centre + apart * share, scatter)


def mapped(one: Moments, linear: Matrix) -> Moments:
    """The moments of the rows, each multiplied by a matrix. Shapes: linear (b, c). Cost: O(b c (b + c))."""
    mean, centre, scatter = linear @ one.mean, linear @ one.centre, linear @ one.scatter @ linear.T
    return replace(one, mean=mean, centre=centre, scatter=scatter)
