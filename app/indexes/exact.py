"""The plain scan over the arms of a table: one BLAS product, then float64 for the rows that matter."""

from __future__ import annotations

import numpy as np

from app.indexes.table import TableSnapshot, Working
from shortlist.mips.exact import candidates, ranked
from shortlist.types import NO_ROWS, Rows, TopK, Vector


def scan(table: TableSnapshot, query: Vector, k: int, exclude: Rows = NO_ROWS, *, first: int = 0) -> TopK:
    """Return the ``k`` live rows >= ``first`` of largest score, none of them in ``exclude``.

    Shapes: query (d,), exclude (e,). Cost: (K - first) * d reads in the working precision.
    Raises: NonFinite.
    """
    scaled, error = table.scaled(query)
    return ranked(contenders(table, scaled, error, k, exclude, first=first), k, table.features, query)


def contenders(
    table: TableSnapshot, scaled: Working, error: float, k: int, exclude: Rows = NO_ROWS, *, first: int
) -> Rows:
    """The live rows >= ``first`` outside ``exclude`` that could be the best ``k`` of them.

    ``scaled`` (d,): the query in ``unit_scale``. ``error``: bound on the error of a product.
    """
    working = table.working[first:] if first else table.working
    approximate = working @ scaled.astype(working.dtype, copy=False)
    if len(table.dead):
        approximate[table.dead_from(first)] = -np.inf
    if len(exclude):
        approximate[exclude[exclude >= first] - first] = -np.inf
    rows = candidates(approximate, error, k)
    return rows + first if first else rows
