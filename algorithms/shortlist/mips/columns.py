"""The range and mean of every coordinate over the arms, and bounds on a query's rewards that follow.

Notation
    n, N        number of arms, of coordinates
    x, q        arm and query (N,)
    f_j(x)      term of coordinate j: q_j x_j, or -(q_j - x_j)^2 for the nearest arm
    c           mean of the arms (N,)
    y_j         reward f_j(x) - f_j(c). Arms are only compared at the same coordinates, so what is taken off
                every arm alike changes nothing
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

from shortlist import checks
from shortlist.errors import InvalidParameter, NonFinite
from shortlist.mips.answer import Objective
from shortlist.types import Rows, Vector

Given = NDArray[np.floating[Any]]
Single = NDArray[np.float32]

LARGEST = 1e9
# At least what underflows when a product is computed in float32: coordinates are below 2^30, and the largest
# number of the query is scaled to at most 1.
TINY = 2.0**-118
# ``chunks`` yields about this many numbers at a time, 512 KB in float64.
_ENTRIES = 2**16
# 2^-exponent is finite in float64 for exponents from here on.
_LEAST_EXPONENT = -1_000
# Two numbers were rounded to float32 and multiplied there. The product times this is at least the true one.
_PRODUCT_ABOVE = 1.0 + 2.0**-22
# A range that was given is widened by this share: its ends may be terms that were rounded to float32.
_SLACK = 2.0**-20


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Statistics of every coordinate. Shapes: (N,) each.

    ``low``, ``high``: the least and the largest value. ``center``: about the mean value, c.
    ``width``: at least high - low. ``reach``: at least the largest distance from the center.
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
    """``spread`` is R, ``largest`` is w. ``violated``: the arms contradict the range that was given."""

    spread: float
    largest: float
    violated: bool = False


def term(values: Given, query: Vector, objective: Objective) -> Vector:
    """Return f_j. Shapes: values (..., N), query (N,) -> (..., N)."""
    terms: Vector = values * query if objective == "inner_product" else -np.square(values - query)
    return terms


def of(vectors: Given, rows: Rows | None = None) -> Columns:
    """Return the columns of ``vectors`` (n, N), or of some ``rows`` of them. Cost: n N reads.

    Raises: InvalidShape, NonFinite, InvalidParameter (no arms, no coordinates, a magnitude above 1e9).
    """
    checks.shape("vectors", vectors, (None, None))
    dim = vectors.shape[1]
    count = len(vectors) if rows is None else len(rows)
    if not count or not dim:
        raise InvalidParameter("vectors must hold at least one arm and one coordinate", argument="vectors")
    low, high, total = np.full(dim, np.inf), np.full(dim, -np.inf), np.zeros(dim)
    for chunk in chunks(vectors, rows):
        np.minimum(low, chunk.min(axis=0), out=low)
        np.maximum(high, chunk.max(axis=0), out=high)
        total += chunk.sum(axis=0, dtype=np.float64)
    largest = max(float(high.max()), -float(low.min()))
    if not math.isfinite(largest):
        raise NonFinite("vectors must be finite", argument="vectors")
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
    """Return bounds on a query's rewards. Cost: O(N). Raises InvalidParameter (neither columns nor a range).

    ``value_range`` bounds every product q_j x_j, or (q_j - x_j)^2. Without columns it is all that is known;
    then y_j is f_j less the middle of the range.
    """
    given_range = None if value_range is None else term_range(value_range, objective)
    if columns is None:
        if given_range is None:
            raise InvalidParameter("value_range must be given", argument="value_range")
        return Bounds(given_range[1] - given_range[0], (given_range[1] - given_range[0]) / 2.0)
    if given_range is None and objective == "inner_product":
        return product_bounds(columns, *scaled(query, magnitude(query)))
    least, top, base = columns.terms(query, objective)
    spread = float((top - least).max())
    largest = float(np.maximum(top - base, base - least).max())
    if given_range is None:
        return Bounds(spread, largest)
    violated = bool(least.min() < given_range[0] or top.max() > given_range[1])
    if violated:
        return Bounds(given_range[1] - given_range[0], given_range[1] - given_range[0], violated=True)
    return Bounds(min(spread, given_range[1] - given_range[0]), largest)


def scaled(slope: Vector, largest: float) -> tuple[Single, int]:
    """Return the slope over 2^exponent, at most 1 in magnitude, and the exponent.

    ``largest`` is the largest magnitude of the slope.
    """
    exponent = max(math.frexp(largest)[1], _LEAST_EXPONENT)
    return (slope * math.ldexp(1.0, -exponent)).astype(np.float32), exponent


def product_bounds(columns: Columns, slope: Single, exponent: int) -> Bounds:
    """Return bounds on rewards where f_j = 2^exponent slope_j x_j. Cost: O(N), in float32."""

    def above(factors: Single) -> float:
        return math.ldexp(_PRODUCT_ABOVE * float(np.multiply(steep, factors).max()) + TINY, exponent)

    steep = np.abs(slope)
    return Bounds(above(columns.width), above(columns.reach))


def term_range(value_range: tuple[float, float], objective: Objective) -> tuple[float, float]:
    """Return the range of f_j that follows from ``value_range``, a little widened."""
    low, high = value_range
    slack = _SLACK * max(abs(low), abs(high))
    return (low - slack, high + slack) if objective == "inner_product" else (-high - slack, -low + slack)


def magnitude(values: Given) -> float:
    """Return the largest absolute value; NaN if there is a NaN, 0 of no values."""
    return max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))


def check_query(query: Given, dim: int, objective: Objective) -> tuple[Vector, float]:
    """Return the query in float64, and its magnitude.

    Raises: InvalidShape, NonFinite, InvalidParameter (a magnitude above 1e9, an unknown objective).
    """
    checks.shape("query", query, (dim,))
    largest = magnitude(query)
    if not largest <= LARGEST:
        checks.finite("query", query)
        checks.in_range("query", largest, most=LARGEST)
    if objective not in {"inner_product", "nearest"}:
        raise InvalidParameter("objective must be inner_product or nearest", argument="objective")
    return query.astype(np.float64), largest


def check_range(value_range: tuple[float, float] | None) -> None:
    """Raise InvalidParameter unless the range is two finite numbers in order."""
    if value_range is not None:
        checks.in_range("value_range", value_range[0], most=value_range[1])
        checks.in_range("value_range", value_range[1])


def chunk_rows(dim: int) -> int:
    """Return how many rows ``chunks`` yields at a time."""
    return max(1, _ENTRIES // max(1, dim))


def chunks(vectors: Given, rows: Rows | None = None) -> Iterator[Given]:
    """Yield the rows, a few at a time, so that they are in the cache when they are read again."""
    step = chunk_rows(vectors.shape[1])
    count = len(vectors) if rows is None else len(rows)
    for start in range(0, count, step):
        part = slice(start, start + step)
        yield vectors[part] if rows is None else vectors[rows[part]]
