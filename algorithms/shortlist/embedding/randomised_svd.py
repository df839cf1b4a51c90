"""The largest singular values of a sparse matrix, and their right singular vectors, from few passes over it.

Notation
    A           the matrix (m, n), sparse
    d           how many singular values are wanted
    p           columns beyond d that are drawn and then dropped: ``OVERSAMPLING``
    q           how often A A^T is applied to the drawn columns: ``PASSES``
    Omega       a Gaussian matrix (n, d + p)
    Q           orthonormal columns (m, d + p) that span (A A^T)^q A Omega
    S, V        singular values (d,) in descending order, and right singular vectors (n, d)

A is near Q Q^T A, with the singular values and vectors of the small matrix B = Q^T A. In the mean over
Omega the spectral norm of A - Q Q^T A is at most

    (1 + sqrt(d / (p - 1)) + e sqrt(d + p) / p sqrt(min(m, n) - d))^(1 / (2 q + 1))

times the singular value after the first d (Corollary 10.10). Between passes columns are made orthonormal:
float32 would lose all but the largest.

Source: Halko, Martinsson and Tropp 2011, "Finding structure with randomness: Probabilistic algorithms for
constructing approximate matrix decompositions", Algorithms 4.4 and 5.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.types import Vector

OVERSAMPLING = 16
PASSES = 4
LEAST_VALUE = 1e-5  # of the largest: below it, a singular value in float32 may be rounding
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class SingularVectors:
    """Shapes: values (d,) descending, vectors (n, d) with orthonormal columns.

    Of each column the entry of largest magnitude is positive: so runs agree.
    """

    values: Vector
    vectors: Floats


def right_singular_vectors(
    matrix: sparse.csr_array, count: int, rng: np.random.Generator, *, passes: int = PASSES
) -> SingularVectors:
    """Return the ``count`` largest singular values of a float32 matrix, and their right vectors.

    Cost: 2 ``passes`` + 2 products of the matrix with d + p columns, each nnz (d + p), and as many
    factorisations of (m or n) (d + p)^2. Memory: three arrays of (m + n) (d + p) float32, and the
    matrix twice.
    Raises: NonFinite, InvalidParameter (count < 1, or above the rank of the matrix).
    """
    leading = leading_vectors(matrix, count, rng, passes=passes)
    if len(leading.values) < count:
        message = f"count must be at most {len(leading.values)}, the rank of the matrix"
        raise InvalidParameter(message, argument="count")
    return leading


def leading_vectors(
    matrix: sparse.csr_array, count: int, rng: np.random.Generator, *, passes: int = PASSES
) -> SingularVectors:
    """Return what ``right_singular_vectors`` does, or as many as the rank of the matrix. Raises likewise."""
    checks.finite("matrix", matrix.data)
    checks.in_range("count", count, least=1, whole=True)
    checks.generator(rng)
    columns = min(count + OVERSAMPLING, *matrix.shape)
    if not columns:
        return SingularVectors(np.zeros(0), np.zeros((matrix.shape[1], 0), dtype=np.float32))
    transposed = matrix.T.tocsr()
    drawn = rng.standard_normal((matrix.shape[1], columns), dtype=np.float32)
    span = np.linalg.qr(matrix @ drawn)[0]
    for _ in range(passes):
        span = np.linalg.qr(matrix @ np.linalg.qr(transposed @ span)[0])[0]
    small = transposed @ span  # B^T
    wide = small.astype(np.float64)
    squares, turn = np.linalg.eigh(wide.T @ wide)
    values = np.sqrt(np.maximum(squares[::-1][:count], 0.0))
    values = values[values > LEAST_VALUE * values.max(initial=0.0)]
    rank = len(values)
    vectors = (wide @ turn[:, ::-1][:, :rank] / values).astype(np.float32)
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(rank)]
    return SingularVectors(values, vectors * np.sign(largest))
