"""Exact maximum inner product search: a fast scan, then float64 for the few rows that could be best.

Notation
    K, d        number of vectors, their dimension
    s           (K,) approximate scores of a scan in working precision (BLAS, any order of summation)
    u           unit roundoff of the working precision: 2^-24 in float32, 2^-53 in float64
    R, |q|      largest norm among the vectors, norm of the query
    e           bound on the error of every entry of s

The score of a row is *defined* as ``row_scores`` computes it, so equal rows have equal scores, wherever they
stand. Let t be the k-th largest entry of s. At least k rows score t - e or more, so a row among the best k
has s >= t - 2e; only those rows are scored again. The bound e holds for every order of summation, with or
without fused operations (N. Higham, "Accuracy and Stability of Numerical Algorithms", section 3.1):
d products and sums err by at most gamma_d |x||q|, the rounding of x and q to working precision by 2u|x||q|.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from shortlist import checks
from shortlist.mips.answer import Objective
from shortlist.mips.columns import chunks
from shortlist.types import NO_ROWS, Matrix, Rows, TopK, Vector

Scores = NDArray[np.floating[Any]]
Given = NDArray[np.floating[Any]]

_GROUPS_PER_K = 16


def exact(vectors: Matrix, query: Vector, *, k: int, exclude: Rows = NO_ROWS) -> TopK:
    """Return the ``k`` rows of largest inner product with ``query``, ties in row order.

    Shapes: vectors (K, d), query (d,), exclude (e,) -> rows, scores (min(k, K - e),).
    Cost: K * d coordinate reads, and d for each row within rounding of the k-th best.
    Raises: InvalidShape, NonFinite, InvalidParameter (k < 1).
    """
    checks.shape("vectors", vectors, (None, None))
    checks.shape("query", query, (vectors.shape[1],))
    checks.finite("vectors", vectors)
    checks.finite("query", query)
    checks.in_range("k", k, least=1)
    scaled, query_norm = unit_scale(query)
    largest = float(np.linalg.norm(vectors, axis=1).max(initial=0.0))
    approximate = vectors @ scaled
    approximate[exclude] = -np.inf
    error = error_bound(len(query), largest, query_norm, vectors.dtype)
    return best(approximate, error, k, vectors, query)


def exact_rows(vectors: Given, query: Vector, *, k: int, objective: Objective) -> TopK:
    """Return the ``k`` rows of largest inner product, or of least squared distance, of vectors as they came.

    Shapes: vectors (K, d) in any precision, query (d,); unchecked. Cost: two scans.
    """
    squares = np.concatenate([np.einsum("ij,ij->i", chunk, chunk) for chunk in _float64_chunks(vectors)])
    if objective == "nearest":
        return nearest(vectors, vectors, squares, query, k=k)
    scaled, norm = unit_scale(query)
    approximate = vectors @ scaled.astype(vectors.dtype, copy=False)
    error = error_bound(len(query), float(np.sqrt(squares.max())), norm, vectors.dtype)
    return best(approximate, error, k, vectors, query)


def _float64_chunks(vectors: Given) -> Iterator[Matrix]:
    return (chunk.astype(np.float64, copy=False) for chunk in chunks(vectors))


def nearest(
    working: Scores, vectors: Given, squares: Vector, query: Vector, *, k: int, exclude: Rows = NO_ROWS
) -> TopK:
    """Return the ``k`` rows of least squared distance to ``query``, ties in row order; scores are distances.

    Shapes: working (K, d), a copy of vectors (K, d) in any precision; squares (K,) of their norms, to within
    rounding of float64; query (d,); exclude (e,). Cost: a scan, and d reads for each row within rounding of
    the k-th nearest. Raises: NonFinite.
    """
    scaled, query_norm = unit_scale(query)
    factor = float(np.abs(query).max(initial=0.0)) / (float(np.abs(scaled).max(initial=0.0)) or 1.0)
    products = (working @ scaled.astype(working.dtype, copy=False)).astype(np.float64)
    largest = math.sqrt(float(squares.max(initial=0.0)))
    # |q - x|^2 is |q|^2 less this.
    closeness = (2.0 * factor) * products - squares
    error = 2.0 * factor * error_bound(len(query), largest, query_norm, working.dtype)
    error += (len(query) + 8) * 2.0**-51 * (squares.max(initial=0.0) + factor * largest * query_norm)
    closeness[exclude] = -np.inf
    rows = candidates(closeness, float(error), k)
    rows = rows[~np.isin(rows, exclude)] if len(exclude) else rows
    distances = np.add.reduce((vectors[rows] - query) ** 2, axis=1)
    order = np.lexsort((rows, distances))[:k]
    return TopK(rows[order], distances[order], exact=True)


def row_scores(vectors: Given, rows: Rows, query: Vector) -> Vector:
    """Inner products of some rows in float64, each as if it were the only one.

    Shapes: vectors (K, d) in C order, rows (m,), query (d,) -> (m,).
    """
    scores: Vector = np.add.reduce(vectors.take(rows, axis=0) * query, axis=1)
    return scores


def unit_scale(query: Vector) -> tuple[Vector, float]:
    """Return ``query`` times a power of two that brings its norm near 1, and that norm.

    A norm in [2^-20, 2^20] is left alone. Raises NonFinite.
    """
    norm = float(blas.dnrm2(query)) if query.size else 0.0
    if 2.0**-20 <= norm <= 2.0**20:
        return query, norm
    checks.finite("query", query)
    largest = float(np.abs(query).max(initial=0.0))
    if largest == 0.0:
        return query, 0.0
    scaled = np.ldexp(query, -math.frexp(largest)[1])
    return scaled, float(blas.dnrm2(scaled))


def error_bound(dim: int, largest_norm: float, query_norm: float, dtype: np.dtype[Any]) -> float:
    """Bound on |s - score| for an inner product computed in ``dtype``: e of the module's notation."""
    slope, offset = error_line(dim, largest_norm, dtype)
    return slope * query_norm + offset


def error_line(dim: int, largest_norm: float, dtype: np.dtype[Any]) -> tuple[float, float]:
    """(slope, offset) of e = slope * |q| + offset; ``tiny`` covers what underflows."""
    info = np.finfo(dtype)
    unit = (dim + 4) * float(info.eps) / 2.0
    tiny = 2 * dim * float(info.tiny)
    return unit / (1.0 - unit) * largest_norm + tiny, tiny * (1.0 + largest_norm)


def best(approximate: Scores, error: float, k: int, vectors: Given, query: Vector) -> TopK:
    """Return the best ``k`` rows given scores that are off by at most ``error``; -inf is never returned.

    Shapes: approximate (K,); vectors (K, d); query (d,).
    Cost: about two passes over ``approximate``, and d reads for each row within 2 * error of the k-th best.
    """
    return ranked(candidates(approximate, error, k), k, vectors, query)


def ranked(rows: Rows, k: int, vectors: Given, query: Vector, *, exact: bool = True) -> TopK:
    """Return the best ``k`` of ``rows`` by their float64 scores, ties in row order."""
    if k == 1 and len(rows) == 1:
        # The same operations as in row_scores, without its array of one row.
        return TopK(rows, np.add.reduce(vectors[rows.item()] * query, keepdims=True), exact=exact)
    scores = row_scores(vectors, rows, query)
    if k == 1 and len(rows):
        top = int(scores.argmax())
        equal = rows[scores == scores[top]]
        first = equal if len(equal) == 1 else equal.min(keepdims=True)
        return TopK(first, scores[top : top + 1], exact=exact)
    order = np.lexsort((rows, -scores))[:k]
    return TopK(rows[order], scores[order], exact=exact)


def candidates(approximate: Scores, error: float, k: int, least: float = -math.inf) -> Rows:
    """Rows that could be among the best k: s >= t - 2e, for a t at or below the k-th largest entry.

    Those that score less than ``least`` may lack.
    """
    if least > -math.inf:
        # Mostly few do not: then one comparison saves a partition.
        rows = np.flatnonzero(approximate >= _cut(approximate, least - error))
        if rows.size <= 4 * k:
            return rows
    if k == 1 and approximate.size:
        first: Rows = approximate.argmax(0, keepdims=True)
        row = first.item()
        top = approximate.item(row)
        approximate[row] = -np.inf
        second = approximate.item(approximate.argmax())
        approximate[row] = top
        if second < top - 2.0 * error:
            return first
    kth = kth_largest_or_less(approximate, k)
    rows = np.flatnonzero(approximate >= _cut(approximate, kth - 2.0 * error))
    if rows.size > 4 * k:
        kept_scores = approximate[rows]
        kth = float(np.partition(kept_scores, kept_scores.size - k)[kept_scores.size - k])
        rows = rows[kept_scores >= _cut(kept_scores, kth - 2.0 * error)]
    return rows


def kth_largest_or_less(approximate: Scores, k: int) -> float:
    """A lower bound on the k-th largest entry, -inf if there are fewer; in one pass where k is small."""
    size = approximate.size
    if k > size:
        return -math.inf
    groups = _GROUPS_PER_K * k
    if k == 1 or size < 2 * groups:
        return float(approximate.max() if k == 1 else np.partition(approximate, size - k)[size - k])
    # The maxima of disjoint groups are entries: the k-th largest of them is at most the k-th largest of all.
    length = size // groups
    # The first ones are left out: of rows in ascending order of norm the last ones score most.
    maxima = approximate[size - groups * length :].reshape(length, groups).max(axis=0)
    return float(np.partition(maxima, groups - k)[groups - k])


def _cut(approximate: Scores, bound: float) -> np.floating[Any]:
    """The largest number of the working precision below ``bound``, but above -inf."""
    kind: type[np.floating[Any]] = approximate.dtype.type
    lowest = np.finfo(approximate.dtype).min
    cut: np.floating[Any] = np.nextafter(kind(max(bound, float(lowest))), lowest)
    return cut
