"""Screened arms, and their exact ranking.

A screening search prepares the arms once, before any query. A query then gets few candidates by looking at
little of every arm, and the candidates are scored in full. Nothing bounds how far the best of them is from
the best of all arms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.mips.columns import Given
from shortlist.mips.exact import ranked
from shortlist.types import Rows, TopK

_ENTRIES = 2**16


@dataclass(frozen=True, slots=True)
class Screened:
    """Candidates: distinct rows (m,), and how many products of numbers it took to find them."""

    rows: Rows
    multiplications: int

    def best(self, k: int, vectors: Given, query: Given) -> TopK:
        """Return up to ``k`` candidates of largest score, best first, ties in row order.

        They are found in the precision of the arms, and scored again in float64.
        Shapes: vectors (n, d), query (d,). Cost: m d reads. Raises: InvalidParameter (k < 1).
        """
        checks.in_range("k", k, least=1)
        rows = self.rows
        if len(rows) > k:
            scores = _products(vectors, rows, query.astype(vectors.dtype))
            rows = rows[np.argpartition(scores, len(scores) - k)[len(scores) - k :]]
        return ranked(rows, k, vectors, query.astype(np.float64), exact=False)


def _products(vectors: Given, rows: Rows, query: Given) -> Given:
    """Products of some arms, which are copied a few at a time, so that the copies are in the cache."""
    if len(rows) == len(vectors):
        return (vectors @ query)[rows]
    step = max(1, _ENTRIES // len(query))
    return np.concatenate([vectors[rows[at : at + step]] @ query for at in range(0, len(rows), step)])


def check_arms(vectors: Given) -> None:
    """Raise InvalidShape or NonFinite unless the arms are a finite matrix."""
    checks.shape("vectors", vectors, (None, None))
    checks.finite("vectors", vectors)


def check_query(query: NDArray[np.floating], dim: int) -> None:
    """Raise InvalidShape or NonFinite unless the query is a finite vector of ``dim`` numbers."""
    checks.shape("query", query, (dim,))
    checks.finite("query", query)
