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
from app.algorithms.types import Rows, Vector
from app.errors import InvalidParameter, NonFinite

Given = NDArray[np.floating[Any]]
Single = NDArray[np.float32]

LARGEST = 1e9
# What underflows in float32, in units of the largest number of a query; coordinates are below 2^30.
TINY = 2.0**-118
_ENTRIES = 2**16
# The reciprocal of its power of two is a number.
_LEAST_EXPONENT = -1_000
# Times this, a product in float32 of rounded numbers is at least that of the numbers.
_PRODUCT_ABOVE = 1.0 + 2.0**-22
# Terms that were rounded to float32 by whoever named the range do not violate it.
_SLACK = 2.0**-20


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Shapes (N,): low, high, center: least, largest and about the mean value of every coordinate; width: at
    least how far the least and the largest are from each other; reach: at least how far from the center.
    """

    low: Vector
    high: Vector
    center: Vector
    width: Single
    reach: Single

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


def term(values: Given, query: Vector, objective: Objective) -> Vector:
    """f_j of the module. Shapes: values (..., N), query (N,) -> (..., N)."""
    terms: Vector = values * query if objective == "inner_product" else -np.square(values - query)
    return terms


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
    return Columns(low, high, center, _above(high - low), _above(np.maximum(high - center, center - low)))


def _above(values: Vector) -> Single:
    return np.nextafter(values.astype(np.float32), np.float32(np.inf))


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
        return product_bounds(columns, *scaled(query, magnitude(query)))
    least, top, base = columns.terms(query, objective)
    spread = float((top - least).max())
    largest = float(np.maximum(top - base, base - least).max())
    if given is None:
        return Bounds(spread, largest)
    violated = bool(least.min() < given[0] or top.max() > given[1])
    if violated:
        return Bounds(given[1] - given[0], given[1] - given[0], violated=True)
    return Bounds(min(spread, given[1] - given[0]), largest)


def scaled(slope: Vector, largest: float) -> tuple[Single, int]:
    """Return the slope, at most ``largest``, over a power of two that leaves at most 1, and the exponent."""
    exponent = max(math.frexp(largest)[1], _LEAST_EXPONENT)
    return (slope * math.ldexp(1.0, -exponent)).astype(np.float32), exponent


def product_bounds(columns: Columns, slope: Single, exponent: int) -> Bounds:
    """R and w where f_j is the product of x_j and 2^exponent slope_j. Cost: O(N), in float32."""

    def above(factors: Single) -> float:
        return math.ldexp(_PRODUCT_ABOVE * float(np.multiply(steep, factors).max()) + TINY, exponent)

    steep = np.abs(slope)
    return Bounds(above(columns.width), above(columns.reach))  # both ends of a width are values of some arm


def term_range(value_range: tuple[float, float], objective: Objective) -> tuple[float, float]:
    """The range of f_j that ``value_range`` means, a little widened."""
    low, high = value_range
    slack = _SLACK * max(abs(low), abs(high))
    return (low - slack, high + slack) if objective == "inner_product" else (-high - slack, -low + slack)


def magnitude(values: Given) -> float:
    """The largest absolute value, NaN if there is one; 0 of none."""
    return max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))


def check_query(query: Given, dim: int, objective: Objective) -> tuple[Vector, float]:
    """Return the query in float64, and its magnitude. Raises: InvalidShape, NonFinite, InvalidParameter."""
    checks.shape("query", query, (dim,))
    largest = magnitude(query)
    if not largest <= LARGEST:
        checks.finite("query", query)
        checks.in_range("query", largest, most=LARGEST)
    if objective not in {"inner_product", "nearest"}:
        raise InvalidParameter("objective must be inner_product or nearest", loc=("objective",))
    return query.astype(np.float64), largest


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
