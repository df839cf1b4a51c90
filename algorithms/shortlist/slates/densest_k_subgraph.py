"""The 0-1 quadratic program max x'Wx over k ones, by way of a densest k-subgraph (Algorithm 1).

Notation
    W           symmetric positive definite (n, n)
    w~_ij       w_ij + w_ii + w_jj, weights of a complete graph; not negative
    alpha_DkS   share of the densest k-subgraph that greedy peeling is sure to reach

Source: Kuroki et al., Algorithm 1, Theorem 1, Lemmas 4 to 6; peeling: Asahiro, Iwama, Tamaki, Tokuyama,
"Greedily finding a dense subgraph", Journal of Algorithms 34, 2000.
"""

from __future__ import annotations

import numpy as np

from shortlist import checks
from shortlist.types import Matrix, Rows, Vector


def densest_k_subgraph(W: Matrix, k: int) -> Rows:
    """Return the vertices that Algorithm 1 keeps: an approximate maximiser of x'Wx. Shape (k,), ascending.

    Cost: O(n^2). Raises: InvalidShape, InvalidParameter (k not in 1..n).
    """
    checks.shape("W", W, (None, W.shape[0]))
    checks.finite("W", W)
    checks.in_range("k", k, least=1, most=len(W))
    if k == 1:  # no edges: the paper leaves this case to single-arm bandits
        return np.array([np.diag(W).argmax()])
    nodes: Rows = peel(W, np.ones(1), np.diag(W)[np.newaxis], k)[0]
    return nodes


def peel(W: Matrix, scale: Vector, diagonal: Matrix, k: int) -> Rows:
    """Peel p graphs at once: weights scale_p w_ij + diagonal_pi + diagonal_pj; the diagonal of W is not used.

    The vertex of least weighted degree goes until k are left, the first one of several. A constant added to
    the diagonal adds the same to all degrees, so it changes nothing: no shift is needed to make weights
    positive. Shapes: (n, n), (p,), (p, n) -> (p, k), ascending. Cost: O(p n^2).
    """
    p, n = diagonal.shape
    off = W - np.diag(np.diag(W))
    total = diagonal.sum(axis=1, keepdims=True)
    degrees = np.outer(scale, off.sum(axis=1)) + (n - 2) * diagonal + total
    alive = np.ones((p, n), dtype=bool)
    graphs = np.arange(p)
    for _ in range(n - k):
        gone = np.where(alive, degrees, np.inf).argmin(axis=1)
        alive[graphs, gone] = False
        degrees -= scale[:, np.newaxis] * off[gone] + diagonal + diagonal[graphs, gone][:, np.newaxis]
    return np.nonzero(alive)[1].reshape(p, k)


def peeling_ratio(n: int, k: int) -> float:
    """Return alpha_DkS: the larger of k(k-1) / (n(n-1)) and (k-1) / (2n+k-3).

    Proof: docs/papers/top-k-from-totals.md.
    """
    if k < 2 or n == k:
        return 1.0
    return max(k * (k - 1) / (n * (n - 1)), (k - 1) / (2 * n + k - 3))


def theorem_1_ratio(W: Matrix, k: int) -> float:
    """Return (1 / (k-1)) (lambda_min / lambda_max) alpha_DkS: Theorem 1's share of the maximum of x'Wx."""
    if k < 2:
        return 1.0
    spectrum = np.linalg.eigvalsh(W)
    return float(spectrum[0] / spectrum[-1]) * peeling_ratio(len(W), k) / (k - 1)
