"""Ridge sums scaled, added and subtracted: for discounting, and for the pooled prior.

Notation
    a, b        ``RidgeSums`` of the same dimension d; their values are sum - error, entry by entry
    c           a factor, 0 <= c
    T, t, h     reference time of the sums, time of a decision, half-life

Discounting
    Sums at reference time T hold sum w x x^T and sum w r x with w = 2^(-(T - t) / h). A later T multiplies
    both by one factor, so a learner keeps only the sums and T. The weight of a reward depends on its own
    time, so the result does not depend on the order in which rewards arrive.

Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", Equation 1, with the weights
of Russac, Vernade and Cappe, "Weighted Linear Bandits for Non-Stationary Environments" (2019), in time
instead of rounds.
"""

from __future__ import annotations

import numpy as np

from shortlist import checks
from shortlist.linear.ridge_sums import RidgeSums
from shortlist.types import Vector


def weight(elapsed_ms: int, half_life_s: float) -> float:
    """Return 2^(-elapsed / half-life), at most 1; ``elapsed_ms`` is T - t, where less than 0 counts as 0.

    Raises: InvalidParameter (half-life <= 0).
    """
    checks.in_range("half_life_s", half_life_s, above=0.0)
    return float(np.exp2(-max(0, elapsed_ms) / (1_000.0 * half_life_s)))


def scaled(sums: RidgeSums, factor: float) -> RidgeSums:
    """Return c a for c = ``factor``; the number of observations stays, their weight does not.

    The rounding of one scaling is half a unit in the last place. Cost: d (d + 3) multiplications.
    Raises: InvalidParameter (factor < 0, not finite).
    """
    checks.in_range("factor", factor, least=0.0)
    if factor == 1.0:
        return sums
    return RidgeSums(sums.total * factor, sums.error * factor, sums.observations, sums.weight * factor)


def plus(a: RidgeSums, b: RidgeSums) -> RidgeSums:
    """Return a + b. Cost: O(d^2). Raises: InvalidShape."""
    return _combined(a, b, 1.0)


def minus(a: RidgeSums, b: RidgeSums) -> RidgeSums:
    """Return a - b: what ``a`` would be without the rewards of ``b``, up to the rounding of a.

    Cost: O(d^2). Raises: InvalidShape.
    """
    return _combined(a, b, -1.0)


def _combined(a: RidgeSums, b: RidgeSums, sign: float) -> RidgeSums:
    """(total - error) + sign (total - error), as a sum and its error."""
    checks.shape("sums", b.total, a.total.shape)
    high, low = _two_sum(a.total, sign * b.total)
    total, rest = _two_sum(high, low - a.error - sign * b.error)
    count, weight = a.observations + int(sign) * b.observations, a.weight + sign * b.weight
    return RidgeSums(total, -rest, count, weight)


def _two_sum(a: Vector, b: Vector) -> tuple[Vector, Vector]:
    """Return a + b as rounded, and the rounding error, exactly (Knuth), whichever of both is larger."""
    total = a + b
    share = total - a
    return total, (a - (total - share)) + (b - share)
