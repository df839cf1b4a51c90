"""Naive greedy k-center: every distance to every centre, at the speed of a matrix product.

Notation
    n, m, k     number of points, of coordinates, of centres
    D(v, s)     |x_v - x_s|^2, the squared distance as it is defined: differences squared, in float64
    near        (n,) min over the chosen centres s of |x_v|^2 + |x_s|^2 - 2 x_v.x_s, in working precision
    e           bound on |near - min D| for every entry

A matrix product is many times faster than differences, but loses digits by cancellation. Its error is at most
e, so the farthest point is among those with near >= max near - 2e. Only the distances of these points are
computed as they are defined, and none of them twice.

For products and norms in pieces of ``_PIECE`` coordinates, added up in float64, e is gamma (|x_v| + |x_s|)^2
with gamma = (_PIECE + 4) u (N. Higham, "Accuracy and Stability of Numerical Algorithms", section 3.1).

Source: Gonzalez, "Clustering to minimize the maximum intercluster distance", as the baseline "naive greedy"
of Jali, Karamchandani, Moharir, "Greedy k-Center from Noisy Distance Samples", sections IV and VI.
"""

from __future__ import annotations

import math

import numpy as np

from shortlist.errors import NonFinite
from shortlist.guarantee import exactly
from shortlist.kcenter.center_set import (
    CenterSet,
    Points,
    check_count,
    check_points,
    first_best,
    first_center,
    rounding,
)
from shortlist.types import Rows, Vector

_PIECE = 1024
_ROWS = 512


def naive_greedy(points: Points, *, k: int, rng: np.random.Generator, first: int | None = None) -> CenterSet:
    """Return greedy's ``k`` centres; the radius is exact and at most twice the best possible one.

    ``first`` is the first centre, a random one if None.
    Shapes: points (n, m), float32 or float64 -> centers (k,).
    Cost: n m k coordinate reads by matrix products, and a few points a stage again, as defined.
    Raises: InvalidShape, NonFinite, InvalidParameter (k not in 1..n, first not in 0..n-1, no points).
    """
    check_points(points)
    n, dim = points.shape
    check_count(k, n)
    centers = [first_center(first, n, rng)]
    points, squared_norms = _with_norms(points)
    near, error = np.full(n, np.inf), _error(points, float(squared_norms.max()))
    exact = _ExactDistances(points)
    while True:
        latest = centers[-1]
        products = _products(points, points[latest])
        np.minimum(near, squared_norms + squared_norms[latest] - 2.0 * products, out=near)
        near[latest] = -np.inf
        rows = np.flatnonzero(near >= max(near.max() - 2.0 * error, np.finfo(np.float64).min))
        farthest, distance = exact.farthest(rows, centers)
        if len(centers) == k:
            break
        centers.append(farthest)
    chosen = np.array(centers, dtype=np.int64)
    return CenterSet(chosen, math.sqrt(distance), "exact", n * dim * k, n * dim * k, exactly())


class _ExactDistances:
    """Computes min over the centres of D(v, s) for the rows that are asked for, and no pair twice.

    So even if all points tie, the whole run costs n m k, as a scan by differences does.
    """

    def __init__(self, points: Points) -> None:
        self.points = points
        self.nearest = np.full(len(points), np.inf)
        self.counted = np.zeros(len(points), dtype=np.int64)

    def farthest(self, rows: Rows, centers: list[int]) -> tuple[int, float]:
        """Return the row of largest min over ``centers`` of D, and its D; (-1, 0) if there are no rows."""
        if rows.size == 0:
            return -1, 0.0
        for position in range(int(self.counted[rows].min()), len(centers)):
            behind = rows[self.counted[rows] <= position]
            to_center = distances(self.points, behind, centers[position])
            self.nearest[behind] = np.minimum(self.nearest[behind], to_center)
        self.counted[rows] = len(centers)
        best = first_best(self.nearest[rows], self.points.shape[1])
        return int(rows[best]), float(self.nearest[rows[best]])


def distances(points: Points, rows: Rows, center: int) -> Vector:
    """Return D(v, center) for v in ``rows``, each by the same order of operations. Shapes: (r,) -> (r,)."""
    result = np.empty(len(rows))
    origin = points[center].astype(np.float64)
    for start in range(0, len(rows), _ROWS):
        block = points[rows[start : start + _ROWS]] - origin
        np.einsum("ij,ij->i", block, block, out=result[start : start + _ROWS])
    return result


def _with_norms(points: Points) -> tuple[Points, Vector]:
    """Return the points in a working precision that holds their squared norms, and these norms."""
    for kind in (np.float32, np.float64)[points.dtype != np.float32 :]:
        points = points.astype(kind, copy=False)
        with np.errstate(over="ignore"):
            squared_norms = _squared_norms(points)
            largest_distance = 4.0 * squared_norms.max()
        if np.isfinite(largest_distance):
            return points, squared_norms
    raise NonFinite("points must have squared norms within the range of float64", argument="points")


def _error(points: Points, largest: float) -> float:
    """Return twice the bound e for squared norms of at most ``largest``; the last term covers underflow."""
    info, dim = np.finfo(points.dtype), points.shape[1]
    relative: float = (_PIECE + 4) * float(info.eps) + 2.0 * rounding(dim)
    underflow: float = 8.0 * dim * float(info.tiny)
    return 4.0 * relative * largest + underflow


def _squared_norms(points: Points) -> Vector:
    total = np.zeros(len(points))
    for start in range(0, points.shape[1], _PIECE):
        piece = points[:, start : start + _PIECE]
        total += np.einsum("ij,ij->i", piece, piece)
    return total


def _products(points: Points, point: Points) -> Vector:
    """Return x_v.point for every row v, summed in float64 over pieces of ``_PIECE`` coordinates."""
    total = np.zeros(len(points))
    for start in range(0, len(point), _PIECE):
        total += points[:, start : start + _PIECE] @ point[start : start + _PIECE]
    return total
