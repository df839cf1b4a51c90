"""The real share of each direction of an embedding, by keys which had no part in it.

Notation
    H           keys x arms: 1 where a key liked an arm, else 0
    v_k         right singular vectors of the keys of all folds but one; V (arms, d) has them as columns
    p_i         share of these keys that liked arm i
    a_k, b_k    variance along v_k of these keys, and mean square of the keys of the fold about their mean
    left_i      p_i (1 - p_i) - sum_k v_ik^2 g_k a_k, at least 0: the variance of arm i not explained by V
    g_k         (b_k - sum_i v_ik^2 left_i) / a_k, summed over folds: the real share of direction k

The decomposition finds directions in which its own keys happen to differ, so a_k is larger than for other
keys, most of all in late directions. Keys of the fold have only the noise of their likes. Real shares fall in
k: they are the nearest such sequence by weights a_k (pool adjacent violators).
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
LEAST_SHARE = 0.02  # with less, a direction is shut for good: the prior of a thin history loses by it
TESTED_KEYS = 4_000  # folds are tested until they have as many keys
REAL_PART = 0.9  # of the real variance that keys show
NOISE_SHARE = 0.05  # a direction of less is not counted at all
SAMPLED = 20_000  # keys, and arms, by which a dimension is chosen

Decompose = Callable[[sparse.csr_array, int, np.random.Generator], Matrix]


def right_vectors(matrix: sparse.csr_array, count: int, rng: np.random.Generator) -> Matrix:
    """The first right singular vectors, zeros beyond the rank. Shape: (arms, count)."""
    vectors = leading_vectors(matrix, count, rng).vectors.astype(np.float64)
    return np.pad(vectors, ((0, 0), (0, count - vectors.shape[1])))


def real_dim(
    liked: sparse.csr_array, rng: np.random.Generator, *, least: int, most: int, sampled: int = SAMPLED
) -> int:
    """Return how many directions hold ``REAL_PART`` of the real variance of ``most``, at least ``least``.

    The real variance is g_k a_k. Never more than the rank of the sample: four fifths of at most
    ``sampled`` keys, and the ``sampled`` most liked arms. Cost: as of ``real_share`` of these.
    Raises: NonFinite, InvalidParameter (1 <= least <= most does not hold).
    """
    checks.in_range("least", least, least=1, most=most, whole=True)
    part = liked[np.diff(liked.indptr) > 0]
    if part.shape[0] > sampled:
        part = part[np.sort(rng.choice(part.shape[0], sampled, replace=False))]
    if part.shape[1] > sampled:
        counts = np.bincount(part.indices, minlength=part.shape[1])
        part = part[:, np.sort(np.argsort(-counts, kind="stable")[:sampled])]
        part = part[np.diff(part.indptr) > 0]
    share, shown = _shares(part, most, rng, right_vectors, first=0.0)
    real = np.cumsum(np.where(share > NOISE_SHARE, share * shown, 0.0))
    dim = max(least, 1 + int(np.searchsorted(real, REAL_PART * real[-1])))
    return max(1, min(dim, int(np.count_nonzero(shown))))


def real_share(
    liked: sparse.csr_array, dim: int, rng: np.random.Generator, *, decompose: Decompose = right_vectors
) -> Vector:
    """Return g (dim,). ``liked`` is H, of keys that liked something.

    ``rng`` draws the folds first. Cost: that of ``decompose`` of ``dim`` vectors of four fifths of the keys,
    five times, or fewer where a fold has more than a fifth of ``TESTED_KEYS``.
    A direction beyond the rank of those keys has ``LEAST_SHARE``.
    Raises: NonFinite, InvalidParameter (a key without a like, dim < 1).
    """
    return _shares(liked, dim, rng, decompose, first=1.0)[0]


def _shares(
    liked: sparse.csr_array, dim: int, rng: np.random.Generator, decompose: Decompose, *, first: float
) -> tuple[Vector, Vector]:
    """The real shares, and the sums of a_k over folds. Shapes: (d,), (d,).

    ``first``: the shares from which rounds begin. A direction that is one arm keeps it: any is consistent.
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
        return np.full(dim, LEAST_SHARE), np.zeros(dim)
    shown = np.sum([a for *_, a, _ in parts], axis=0)
    weights = np.maximum(shown, np.finfo(float).tiny)
    share = np.full(dim, first)
    for _ in range(ROUNDS):
        real = np.zeros(dim)
        for squares, variance, a, b in parts:
            real += b - squares.T @ np.maximum(variance - squares @ (a * share), 0.0)
        falling = isotonic_regression(real / weights, weights=weights, increasing=False).x
        share = np.clip(falling, LEAST_SHARE, 1.0)
    return share, shown


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
    inside, other = made_by @ directions, left_out @ directions
    about = np.square(other - inside.mean(axis=0)).mean(axis=0)
    return directions**2, liking * (1.0 - liking), inside.var(axis=0), about
