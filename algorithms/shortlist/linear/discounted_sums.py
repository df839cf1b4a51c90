"""Ridge sums scaled, added and subtracted, for discounting.

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

from typing import TypeVar

import numpy as np

from shortlist import checks
from shortlist.linear.ridge_sums import RidgeSums
from shortlist.types import Vector

T = TypeVar("T", Vector, float)


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
    return RidgeSums(
        sums.total * factor,
        sums.error * factor,
        sums.observations,
        sums.weight * factor,
        sums.squares * factor,
        sums.squares_error * factor,
        sums.more * factor,
        sums.more_error * factor,
    )


def plus(a: RidgeSums, b: RidgeSums) -> RidgeSums:
    """Return a + b; a signal that one of them has not is 0 there. Cost: O(d^2). Raises: InvalidShape."""
    return _combined(a, b, 1.0)


def minus(a: RidgeSums, b: RidgeSums) -> RidgeSums:
    """Return a - b: what ``a`` would be without the rewards of ``b``, up to the rounding of a.

    Cost: O(d^2). Raises: InvalidShape.
    """
    return _combined(a, b, -1.0)


def _combined(a: RidgeSums, b: RidgeSums, sign: float) -> RidgeSums:
    """Return a + sign b."""
    checks.shape("sums", b.total, a.total.shape)
    signals = max(a.signals, b.signals)
    a, b = a.with_signals(signals), b.with_signals(signals)
    total, error = exact_sum(a.total, a.error, sign * b.total, sign * b.error)
    squares, squares_error = exact_sum(a.squares, a.squares_error, sign * b.squares, sign * b.squares_error)
    count, weight = a.observations + int(sign) * b.observations, a.weight + sign * b.weight
    more = exact_sum(a.more, a.more_error, sign * b.more, sign * b.more_error)
    return RidgeSums(total, error, count, weight, squares, squares_error, *more)


def exact_sum(a: T, a_error: T, b: T, b_error: T) -> tuple[T, T]:
    """Return (a - a_error) + (b - b_error) as a sum and its error, to twice the digits of a float64.

    So what is added and then taken back leaves what was there before, up to some 2^-104 of what was there
    between.
    """
    high, low = _two_sum(a, b)
    total, remainder = _two_sum(high, low - a_error - b_error)
    return total, -remainder


def _two_sum(a: T, b: T) -> tuple[T, T]:
    """Return a + b as rounded, and the rounding error, exactly (Knuth), whichever of both is larger."""
    total = a + b
    share = total - a
    return total, (a - (total - share)) + (b - share)
