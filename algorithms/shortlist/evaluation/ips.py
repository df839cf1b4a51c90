"""Inverse propensity scoring: the seen rewards, each divided by the probability of being seen.

For notation see ``logged``. The value of place j is the mean of w_ij r_ij. The value is unbiased if every arm
of the target could have been drawn, and its variance grows with the squares of the weights.

Source: Horvitz and Thompson, "A Generalization of Sampling Without Replacement From a Finite Universe"
(1952).
"""

from __future__ import annotations

import numpy as np

from shortlist.evaluation.estimates import Estimates, of_means
from shortlist.evaluation.logged import Logged
from shortlist.evaluation.moments import Moments
from shortlist.evaluation.ranges import Ranges
from shortlist.types import Matrix, Vector


def summands(logged: Logged) -> Matrix:
    """Return w r. Shapes: (m, k)."""
    return logged.weights * logged.rewards


def estimate(moments: Moments, ranges: Ranges, *, level: float) -> Estimates:
    """The value of the target, from the moments of ``summands``. Raises: InvalidParameter (level)."""
    low, high = ranges.rewards
    steps = ranges.largest * np.minimum(low, 0.0), ranges.largest * np.maximum(high, 0.0)
    return of_means(moments, steps, level=level)


def unseen(ranges: Ranges, values: Vector) -> tuple[Vector, Vector]:  # noqa: ARG001 - as of all estimators
    """The range of the value of a choice never made: it counts 0, and earned a reward. Shapes: (k,)."""
    return ranges.rewards
