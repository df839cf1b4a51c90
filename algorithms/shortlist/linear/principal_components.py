"""Fewer numbers for vectors: principal components about zero, and what they keep.

Notation
    n, D, d     number of vectors, of their numbers, of the numbers that are kept
    X           vectors, row by row (n, D)
    G           X^T X (D, D), the second moments about zero
    B           basis (d, D): orthonormal rows, the eigenvectors of G of largest eigenvalue
    share       tr(B G B^T) / tr(G): the part of the squared lengths that is kept
    overlap     of the k nearest of a vector among X, how many are also nearest among X B^T, as a mean

No mean is taken away: x.q stays (B x).(B q) for what is kept, so products and their order stay what they
were. About the mean they would not.

Source: Eckart and Young, "The approximation of one matrix by another of lower rank" (1936).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.linear.bilinear import directions
from shortlist.types import Matrix

PROBES = 200
NEAREST = 10
_BLOCK_NUMBERS = 1 << 20
Vectors = NDArray[np.floating]


@dataclass(frozen=True, slots=True, eq=False)
class PrincipalComponents:
    """``overlap`` is None where there are no neighbours: of fewer than two vectors. Shape: basis (d, D)."""

    basis: Matrix
    share: float
    overlap: float | None


def principal_components(vectors: Vectors, count: int, rng: np.random.Generator) -> PrincipalComponents:
    """Return the first ``count`` components of the vectors, and what they keep of them.

    ``rng`` draws the ``PROBES`` vectors whose ``NEAREST`` others are compared; the basis is the same for any.
    Shapes: vectors (n, D). Cost: n D^2 + D^3 + 200 n D.
    Raises: InvalidShape, NonFinite, InvalidParameter (count < 1, or above the rank of the vectors).
    """
    checks.shape("vectors", vectors, (None, None))
    checks.finite("vectors", vectors)
    checks.in_range("count", count, least=1, most=vectors.shape[1])
    gram = _gram(vectors)
    rank = rank_of(gram)
    if count > rank:
        raise InvalidParameter(f"count must be at most {rank}, the rank of the vectors", argument="count")
    basis = directions(gram, count)
    share = float(np.einsum("ij,jk,ik->", basis, gram, basis, optimize=True) / np.trace(gram))
    return PrincipalComponents(basis, min(share, 1.0), _overlap(vectors, basis, rng))


def rank_of(gram: Matrix) -> int:
    """The rank of the vectors with these second moments: as far as float64 tells. Cost: D^3."""
    values = np.linalg.eigvalsh(gram)
    largest = max(float(values[-1]), 0.0)
    return int(np.count_nonzero(values > largest * len(gram) * np.finfo(np.float64).eps))


def _gram(vectors: Vectors) -> Matrix:
    dim = vectors.shape[1]
    gram = np.zeros((dim, dim))
    step = max(1, _BLOCK_NUMBERS // dim)
    for start in range(0, len(vectors), step):
        block = vectors[start : start + step].astype(np.float64, copy=False)
        gram += block.T @ block
    return gram


def _overlap(vectors: Vectors, basis: Matrix, rng: np.random.Generator) -> float | None:
    count = len(vectors)
    nearest = min(NEAREST, count - 1)
    if nearest < 1:
        return None
    probes = np.sort(rng.choice(count, min(PROBES, count), replace=False))
    vectors64 = vectors.astype(np.float64, copy=False)
    lists = [_nearest(points, probes, nearest) for points in (vectors64, vectors64 @ basis.T)]
    common = [len(np.intersect1d(one, other)) for one, other in zip(*lists, strict=True)]
    return float(np.mean(common)) / nearest


def _nearest(points: Matrix, probes: NDArray[np.intp], count: int) -> NDArray[np.intp]:
    """The rows that are nearest to each probe, itself left out. Shapes: (n, D), (m,) -> (m, count)."""
    squares = np.einsum("ij,ij->i", points, points)
    distances = squares - 2.0 * (points[probes] @ points.T)  # and the square of the probe, for all the same
    distances[np.arange(len(probes)), probes] = np.inf
    return np.argpartition(distances, count - 1, axis=1)[:, :count]
