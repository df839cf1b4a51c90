"""Self-normalised inverse propensity scoring: the weighted mean of the seen rewards.

For notation see ``logged``. The value of place j is sum_i w_ij r_ij / sum_i w_ij. The value is a little
biased, by O(1 / m), stays within the range of the rewards, and mostly varies less than with ``ips``: a
constant added to all rewards is added to the value.

Source: Swaminathan and Joachims, "The Self-Normalized Estimator for Counterfactual Learning" (2015). The
interval is by the delta method for a ratio of means.
"""

from __future__ import annotations

import numpy as np

from shortlist.evaluation.estimates import NOTHING, Estimate, Estimates, around
from shortlist.evaluation.logged import Logged
from shortlist.evaluation.moments import Moments
from shortlist.evaluation.ranges import Ranges
from shortlist.types import Matrix, Vector


def summands(logged: Logged) -> Matrix:
    """Return w r beside w. Shapes: (m, 2 k)."""
    return np.hstack((logged.weights * logged.rewards, logged.weights))


def estimate(moments: Moments, ranges: Ranges, *, level: float) -> Estimates:
    """The value of the target, from the moments of ``summands``; None where all weights are 0.

    Raises: InvalidParameter (level).
    """
    places = len(moments.mean) // 2
    earned, weights = moments.mean[:places], moments.mean[places:]
    reached = weights > 0.0
    safe = np.where(reached, weights, 1.0)
    values = earned / safe
    low, high = unseen(ranges, values)
    ups, downs = (np.maximum(ranges.largest * gap / safe, 0.0) for gap in (high, -low))

    def of(some: Vector) -> Estimate:
        if not reached[some > 0.0].all():
            return NOTHING
        gradient = np.concatenate((some / safe, -some * values / safe))
        value, up, down = float(some @ values), float(some @ ups), float(some @ downs)
        return around(value, moments, gradient, up=up, down=down, level=level)

    return Estimates(of(np.ones(places)), tuple(of(unit) for unit in np.eye(places)))


def unseen(ranges: Ranges, values: Vector) -> tuple[Vector, Vector]:
    """The range of the value of a choice never made: it counts as the seen ones. Shapes: (k,)."""
    low, high = ranges.rewards
    return low - values, high - values
