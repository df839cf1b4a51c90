"""The net of queries, which makes a solver safe against queries made from its earlier answers.

Notation
    d, epsilon      dimension, width of the net as the paper counts it
    q, q^           query (d,), |q| <= 1; the nearest point whose coordinates are multiples of epsilon / d
    N               points of the net near a query of norm at most 1
    kappa           independent solvers, each of which fails on a fixed query with probability at most 0.1

A solver's randomness is drawn once, so an adversary who sees answers can steer towards a query on which it
fails. There are only N queries after rounding: if all kappa fail on one of them with probability at most
N 0.1^kappa <= delta, no sequence of queries, adaptive or not, meets a failure but with probability delta.

Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", section 3.3 and Theorem 3.3.
"""

from __future__ import annotations

import math

import numpy as np

from shortlist import checks
from shortlist.types import Vector

FAILURE = 0.1


def nearest_point(query: Vector, *, epsilon: float) -> Vector:
    """Return q^. |<q, p> - <q^, p>| <= ``rounding_error`` for every |p| <= 1.

    Shapes: (d,) -> (d,). Raises: NonFinite, InvalidParameter (epsilon <= 0, d < 1).
    """
    checks.finite("query", query)
    checks.in_range("epsilon", epsilon, above=0.0)
    checks.in_range("dim", len(query), least=1)
    step = epsilon / len(query)
    # Beyond 2^52 steps every float64 is as good as a multiple.
    rounded: Vector = np.rint(query / step) * step
    return np.where(np.abs(query) < step * 2.0**52, rounded, query)


def rounding_error(dim: int, epsilon: float) -> float:
    """The largest |q - q^|: half a step in each of d coordinates, epsilon / (2 sqrt d)."""
    return epsilon / (2.0 * math.sqrt(dim))


def log_points(dim: int, epsilon: float) -> float:
    """Log N: a coordinate in [-1, 1] is rounded to one of 2 floor(d / epsilon + 1/2) + 1 multiples."""
    checks.in_range("dim", dim, least=1)
    checks.in_range("epsilon", epsilon, above=0.0)
    return dim * math.log(2.0 * math.floor(dim / epsilon + 0.5) + 1.0)


def solvers_needed(dim: int, *, epsilon: float, delta: float) -> int:
    """Return kappa, the least number with N 0.1^kappa <= delta. Raises: InvalidParameter."""
    checks.delta(delta)
    # DEVIATION (Alg. 1, line 3): the net is counted; the print's d log(K d / (epsilon delta)) is larger.
    return math.ceil((log_points(dim, epsilon) - math.log(delta)) / -math.log(FAILURE))
