"""Linear elimination: the most uncertain arm among those that may still be the best, by a full scan.

Notation
    K, d            number of arms, dimension
    w               radius * ||x||_{V^-1}, the width of an arm (K,)
    r               max over arms of x.theta^ - w, the elimination threshold

No state is kept: the living arms are computed from the posterior at every step. So this is the reference for
``sub_elim``.

Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", section 5: "an
elimination-based algorithm typically selects the arm with the highest uncertainty".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.linear.elimination import measure
from shortlist.linear.ridge import Posterior
from shortlist.types import NO_ROWS, Matrix, Rows, TopK, Vector


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """``spans`` are the widths, ``upper`` is x.theta^ + w, ``lives`` says which arms reach r, the
    ``threshold``.

    Shapes: (K,) each.
    """

    spans: Vector
    upper: Vector
    lives: NDArray[np.bool_]
    threshold: float


def survey(posterior: Posterior, features: Matrix, *, radius: float) -> Measured:
    """Measure all arms; ``radius`` multiplies ||x||_{V^-1}.

    Shapes: features (K, d). Cost: O(K d^2). Raises: as ``choose``.
    """
    checks.shape("features", features, (None, len(posterior.theta)))
    checks.in_range("radius", radius, above=0.0)
    estimates, spans = measure(posterior, np.arange(len(features)), lambda some: features[some], radius)
    upper, threshold = estimates + spans, float((estimates - spans).max(initial=-np.inf))
    # DEVIATION (section 7, Linear Elim): no stages; r and the living arms are those of the posterior now.
    return Measured(spans, upper, upper >= threshold, threshold)


def choose(posterior: Posterior, features: Matrix, *, k: int, radius: float, exclude: Rows = NO_ROWS) -> TopK:
    """Return the ``k`` most uncertain arms whose upper bound x.theta^ + w reaches r; ties in row order.

    When fewer than k live, the other arms follow in the order of their upper bounds, also scored by width.
    Excluded arms count for r. ``radius`` multiplies ||x||_{V^-1}.

    Shapes: features (K, d), exclude (e,) distinct -> rows, scores (min(k, K - e),). Cost: O(K d^2).
    Raises: InvalidShape, NonFinite, InvalidParameter (k < 1, radius <= 0).
    """
    checks.in_range("k", k, least=1)
    measured = survey(posterior, features, radius=radius)
    eligible = np.ones(len(features), dtype=bool)
    eligible[exclude] = False
    chosen = largest_of(measured.spans, np.flatnonzero(eligible & measured.lives), k)
    if len(chosen) < k:
        fillers = largest_of(measured.upper, np.flatnonzero(eligible & ~measured.lives), k - len(chosen))
        chosen = np.concatenate((chosen, fillers))
    return TopK(chosen, measured.spans[chosen], exact=True)


def largest_of(values: Vector, rows: Rows, k: int) -> Rows:
    """Return the ``k`` of ``rows`` with the largest values, in that order; ties in row order."""
    if len(rows) > k:
        row_values = values[rows]
        rows = rows[row_values >= np.partition(row_values, -k)[-k]]
    return rows[np.lexsort((rows, -values[rows]))][:k]
