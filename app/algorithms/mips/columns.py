"""What is known of every coordinate before a query comes, and what it says of the query's rewards.

Notation
    n, N        number of arms, of coordinates
    x, q        arm and query (N,)
    f_j(x)      term of coordinate j: q_j x_j, or -(q_j - x_j)^2 for the nearest arm
    c           mean of the arms (N,)
    y_j         reward f_j(x) - f_j(c): a constant for each coordinate changes no comparison of two arms that
                were read at the same coordinates
    R           largest range of one coordinate's rewards over all arms
    w           bound on every |y_j|
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.algorithms import checks
from app.algorithms.mips.answer import Objective
from app.algorithms.types import Matrix, Rows, Vector
from app.errors import InvalidParameter, NonFinite

Given = NDArray[np.floating[Any]]

LARGEST = 1e9
_ENTRIES = 2**16
# Terms that were rounded to float32 by whoever named the range do not violate it.
_SLACK = 2.0**-20


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Shapes (N,): low, high, center: least, largest and about the mean value of every coordinate; reach: how
    far the least and the largest are from the center.
    """

    low: Vector
    high: Vector
    center: Vector
    reach: Vector

    def terms(self, query: Vector, objective: Objective) -> tuple[Vector, Vector, Vector]:
        """Return the least and the largest f_j over all arms, and f_j(c). Shapes: (N,) each."""
        ends = term(self.low, query, objective), term(self.high, query, objective)
        top = np.maximum(*ends)
        if objective == "nearest":
            top = term(np.clip(query, self.low, self.high), query, objective)
        return np.minimum(*ends), top, term(self.center, query, objective)


@dataclass(frozen=True, slots=True)
class Bounds:
    """R and w of the module, and whether the data contradicts the range that was given."""

    spread: float
    largest: float
    violated: bool = False


def term(values: Given, query: Vector, objective: Objective, *, out: Matrix | None = None) -> Vector:
    """f_j of the module, in ``out`` if given. Shapes: values, out (..., N), query (N,) -> (..., N)."""
    if objective == "inner_product":
        product: Vector = np.multiply(values, query, out=out)
        return product
    distance: Vector = np.subtract(values, query, out=out)
    np.square(distance, out=distance)
    return np.negative(distance, out=distance)


def of(vectors: Given, rows: Rows | None = None) -> Columns:
    """Shapes: vectors (n, N); only ``rows`` of them if given. Cost: n N reads.

    Raises: InvalidShape, NonFinite, InvalidParameter (no arms, no coordinates, a magnitude above 1e9).
    """
    checks.shape("vectors", vectors, (None, None))
    dim = vectors.shape[1]
    count = len(vectors) if rows is None else len(rows)
    if not count or not dim:
        raise InvalidParameter("vectors must hold at least one arm and one coordinate", loc=("vectors",))
    low, high, total = np.full(dim, np.inf), np.full(dim, -np.inf), np.zeros(dim)
    for some in chunks(vectors, rows):
        np.minimum(low, some.min(axis=0), out=low)
        np.maximum(high, some.max(axis=0), out=high)
        total += some.sum(axis=0, dtype=np.float64)
    largest = max(float(high.max()), -float(low.min()))
    if not math.isfinite(largest):
        raise NonFinite("vectors must be finite", loc=("vectors",))
    checks.in_range("vectors", largest, most=LARGEST)
    # In float32, so that the difference to a number in float32 is rounded once.
    center = (total / count).astype(np.float32).astype(np.float64)
    return Columns(low, high, center, np.maximum(high - center, center - low))


def bounds(
    columns: Columns | None,
    query: Vector,
    objective: Objective,
    value_range: tuple[float, float] | None,
) -> Bounds:
    """What is known of a query's rewards. Cost: O(N). ``value_range`` as in ``bounded_me``.

    Without columns the range is all there is to know: then y_j is f_j less the middle of the range.
    """
    given = None if value_range is None else term_range(value_range, objective)
    if columns is None:
        if given is None:
            raise InvalidParameter("value_range must be given", loc=("value_range",))
        return Bounds(given[1] - given[0], (given[1] - given[0]) / 2.0)
    if given is None and objective == "inner_product":
        steep = np.abs(query)
        spread = float((steep * (columns.high - columns.low)).max())  # both ends are values of some arm
        return Bounds(spread, float((steep * columns.reach).max()))
    least, top, base = columns.terms(query, objective)
    spread = float((top - least).max())
    largest = float(np.maximum(top - base, base - least).max())
    if given is None:
        return Bounds(spread, largest)
    violated = bool(least.min() < given[0] or top.max() > given[1])
    if violated:
        return Bounds(given[1] - given[0], given[1] - given[0], violated=True)
    return Bounds(min(spread, given[1] - given[0]), largest)


def term_range(value_range: tuple[float, float], objective: Objective) -> tuple[float, float]:
    """The range of f_j that ``value_range`` means, a little widened."""
    low, high = value_range
    slack = _SLACK * max(abs(low), abs(high))
    return (low - slack, high + slack) if objective == "inner_product" else (-high - slack, -low + slack)


def check_query(query: Given, dim: int, objective: Objective) -> Vector:
    """Return the query in float64. Raises: InvalidShape, NonFinite, InvalidParameter."""
    checks.shape("query", query, (dim,))
    largest = float(np.abs(query).max(initial=0.0))
    if not largest <= LARGEST:
        checks.finite("query", query)
        checks.in_range("query", largest, most=LARGEST)
    if objective not in {"inner_product", "nearest"}:
        raise InvalidParameter("objective must be inner_product or nearest", loc=("objective",))
    return query.astype(np.float64)


def check_range(value_range: tuple[float, float] | None) -> None:
    """Raise InvalidParameter unless the range is two finite numbers in order."""
    if value_range is not None:
        checks.in_range("value_range", value_range[0], most=value_range[1])
        checks.in_range("value_range", value_range[1])


def chunk_rows(dim: int) -> int:
    """How many rows ``chunks`` yields at a time."""
    return max(1, _ENTRIES // max(1, dim))


def chunks(vectors: Given, rows: Rows | None = None) -> Iterator[Given]:
    """The rows, a few at a time, so that they are in the cache when they are read again."""
    step = chunk_rows(vectors.shape[1])
    count = len(vectors) if rows is None else len(rows)
    for start in range(0, count, step):
        part = slice(start, start + step)
        yield vectors[part] if rows is None else vectors[rows[part]]
