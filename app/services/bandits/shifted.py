"""What a learner of shifted rewards finds, on the scale of the rewards that users give."""

from __future__ import annotations

import math

from shortlist.linear.shifted_rewards import unshift_scores
from shortlist.types import Matrix, TopK, Vector


def observed(hits: TopK) -> TopK:
    """Scores in the scale of the rewards that users give."""
    return TopK(hits.rows, unshift_scores(hits.scores), hits.exact)


def observed_theta(theta: Vector) -> tuple[Vector, float]:
    """(theta, offset) of the prediction x.theta + offset. Shapes: (d + 1,) -> (d,), ()."""
    root = math.sqrt(2.0)
    return theta[:-1] * root, float(theta[-1] * root - 1.0)


def observed_weights(weights: Matrix) -> Matrix:
    """The weights of a context on the scale of observed rewards. Shapes: (p, m) -> (p, m)."""
    return weights * math.sqrt(2.0)
