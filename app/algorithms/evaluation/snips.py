"""Self-normalised inverse propensity scoring: the weighted mean of the rewards that were seen.

For notation see ``logged``. The value of place j is sum_i w_ij r_ij / sum_i w_ij. It is a little biased, by
O(1 / m), stays within the range of the rewards, and mostly varies less than that of ``ips``: adding
a constant to all rewards adds it to the value.

Source: Swaminathan and Joachims, "The Self-Normalized Estimator for Counterfactual Learning" (2015). The
interval is by the delta method for a ratio of means.
"""

from __future__ import annotations

import numpy as np

from app.algorithms.evaluation.estimates import NOTHING, Estimate, Estimates, around
from app.algorithms.evaluation.logged import Logged
from app.algorithms.evaluation.moments import Moments
from app.algorithms.types import Matrix


def summands(logged: Logged) -> Matrix:
    """Return w r beside w. Shapes: (m, 2 k)."""
    return np.hstack((logged.weights * logged.rewards, logged.weights))


def estimate(moments: Moments, *, level: float) -> Estimates:
    """The value of the target, from the moments of ``summands``; None where all weights are 0.

    Raises: InvalidParameter (level).
    """
    places = len(moments.mean) // 2
    earned, weights = moments.mean[:places], moments.mean[places:]
    if not (weights > 0.0).all():
        reached = [_place(moments, j, level) if weights[j] > 0.0 else NOTHING for j in range(places)]
        return Estimates(NOTHING, tuple(reached))
    gradient = np.concatenate((1.0 / weights, -earned / weights**2))
    whole = around(float((earned / weights).sum()), moments, gradient, level=level)
    return Estimates(whole, tuple(_place(moments, j, level) for j in range(places)))


def _place(moments: Moments, place: int, level: float) -> Estimate:
    places = len(moments.mean) // 2
    earned, weight = moments.mean[place], moments.mean[places + place]
    gradient = np.zeros(2 * places)
    gradient[place], gradient[places + place] = 1.0 / weight, -earned / weight**2
    return around(float(earned / weight), moments, gradient, level=level)
