"""Arms as numbers made of what keys liked.

Notation
    H           keys x arms: 1 where a key liked an arm, else 0
    n           how many keys liked an arm (arms,)
    U, S, V     the d largest singular values of H, and their vectors: H is near U S V^T
    x           vectors (arms, d): V S, divided by the 99.9th percentile of the lengths of liked arms

The row of U of a key is what it likes: x.u is near its row of H, in proportion. Over keys U is white, which a
learner with one ridge expects. The length of x says how many keys liked an arm; nothing is centred, so
popularity needs no number of its own. V sqrt(S), which is common, earns .97 to 1.0 of what V S does.

Source: the truncated singular value decomposition; Halko, Martinsson and Tropp 2011 for its computation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from shortlist import checks
from shortlist.embedding.randomised_svd import right_singular_vectors
from shortlist.types import Matrix, Rows

LENGTH_PERCENTILE = 99.9


@dataclass(frozen=True, slots=True, eq=False)
class ArmEmbedding:
    """``share``: of the squared length of H that d numbers keep.

    Shapes: vectors (arms, d), zeros where nobody liked the arm; likes (arms,).
    """

    vectors: Matrix
    likes: Rows
    share: float


def keys_by_arms(
    keys: NDArray[np.integer],
    arms: NDArray[np.integer],
    values: NDArray[np.floating],
    *,
    shape: tuple[int, int],
) -> sparse.csr_array:
    """Return H: 1 where the values of a key and an arm have a positive sum.

    Shapes: keys, arms and values (events,); ``shape`` is (keys, arms). Cost: O(events log events).
    Raises: InvalidShape, NonFinite.
    """
    checks.shape("arms", arms, (len(keys),))
    checks.shape("values", values, (len(keys),))
    checks.finite("values", values)
    summed = sparse.coo_array((np.asarray(values, dtype=np.float64), (keys, arms)), shape=shape).tocsr()
    liked = sparse.csr_array(
        ((summed.data > 0.0).astype(np.float32), summed.indices, summed.indptr), shape=shape
    )
    liked.eliminate_zeros()
    return liked


def embed(liked: sparse.csr_array, dim: int, rng: np.random.Generator) -> ArmEmbedding:
    """Return ``dim`` numbers for each arm. ``liked`` is H.

    ``rng`` draws what the decomposition begins with; the vectors depend on it by rounding alone, where the
    singular value after the first ``dim`` is clearly smaller. Cost: that of ``right_singular_vectors``.
    Raises: NonFinite, InvalidParameter (dim < 1, or above the rank of H).
    """
    checks.finite("liked", liked.data)
    counts = np.diff(liked.indptr)
    found = right_singular_vectors(liked[counts > 0], dim, rng)
    vectors = found.vectors.astype(np.float64) * found.values
    likes = np.bincount(liked.indices, minlength=liked.shape[1]).astype(np.int64)
    # Not of all arms: of a large catalogue those of a small history would be above any percentile.
    vectors /= np.percentile(np.linalg.norm(vectors[likes > 0], axis=1), LENGTH_PERCENTILE)
    total = float(np.square(liked.data, dtype=np.float64).sum())
    return ArmEmbedding(vectors, likes, min(1.0, float(np.square(found.values).sum()) / total))
