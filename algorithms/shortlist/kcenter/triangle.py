"""Bounds of a pair by the triangle inequality, from the bounds of two others.

Notation
    p, r            number of centres, of points
    D(v, s)         squared Euclidean distance, in any one unit; its root is a metric
    L, U            bounds of D, as in ``race``

    sqrt D(v, c) >= sqrt D(s, c) - sqrt D(v, s),  sqrt D(v, s) - sqrt D(s, c)
    sqrt D(v, c) <= sqrt D(s, c) + sqrt D(v, s)

So a point near one centre is far from every centre far from the first, and need not be read against those.
The bounds of D follow for its roots alone: squared distances are no metric, and taken for one they are wrong.
They follow from bounds, not from means. Where all intervals hold, so do the derived ones: no share of delta
is needed.

Source: a remark of Jali, Karamchandani, Moharir, "Greedy k-Center from Noisy Distance Samples", section VI-A.
"""

from __future__ import annotations

import numpy as np

from shortlist.types import Matrix


def implied(
    lower: Matrix, upper: Matrix, between_lower: Matrix, between_upper: Matrix
) -> tuple[Matrix, Matrix]:
    """Return the bounds of each pair of a centre and a point that follow from all other centres.

    ``lower``, ``upper``                   bounds of D of centres and points
    ``between_lower``, ``between_upper``   bounds of D of two centres; the diagonal is ignored
    Shapes: (p, r), (p, r), (p, p), (p, p) -> (p, r), (p, r); 0 and infinity of a lone centre. Cost: O(p^2 r).
    """
    low, high = np.sqrt(lower), np.sqrt(upper)
    near, far = np.sqrt(between_lower), np.sqrt(between_upper)
    found_low, found_high = np.zeros_like(lower), np.full_like(upper, np.inf)
    for center in range(len(lower)):
        others = np.arange(len(lower)) != center
        if not others.any():
            continue
        to_near, to_far = near[center, others, None], far[center, others, None]
        differences = np.maximum(to_near - high[others], low[others] - to_far)
        found_low[center] = np.square(np.maximum(differences.max(axis=0), 0.0))
        found_high[center] = np.square((to_far + high[others]).min(axis=0))
    return found_low, found_high
