"""Results of k-center algorithms, and their common rules: arguments, ties, greedy's order.

Notation
    n, m, k     number of points, of coordinates, of centres
    d(v, s)     |x_v - x_s|^2 / m, the normalised squared distance
    d(v, S)     min over s in S of d(v, s)
    S           the centres chosen so far; greedy adds the v outside S of largest d(v, S)

Values that differ by no more than the rounding error of a sum of m squares count as equal. Of equal values
the one of the lowest index is chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.guarantee import Guarantee
from shortlist.types import Rows, Vector

Points = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class CenterSet:
    """Centres in the order of choice, and their cost.

    ``radius`` is max over v of |x_v - nearest centre|, a root distance, or an upper bound of it where
    ``radius_kind`` says so. ``reads`` counts the coordinates read, once for each pair of points;
    ``exhaustive_reads`` is n m k, what a scan reads. The guarantee is ``exact`` for greedy's own centres; its
    epsilon means: every centre had d(v, S) >= max - epsilon when chosen. Shapes: centers (k,).
    """

    centers: Rows
    radius: float
    radius_kind: Literal["exact", "upper_bound"]
    reads: int
    exhaustive_reads: int
    guarantee: Guarantee


def rounding(dim: int) -> float:
    """Bound the relative error of a sum of ``dim`` squared differences in float64, in any order."""
    return (dim + 8) * float(np.finfo(np.float64).eps)


def first_best(values: Vector, dim: int) -> int:
    """Return the lowest index of the values that rounding cannot tell from the largest.

    ``values`` are sums of ``dim`` squares.
    """
    return int(np.argmax(values >= values.max() * (1.0 - rounding(dim))))


def check_points(points: Points) -> None:
    """Raise InvalidShape or NonFinite unless ``points`` is a finite (n, m) array with n, m >= 1."""
    checks.shape("points", points, (None, None))
    if points.size == 0:
        raise InvalidParameter("points must hold at least one point and one coordinate", argument="points")
    checks.finite("points", points)


def check_count(k: int, n: int) -> None:
    """Raise InvalidParameter unless 1 <= k <= n."""
    checks.in_range("k", k, least=1, most=n, whole=True)


def first_center(first: int | None, n: int, rng: np.random.Generator) -> int:
    """Return ``first`` if it is a row, a random row if it is None. Raises InvalidParameter."""
    if first is None:
        return int(rng.integers(n))
    checks.in_range("first", first, least=0, most=n - 1, whole=True)
    return first
