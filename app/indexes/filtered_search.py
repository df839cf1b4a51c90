"""Exact searches of the arms matched by a filter, without preparation.

Notation
    K, d        rows of the table, dimension
    n           rows matched by the filter

    gather      copies the n rows side by side and multiplies: n d reads at random places
    mask        multiplies all K rows and strikes out the others: K d reads in a row
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.indexes.eligible_rows import EligibleRows
from shortlist.index.table import TableSnapshot, not_in
from shortlist.mips.exact import candidates, error_line, ranked, unit_scale
from shortlist.types import NO_ROWS, Matrix, Rows, TopK, Vector

# A row that is gathered takes about as long as this many rows of a scan (measured: 5 to 8).
GATHER_ROWS = 7
# Rows are gathered in pieces of so many numbers, which stay in the cache of a core.
_PIECE_NUMBERS = 32_768
# Up to this many scores are written over those of the last search: fresh memory costs time.
_SCORES_KEPT = 262_144
_STRUCK_TOGETHER = 32_768
_LOOKED_AT = 3  # best rows: a scan for one takes a third of what it takes to strike the others out
_BITS_OF_MINUS_INF = np.uint32(0xFF800000)
_SCRATCH = threading.local()


def search_exactly(
    table: TableSnapshot, eligible: EligibleRows, query: Vector, k: int, exclude: Rows
) -> TopK:
    """The best ``k`` matching rows, by gathering or by a mask, whichever should be faster."""
    if is_gathered(table, eligible):
        return gather(table, eligible.rows, query, k, exclude)
    return mask(table, eligible, query, k, exclude)


def is_gathered(table: TableSnapshot, eligible: EligibleRows) -> bool:
    """True if gathering should be faster than a scan with a mask."""
    return GATHER_ROWS * eligible.count < table.rows


def exact_reads(table: TableSnapshot, eligible: EligibleRows) -> int:
    """The work of ``search_exactly``: as many numbers as a scan reads in the same time."""
    return min(GATHER_ROWS * eligible.count, table.rows) * table.dim


def gather(table: TableSnapshot, rows: Rows, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
    """The best ``k`` of ``rows`` (n,) outside ``exclude``. Cost: n d reads at random places."""
    if len(exclude):
        rows = rows[not_in(rows, exclude)]
    return ranked(contenders(table, rows, query, k), k, table.features, query)


def mask(table: TableSnapshot, eligible: EligibleRows, query: Vector, k: int, exclude: Rows) -> TopK:
    """As ``gather``, by a scan of all rows. Cost: K d reads."""
    return ranked(masked_contenders(table, eligible.mask, query, k, exclude), k, table.features, query)


def masked_contenders(
    table: TableSnapshot,
    mask: NDArray[np.bool_],
    query: Vector,
    k: int,
    exclude: Rows = NO_ROWS,
    *,
    first: int = 0,
) -> Rows:
    """Rows >= ``first`` of ``mask`` (K,), outside ``exclude``, that could be the best ``k`` of them."""
    scaled, error = table.scaled(query)
    working = table.working
    if first:
        working, mask = working[first:], mask[first:]
    approximate = reused_scores(len(working), working.dtype)
    np.matmul(working, scaled, out=approximate)  # np.dot would copy a table that has spare rows
    if len(exclude):
        approximate[exclude[exclude >= first] - first] = -np.inf
    rows = _best_let_in(approximate, mask, error) if k == 1 else None
    if rows is None:
        strike_out(approximate, mask)
        rows = candidates(approximate, error, k)
    return rows + first if first else rows


def _best_let_in(approximate: NDArray[Any], mask: NDArray[np.bool_], error: float) -> Rows | None:
    """Rows which could be the best of ``mask``; None: none of the first few is in the mask.

    Where most rows match, this takes much less time than to strike out all others.
    """
    for _ in range(_LOOKED_AT):
        rows = candidates(approximate, error, 1)
        if len(rows) == 1 and mask.item(rows.item()):
            return rows
        let_in = mask[rows]
        if let_in.all():
            return rows
        approximate[rows[~let_in]] = -np.inf
    return None


def strike_out(approximate: NDArray[np.floating[Any]], mask: NDArray[np.bool_]) -> None:
    """Set what is not let in to -inf. A sum with 0 or -inf takes a fortieth of a masked write's time."""
    if approximate.dtype != np.float32:
        np.copyto(approximate, -np.inf, where=~mask)
        return
    added = _scratch("added", _STRUCK_TOGETHER, np.dtype(np.uint32))
    for start in range(0, len(mask), _STRUCK_TOGETHER):
        left_out = ~mask[start : start + _STRUCK_TOGETHER]
        bits = added[: len(left_out)]
        np.multiply(left_out.view(np.uint8), _BITS_OF_MINUS_INF, out=bits)
        scores = approximate[start : start + _STRUCK_TOGETHER]
        np.add(scores, bits.view(np.float32), out=scores)


def contenders(table: TableSnapshot, rows: Rows, query: Vector, k: int) -> Rows:
    """The part of ``rows`` with a chance of being among the best ``k`` of them.

    Gathered in float64, for there a row's numbers are side by side.
    """
    if len(rows) <= k:
        return rows
    scaled, query_norm = unit_scale(query)
    slope, offset = error_line(table.dim, table.largest_norm, table.features.dtype)
    approximate = _products(table.features, rows, scaled)
    return rows[candidates(approximate, slope * query_norm + offset, k)]


def reused_scores(count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Memory for ``count`` scores; of a few, the same for all searches of a thread."""
    return np.empty(count, dtype=dtype) if count > _SCORES_KEPT else _scratch("scores", count, dtype)


def _scratch(name: str, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Memory for ``count`` numbers, which this thread was given under this name before, or new."""
    scratch: NDArray[Any] | None = getattr(_SCRATCH, name, None)
    if scratch is None or len(scratch) < count or scratch.dtype != dtype:
        scratch = np.empty(count, dtype=dtype)
        setattr(_SCRATCH, name, scratch)
    return scratch if len(scratch) == count else scratch[:count]


def _products(features: Matrix, rows: Rows, query: Vector) -> Vector:
    """Products of some rows with the query, in pieces that fit into a cache."""
    dim = features.shape[1]
    length = max(_PIECE_NUMBERS // dim, 1)
    if len(rows) <= length:
        products: Vector = features.take(rows, axis=0) @ query
        return products
    piece = _scratch("numbers", length * dim, features.dtype).reshape(length, dim)
    products = np.empty(len(rows))
    for start in range(0, len(rows), length):
        part = rows[start : start + length]
        features.take(part, axis=0, out=piece[: len(part)], mode="clip")
        np.dot(piece[: len(part)], query, out=products[start : start + length])
    return products
