"""Radii of confidence sets that several algorithms share.

Notation
    d, T            dimension, horizon: the number of rewards for which the set holds
    V, theta^       precision and estimate of ridge regression, see ``linear.ridge``
    beta            radius: ||theta^ - theta*||_V <= beta for all t <= T with probability 1 - delta
"""

from __future__ import annotations

import math

from shortlist import checks


def beta(
    delta: float,
    *,
    horizon: int,
    dim: int,
    ridge: float = 1.0,
    arm_norm: float = 1.0,
    parameter_norm: float = 1.0,
    noise: float = 1.0,
) -> float:
    """Return sqrt(ridge) S + sigma sqrt(2 log(1 / delta) + d log(1 + T L^2 / (d ridge))).

    ``arm_norm`` L bounds the norms of the features, ``parameter_norm`` S that of theta*, and ``noise``
    sigma is the sub-Gaussian parameter of a reward. With all of them 1, as the paper assumes, it is
    1 + sqrt(2 log(1 / delta) + d log(1 + T / d)).

    Raises: InvalidParameter.
    Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", Lemma B.2, in the
    general form of Abbasi-Yadkori, Pal and Szepesvari 2011, Theorem 2 with their determinant bound.
    """
    checks.in_range("delta", delta, above=0.0, below=1.0)  # a share: it may be below checks.MIN_DELTA
    checks.in_range("horizon", horizon, least=1)
    checks.in_range("dim", dim, least=1)
    checks.in_range("ridge", ridge, above=0.0)
    for name, value in (("arm_norm", arm_norm), ("parameter_norm", parameter_norm), ("noise", noise)):
        checks.in_range(name, value, least=0.0)
    volume = dim * math.log1p(horizon * arm_norm**2 / (dim * ridge))
    return math.sqrt(ridge) * parameter_norm + noise * math.sqrt(2 * math.log(1 / delta) + volume)
