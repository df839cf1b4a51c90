"""Upper bounds of max over slates M of theta^(M) - theta^(M^) + C ||chi_M - chi_M^||_W (Equation 5).

Notation
    s           arms that M exchanges: s of M^ leave, s others come; 1 <= s <= r = min(k, n - k)
    v           chi_M - chi_M^: entries -1, 0, 1, sum 0, |v|^2 = 2s
    q           weights (n,), for one s, with v'Wv <= sum of q_i over the 2s exchanged arms
    C_s         multiplier for exchanges of s arms, see ``widths.exchange_widths``
    tau         any positive number: ||v|| <= ||v||^2 / (2 tau) + tau / 2, the first-order approximation

The proofs are in docs/papers/top-k-from-totals.md, "Certified bounds".

Source: this project; in place of the value of an approximate maximiser in Kuroki et al., Algorithm 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from shortlist.slates.certified_bounds import SLACK, largest_on_perp, top_sum
from shortlist.slates.least_squares import Fit
from shortlist.types import Matrix, Vector

Mask = NDArray[np.bool_]

# The tau that are tried, as shares of the largest norm: every one gives a valid bound, and the least counts.
_TAUS = (0.5, 0.7, 0.85, 1.0)


def gap_bounds(fit: Fit, widths: Vector) -> tuple[Vector, Vector]:
    """Return for each s the largest estimated gap g_s <= 0, and an upper bound G_s of the maximum over M.

    Shapes: widths (r,) -> (r,), (r,). Cost: O(n^3) for an eigenvalue, O(r n) besides.
    """
    inside = fit.inside.astype(bool)
    gaps, bounds = np.empty(len(widths)), np.empty(len(widths))
    for position, candidates in enumerate(weights(fit, len(widths))):
        gaps[position] = _largest(-fit.theta, fit.theta, inside, position + 1)
        bounds[position] = min(
            _bound(fit, inside, position + 1, float(widths[position]), q) for q in candidates
        )
    return gaps, bounds


def weights(fit: Fit, largest: int) -> Iterator[tuple[Vector, ...]]:
    """Yield the weights q for s = 1, ..., largest."""
    n = len(fit.theta)
    diagonal = np.diag(fit.W)
    constant = np.full(n, max(largest_on_perp(fit.W), 0.0))
    shifted = largest_on_perp(fit.W - np.diag(diagonal)) + diagonal
    rows = _row_weights(fit, largest)
    for position in range(largest):
        yield constant, shifted, rows[:, position] * (1.0 + SLACK)


def _row_weights(fit: Fit, largest: int) -> Matrix:
    """Return w~_ii + (s-1 largest of its side) + (s largest of the other side), w~_ij = +-w_ij.

    Shape: (n, r), one column an s.
    """
    sign = 1.0 - 2.0 * fit.inside
    signed = fit.W * np.outer(sign, sign)
    bounds = np.empty((len(sign), largest))
    for side in (sign > 0, sign < 0):
        here = signed[np.ix_(side, side)]
        diagonal = np.diag(here).copy()
        np.fill_diagonal(here, -np.inf)
        same = prefix_sums(here, largest)[:, :largest]
        other = prefix_sums(signed[np.ix_(side, ~side)], largest)[:, 1:]
        bounds[side] = diagonal[:, np.newaxis] + same + other
    return bounds


def prefix_sums(rows: Matrix, count: int) -> Matrix:
    """Return the sums of the 0, 1, ..., count largest of each row. Shape (m, count + 1)."""
    count_taken = min(count, rows.shape[1])
    largest = -np.sort(
        -np.partition(rows, rows.shape[1] - count_taken, axis=1)[:, rows.shape[1] - count_taken :], axis=1
    )
    sums = np.zeros((len(rows), count + 1))
    np.cumsum(largest, axis=1, out=sums[:, 1 : count_taken + 1])
    sums[:, count_taken + 1 :] = sums[:, count_taken : count_taken + 1]
    return sums


def _bound(fit: Fit, inside: Mask, size: int, width: float, q: Vector) -> float:
    """Return G_s for s = ``size``, C_s = ``width`` and one choice of weights."""
    norm = math.sqrt(max(_largest(q, q, inside, size), 0.0))
    best = _largest(-fit.theta, fit.theta, inside, size) + width * norm
    if norm == 0.0:
        return best
    for tau in (share * norm for share in _TAUS):
        h = width / (2.0 * tau)
        linear = _largest(-fit.theta + h * q, fit.theta + h * q, inside, size)
        best = min(best, width * tau / 2.0 + linear)
    return best


def _largest(leaving: Vector, coming: Vector, inside: Mask, size: int) -> float:
    """Return the largest sum of ``leaving`` inside and of ``coming`` outside, over ``size`` arms each."""
    return float(top_sum(leaving[inside], size) + top_sum(coming[~inside], size))
