"""LinUCB: the arms of largest upper confidence bound, by a full scan.

Notation
    K, d        number of arms, dimension
    alpha       how many standard deviations are added to an estimate
    u_i         x_i.theta^ + alpha sigma ||x_i||_{V^-1}, the bound of arm i

Source: Li, Chu, Langford and Schapire, "A Contextual-Bandit Approach to Personalized News Article
Recommendation" (2010), Algorithm 1, with one learner for all arms.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shortlist import checks
from shortlist.linear.elimination import measure
from shortlist.linear.ridge import Posterior
from shortlist.types import NO_ROWS, Matrix, Rows, TopK, Vector


def upper_bounds(
    posterior: Posterior, rows: Rows, features_of: Callable[[Rows], Matrix], *, alpha: float
) -> Vector:
    """U of the arms at ``rows``; their features are read in blocks.

    Shapes: rows (K,) -> (K,). Cost: O(K d^2). Raises: InvalidParameter (alpha < 0, not finite).
    """
    # The posterior's root is one of sigma^2 V^-1, so alpha counts standard deviations, whatever rewards are.
    checks.in_range("alpha", alpha, least=0.0)
    estimates, widths = measure(posterior, rows, features_of, alpha)
    return estimates + widths


def choose(posterior: Posterior, features: Matrix, *, k: int, alpha: float, exclude: Rows = NO_ROWS) -> TopK:
    """Return the ``k`` arms of largest u, scored by it; ties in row order.

    Shapes: features (K, d), exclude (e,) distinct -> rows, scores (min(k, K - e),). Cost: O(K d^2).
    Raises: InvalidShape, InvalidParameter (k < 1, alpha < 0).
    """
    checks.shape("features", features, (None, len(posterior.theta)))
    checks.finite("features", features)
    checks.in_range("k", k, least=1)
    rows = np.setdiff1d(np.arange(len(features)), exclude)
    bounds = upper_bounds(posterior, rows, lambda some: features[some], alpha=alpha)
    best = np.argsort(-bounds, kind="stable")[:k]
    return TopK(rows[best], bounds[best], exact=True)
