"""Radii of confidence sets.

Notation
    d, T        dimension, horizon
    delta       probability that the set misses the parameter at any time up to T
"""

from __future__ import annotations

import math

from app.algorithms import checks


def beta(delta: float, *, dim: int, horizon: int) -> float:
    """Return the radius of the ellipsoid around theta^: ||theta^_t - theta*||_{V_t} <= beta for all t <= T.

    beta(delta) = 1 + sqrt(2 log(1/delta) + d log(1 + T/d)), for ridge 1, 1-sub-Gaussian noise, and norms of
    at most 1. Raises: InvalidParameter (delta not in (0, 1), dim or horizon below 1).
    Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", Lemma B.2.
    """
    checks.in_range("delta", delta, above=0.0, below=1.0)
    checks.in_range("dim", dim, least=1)
    checks.in_range("horizon", horizon, least=1)
    return 1.0 + math.sqrt(2.0 * math.log(1.0 / delta) + dim * math.log1p(horizon / dim))
