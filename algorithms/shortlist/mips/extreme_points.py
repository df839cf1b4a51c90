"""The arms that are corners of the convex hull: one of them has the largest product with any query.

Notation
    n, d        number of arms, of coordinates
    m           dimension of the flat of all arms, m <= d
    h           number of extreme points

A linear function over a polytope is largest at a corner. So a search for the best arm may leave out all other
arms. This serves k = 1 alone: the second best arm may be no corner. Of Gaussian arms about log(n)^((m - 1) /
2) are corners, times a constant which grows with m: few where m is 2 or 3, most at a dozen.

Source: Liu, Wu, Mozafari, "A Bandit Approach to Maximum Inner Product Search", Remark 1. The hull is found by
Qhull (Barber, Dobkin, Huhdanpaa, "The Quickhull Algorithm for Convex Hulls", 1996).
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import ConvexHull

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.mips.columns import Given
from shortlist.types import Matrix, Rows

# Beyond this the hull has too many faces to be found: about n^(m / 2).
MOST_DIMENSIONS = 8


def extreme_points(vectors: Given) -> Rows:
    """Return the rows of the extreme points, ascending; of equal ones one. Shapes: (n, d) -> (h,).

    Cost: O(n d min(n, d)) for the flat, and O(n log n + n^(m / 2)) for the hull.
    Raises: InvalidShape, NonFinite, InvalidParameter (no arms, more than 8 dimensions).
    """
    checks.shape("vectors", vectors, (None, None))
    checks.finite("vectors", vectors)
    if not len(vectors):
        raise InvalidParameter("vectors must hold at least one arm", argument="vectors")
    places = _within_their_flat(vectors)
    dimensions = places.shape[1]
    if dimensions == 0:
        return np.zeros(1, dtype=np.int64)
    if dimensions == 1:
        return np.unique((places[:, 0].argmin(), places[:, 0].argmax()))
    if dimensions > MOST_DIMENSIONS:
        raise InvalidParameter(f"vectors must span at most {MOST_DIMENSIONS} dimensions", argument="vectors")
    corners: Rows = np.sort(ConvexHull(places).vertices).astype(np.int64)
    return corners


def surely_extreme(vectors: Given) -> Rows:
    """Return rows that are extreme for sure, in any dimension: each is the best arm for one of n queries.

    The query of an arm is where it lies from the mean, once all directions are scaled to the same variance.
    Shapes: (n, d) -> (c,), c <= h. Cost: n^2 d products.
    Raises: InvalidShape, NonFinite.
    """
    checks.shape("vectors", vectors, (None, None))
    checks.finite("vectors", vectors)
    places = _within_their_flat(vectors)
    best = [int((places @ query).argmax()) for query in places]
    return np.unique(np.array(best, dtype=np.int64))


def _within_their_flat(vectors: Given) -> Matrix:
    """Coordinates along the directions in which the arms differ, each scaled to the same variance.

    A hull is scaled with its arms, so no corner is lost or won. Shapes: (n, d) -> (n, m).
    """
    centred = vectors - vectors.mean(axis=0, dtype=np.float64)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    rounded_away = max(vectors.shape) * float(np.finfo(vectors.dtype).eps)
    scale = max(float(sizes.max(initial=0.0)), float(np.abs(vectors).max(initial=0.0)))
    places: Matrix = left[:, sizes > rounded_away * scale]
    return places
