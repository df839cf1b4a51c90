"""What an estimator answers, and the interval of a smooth function of means.

The interval is value +- z se with z the normal quantile and se by the delta method. For decisions of a policy
that learns meanwhile the summands are a martingale difference sequence instead of independent, and the same
interval holds in the limit as long as propensities do not vanish. It holds at one look; to look
again and again needs ``confidence_sequence``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from app.algorithms import checks
from app.algorithms.evaluation.moments import Moments
from app.algorithms.types import Vector


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


def around(value: float, moments: Moments, gradient: Vector, *, level: float) -> Estimate:
    """The estimate ``value``, a function of the means with this gradient at them.

    ``level`` is the probability with which the interval is to hold the true value, such as 0.95.
    Shapes: gradient (c,). Raises: InvalidParameter (level).
    """
    checks.in_range("level", level, above=0.0, below=1.0)
    if moments.count < 2:
        return Estimate(value, None)
    half = float(ndtri(0.5 + level / 2.0)) * math.sqrt(moments.variance_of_mean(gradient))
    return Estimate(value, (value - half, value + half))


def of_means(moments: Moments, *, level: float) -> Estimates:
    """Where each column is the value of a place: its mean, and the mean of the sum of all."""
    if not moments.count:
        return Estimates(NOTHING, (NOTHING,) * len(moments.mean))
    places = len(moments.mean)
    units = np.eye(places)
    each = tuple(around(float(moments.mean[j]), moments, units[j], level=level) for j in range(places))
    return Estimates(around(float(moments.mean.sum()), moments, np.ones(places), level=level), each)
