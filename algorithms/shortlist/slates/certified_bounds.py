"""Upper bounds of max x'Wx over x in {0, 1}^n with k ones, each valid for every symmetric W.

Notation
    U1          k lambda_max(W)
    U2          sum of the k largest row bounds w_ii + (k-1 largest other w_ij)
    U3(d)       with B = W - diag(d): topk((2k/n) B1 + d) - (k/n)^2 1'B1 + lambda_max(B on 1-perp) k(n-k)/n
    U4          the least U3(d) along some subgradient steps from d = 0; every step is valid
    1-perp      the vectors whose entries sum to zero

The proofs are in docs/papers/top-k-from-totals.md, "Certified bounds".

Source: this project; they take the place of Theorem 1's ratio in Kuroki et al., Equation 4.
"""

from __future__ import annotations

import numpy as np

from shortlist.types import Matrix, Vector

# Relative, for rounding.
SLACK = 1e-9
# Steps of U4, and the largest n for which more than one is taken: each costs an eigenvalue.
_STEPS = 20
_LARGEST_FOR_STEPS = 150


def upper_bound(W: Matrix, k: int, largest_for_steps: int = _LARGEST_FOR_STEPS) -> float:
    """Return U = min(U1, ..., U4) >= max x'Wx, with a slack of 1e-9 for rounding.

    W (n, n) positive definite. Cost: O(n^3); U4 takes 20 times as long,
    and is one step above n = ``largest_for_steps``.
    """
    steps = _STEPS if len(W) <= largest_for_steps else 1
    return min(k * top_of_spectrum(W), row_bound(W, k), shifted_bound(W, k, steps)) * (1.0 + SLACK)


def top_of_spectrum(W: Matrix) -> float:
    """Return lambda_max(W). Cost: O(n^3); unlike scipy's, numpy's solver lets other threads run."""
    return float(np.linalg.eigvalsh(W)[-1])


def row_bound(W: Matrix, k: int) -> float:
    """Return U2. Cost: O(n^2)."""
    others = W - np.diag(np.full(len(W), np.inf))
    rows = np.diag(W) + top_sum(others, k - 1)
    return float(top_sum(rows, k))


def shifted_bound(W: Matrix, k: int, steps: int) -> float:
    """Return the least U3(d) of ``steps`` steps, the first at d = 0."""
    n = len(W)
    d, best = np.zeros(n), np.inf
    length = float(np.diag(W).mean())
    for step in range(steps):
        value, slope = shifted_at(W, k, d)
        best = min(best, value)
        d = d - length / np.sqrt(step + 1.0) * slope / max(float(np.linalg.norm(slope)), SLACK)
    return best


def shifted_at(W: Matrix, k: int, d: Vector) -> tuple[float, Vector]:
    """Return U3(d) and its subgradient (n,)."""
    n = len(W)
    B = W - np.diag(d)
    rows = B.sum(axis=1)
    linear = 2.0 * k / n * rows + d
    top = np.zeros(n)
    top[np.argsort(-linear, kind="stable")[:k]] = 1.0
    spread, vector = top_of_perp(B)
    value = float(top @ linear) - (k / n) ** 2 * float(rows.sum()) + spread * k * (n - k) / n
    slope = top * (1.0 - 2.0 * k / n) + (k / n) ** 2 - k * (n - k) / n * vector**2
    return value, slope


def top_of_perp(B: Matrix) -> tuple[float, Vector]:
    """Return the largest eigenvalue of B on 1-perp, with slack, and its vector (n,). Needs n >= 2."""
    pushed, slack = _pushed(B)
    values, vectors = np.linalg.eigh(pushed)
    return float(values[-1]) + slack, vectors[:, -1]


def largest_on_perp(B: Matrix) -> float:
    """Return the first of ``top_of_perp``, for half its cost."""
    pushed, slack = _pushed(B)
    return float(np.linalg.eigvalsh(pushed)[-1]) + slack


def _pushed(B: Matrix) -> tuple[Matrix, float]:
    """Return a matrix whose largest eigenvalue is that of B on 1-perp, and a slack for rounding."""
    n = len(B)
    means = B.mean(axis=0)
    centered = B - means - means[:, np.newaxis] + B.mean()
    size = float(np.abs(centered).sum(axis=1).max())  # at least every eigenvalue
    return centered - (2.0 * size + 1.0) / n, SLACK * size  # the vector of ones is now that of the least


def top_sum(values: Vector | Matrix, count: int) -> Vector:
    """Return the sum of the ``count`` largest along the last axis."""
    if count == 0:
        return np.zeros(values.shape[:-1])
    largest: Vector = np.partition(values, values.shape[-1] - count, axis=-1)[..., -count:]
    total: Vector = largest.sum(axis=-1)
    return total
