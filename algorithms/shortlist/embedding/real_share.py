"""How much of each direction of an embedding is real: what keys show of it that did not make it.

Notation
    H           keys x arms: 1 where a key liked an arm, else 0
    v_k         right singular vectors of the keys of all folds but one; V (arms, d) has them as columns
    p_i         share of these keys that liked arm i
    a_k, b_k    variance along v_k of these keys, and mean square of the keys of the fold about their mean
    left_i      p_i (1 - p_i) - sum_k v_ik^2 g_k a_k, at least 0: the variance of arm i that V does not tell
    g_k         (b_k - sum_i v_ik^2 left_i) / a_k, summed over folds: the real share of direction k

The decomposition finds directions in which its own keys happen to differ, so a_k is more than other keys
show, most of all in late directions. Keys of the fold have the noise of their likes without that. Real shares
fall in k: they are the nearest such sequence by weights a_k (pool adjacent violators).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse
from scipy.optimize import isotonic_regression

from shortlist import checks
from shortlist.embedding.randomised_svd import leading_vectors
from shortlist.errors import InvalidParameter
from shortlist.types import Matrix, Vector

FOLDS = 5
ROUNDS = 10  # the noise depends on what is real
LEAST_SHARE = 0.002
TESTED_KEYS = 20_000  # folds are tested until they have as many keys

Decompose = Callable[[sparse.csr_array, int, np.random.Generator], Matrix]


def right_vectors(matrix: sparse.csr_array, count: int, rng: np.random.Generator) -> Matrix:
    """The first right singular vectors, zeros beyond the rank. Shape: (arms, count)."""
    found = leading_vectors(matrix, count, rng).vectors.astype(np.float64)
    return np.pad(found, ((0, 0), (0, count - found.shape[1])))


def real_share(
    liked: sparse.csr_array, dim: int, rng: np.random.Generator, *, decompose: Decompose = right_vectors
) -> Vector:
    """Return g (dim,). ``liked`` is H, of keys that liked something.

    ``rng`` draws the folds first. Cost: that of ``decompose`` of ``dim`` vectors of four fifths of the keys,
    five times, or fewer where a fold has more than a fifth of ``TESTED_KEYS``.
    A direction beyond the rank of those keys has ``LEAST_SHARE``.
    Raises: NonFinite, InvalidParameter (a key without a like, dim < 1).
    """
    checks.finite("liked", liked.data)
    checks.in_range("dim", dim, least=1, whole=True)
    if not np.diff(liked.indptr).all():
        raise InvalidParameter("liked must have a like of each key", argument="liked")
    fold = rng.integers(0, FOLDS, liked.shape[0])
    sizes = np.cumsum(np.bincount(fold, minlength=FOLDS))
    tested = 1 + int(np.searchsorted(sizes[:-1], TESTED_KEYS))
    parts = [
        _part(liked[fold != one], liked[fold == one], dim, rng, decompose)
        for one in range(tested)
        if 0 < np.count_nonzero(fold == one) < len(fold)
    ]
    if not parts:
        return np.full(dim, LEAST_SHARE)
    shown = np.maximum(np.sum([a for *_, a, _ in parts], axis=0), np.finfo(float).tiny)
    share = np.ones(dim)
    for _ in range(ROUNDS):
        real = np.zeros(dim)
        for squares, variance, a, b in parts:
            real += b - squares.T @ np.maximum(variance - squares @ (a * share), 0.0)
        falling = isotonic_regression(real / shown, weights=shown, increasing=False).x
        share = np.clip(falling, LEAST_SHARE, 1.0)
    return share


def _part(
    made_by: sparse.csr_array,
    left_out: sparse.csr_array,
    dim: int,
    rng: np.random.Generator,
    decompose: Decompose,
) -> tuple[Matrix, Vector, Vector, Vector]:
    """v^2, p (1 - p), a and b of one fold. Shapes: (arms, d), (arms,), (d,), (d,)."""
    directions = decompose(made_by, dim, rng)
    # Not ``mean``: of float32 it is rounded to float32.
    liking = np.asarray(made_by.sum(axis=0, dtype=np.float64)).ravel() / made_by.shape[0]
    own, other = made_by @ directions, left_out @ directions
    about = np.square(other - own.mean(axis=0)).mean(axis=0)
    return directions**2, liking * (1.0 - liking), own.var(axis=0), about
