"""The answer of an estimator, and the interval of a smooth function of means.

Notation
    S           estimated variance of the sum of n summands, by the delta method for a function of means
    b           by how much one summand could lie above (below) its mean at most: its weight times its reward
    V           S / b^2: as many summands of the largest size would vary as much

A sum of summands of size b varies as b times a Poisson count, so its upper limit follows from a count of V,

    b (G^-1(V + 1, (1 + level) / 2) - V)

above the value, with G^-1(a, p) the p-quantile of the gamma distribution of shape a. Where V is large this is
the normal quantile times sqrt(S); where few summands decide, the limit leaves room for one more of the
largest size. The lower limit is the same with the largest step down.

Where the mean weight shows, beyond chance, a share of the target's choices which were never made, the
interval is widened by the possible error of this share (``widened_by``). Where rewards have bounds, so has
their mean: no interval leaves them (``within``). A value may, by chance: held to the bounds its mean would no
longer be right.

For decisions of a learning policy the summands are a martingale difference sequence instead of
independent, and the same interval holds in the limit as long as propensities do not vanish. It holds at one
look; to look again and again needs ``confidence_sequence``.

Source: Garwood, "Fiducial Limits for the Poisson Distribution" (1936); for weighted sums Fay and Feuer,
"Confidence intervals for directly standardized rates" (1997), here with every summand taken to be as large as
the largest, which is on the safe side, and with V from the variance: summands may be of either sign.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincinv, ndtri

from shortlist import checks
from shortlist.evaluation.moments import Moments
from shortlist.types import Vector

MANY = 1e6  # V, from which on the first terms of Cornish and Fisher have more digits than the difference

Steps = tuple[Vector, Vector]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its interval; None where there is too little to tell either."""

    value: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Estimates:
    """``whole``: the mean over decisions of the sum over the places. ``places``: of each place alone."""

    whole: Estimate
    places: tuple[Estimate, ...]


NOTHING = Estimate(None, None)


def nothing(places: int) -> Estimates:
    """The estimates without decisions."""
    return Estimates(NOTHING, (NOTHING,) * places)


def widened_by(found: Estimates, low: Vector, high: Vector) -> Estimates:
    """With intervals that reach further: by ``low`` <= 0 and ``high`` >= 0 at each place. Shapes: (k,)."""

    def wider(one: Estimate, below: float, above: float) -> Estimate:
        return Estimate(one.value, one.interval and (one.interval[0] + below, one.interval[1] + above))

    places = zip(found.places, low.tolist(), high.tolist(), strict=True)
    total = wider(found.whole, float(low.sum()), float(high.sum()))
    return Estimates(total, tuple(wider(*bounds) for bounds in places))


def within(found: Estimates, low: Vector, high: Vector) -> Estimates:
    """With intervals that lie between the bounds of the mean at each place. Shapes: (k,), (k,)."""

    def held(one: Estimate, least: float, most: float) -> Estimate:
        if one.interval is None:
            return one
        start, end = (min(max(bound, least), most) for bound in one.interval)
        return Estimate(one.value, (start, end))

    places = zip(found.places, low.tolist(), high.tolist(), strict=True)
    total = held(found.whole, float(low.sum()), float(high.sum()))
    return Estimates(total, tuple(held(*bounds) for bounds in places))


def around(
    value: float, moments: Moments, gradient: Vector, *, up: float, down: float, level: float
) -> Estimate:
    """The estimate ``value``, a function of the means with this gradient at them.

    ``up``, ``down``: by how much one row's gradient . row could lie above and below its mean, counted once;
    where neither could, nothing is known of how rows vary. ``level`` is the probability with which the
    interval is to hold the true value, such as 0.95. Shapes: gradient (c,). Raises: InvalidParameter (level).
    """
    checks.in_range("level", level, above=0.0, below=1.0)
    if moments.count < 2 or max(up, down) <= 0.0:
        return Estimate(value, None)
    total, times = moments.total, moments.largest
    spread = math.sqrt(moments.variance_of_mean(gradient)) * total
    below, above = (reach(spread, times * step, level=level) / total for step in (down, up))
    return Estimate(value, (value - below, value + above))


def reach(spread: float, step: float, *, level: float) -> float:
    """The distance of a sum's limit above its estimate, with S = ``spread``^2 and b = ``step``."""
    p = 0.5 + level / 2.0
    z = float(ndtri(p))
    if step <= 0.0 or (spread / step) ** 2 > MANY:
        return z * spread + max(step, 0.0) * (z * z + 2.0) / 3.0
    size = (spread / step) ** 2
    return step * (float(gammaincinv(size + 1.0, p)) - size)


def of_means(moments: Moments, steps: Steps, *, level: float) -> Estimates:
    """The estimates where each column is the value of a place: its mean, and the mean of the sum of all.

    ``steps``: the least and the largest value that a row could have at each place. Shapes: (k,), (k,).
    """
    ups, downs = steps[1] - moments.mean, moments.mean - steps[0]
    units = np.eye(len(moments.mean))

    def of(gradient: Vector) -> Estimate:
        up, down = float(gradient @ ups), float(gradient @ downs)
        return around(float(gradient @ moments.mean), moments, gradient, up=up, down=down, level=level)

    return Estimates(of(np.ones(len(units))), tuple(of(unit) for unit in units))
