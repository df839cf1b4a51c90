"""The plain scan over the arms of a view: one BLAS product, then float64 for the rows that matter."""

from __future__ import annotations

import numpy as np

from app.indexes.table import ArmView
from shortlist.mips.exact import best, candidates, unit_scale
from shortlist.types import NO_ROWS, Rows, TopK, Vector


def scan(view: ArmView, query: Vector, k: int, exclude: Rows = NO_ROWS, *, first: int = 0) -> TopK:
    """Return the ``k`` live rows >= ``first`` of largest score, none of them in ``exclude``.

    Shapes: query (d,), exclude (e,). Cost: (K - first) * d reads in the working precision.
    Raises: NonFinite.
    """
    working = view.working[first:] if first else view.working
    scaled, query_norm = unit_scale(query)
    approximate = working @ scaled.astype(working.dtype, copy=False)
    if len(view.dead):
        approximate[view.dead_from(first)] = -np.inf
    if len(exclude):
        approximate[exclude[exclude >= first] - first] = -np.inf
    slope, offset = view.error_line
    error = slope * query_norm + offset
    if not first:
        return best(approximate, error, k, view.features, query)
    found = best(approximate, error, k, view.features[first:], query)
    return TopK(found.rows + first, found.scores, exact=True)


def contenders(view: ArmView, scaled: Vector, error: float, k: int, *, first: int) -> Rows:
    """The rows >= ``first`` that could be the best ``k`` living rows among them; some may be dead.

    ``scaled`` (d,): the query in ``unit_scale``. ``error``: bound on the error of a product, as in ``scan``.
    """
    working = view.working[first:]
    approximate = working @ scaled.astype(working.dtype, copy=False)
    if len(view.dead):
        approximate[view.dead_from(first)] = -np.inf
    return candidates(approximate, error, k) + first
