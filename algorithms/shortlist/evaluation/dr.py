"""The doubly robust estimator: the predictions of a model, corrected where rewards were seen.

For notation see ``logged``. With v_ij = w_i(j-1) and w_i0 = 1, the value of place j is the mean of

    v_ij expected_ij + w_ij (r_ij - predicted_ij)

The value is unbiased if the propensities are right, whatever the model predicts, and varies the less the
better the model is. A model fitted to the same rewards biases the value.

Source: Dudik, Langford, Li, "Doubly Robust Policy Evaluation and Learning" (2011), Equation 1; for places as
steps, Jiang and Li, "Doubly Robust Off-policy Value Evaluation for Reinforcement Learning" (2016), with a
model of each step's own reward.
"""

from __future__ import annotations

import numpy as np

from shortlist.errors import InvalidParameter
from shortlist.evaluation.estimates import Estimates, of_means
from shortlist.evaluation.logged import Logged
from shortlist.evaluation.moments import Moments
from shortlist.evaluation.ranges import Ranges
from shortlist.types import Matrix, Vector


def summands(logged: Logged) -> Matrix:
    """Return what the value is the mean of. Shapes: (m, k). Raises: InvalidParameter (no predictions)."""
    if logged.predicted is None or logged.expected is None:
        raise InvalidParameter("predicted must be given: dr needs a model", argument="predicted")
    before = np.hstack((np.ones((logged.decisions, 1)), logged.weights[:, :-1]))
    terms: Matrix = before * logged.expected + logged.weights * (logged.rewards - logged.predicted)
    return terms


def estimate(moments: Moments, ranges: Ranges, *, level: float) -> Estimates:
    """The value of the target, from the moments of ``summands``. Raises: InvalidParameter (level)."""
    before = np.concatenate(([1.0], ranges.largest[:-1]))  # at most; at the first place it is 1 for certain
    (low, high), (less, more) = ranges.expected, ranges.residuals
    at_least = np.concatenate((low[:1], np.minimum(low[1:], 0.0)))
    at_most = np.concatenate((high[:1], np.maximum(high[1:], 0.0)))
    steps = (
        before * at_least + ranges.largest * np.minimum(less, 0.0),
        before * at_most + ranges.largest * np.maximum(more, 0.0),
    )
    return of_means(moments, steps, level=level)


def unseen(ranges: Ranges, values: Vector) -> tuple[Vector, Vector]:  # noqa: ARG001 - as of all estimators
    """The range of the value of a choice never made: it counts as predicted. Shapes: (k,)."""
    return ranges.residuals
