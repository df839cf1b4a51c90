"""The transformation by which the best mean reward becomes positive when it may be negative.

Notation
    x, r        features (d,) and reward as observed
    x', r'      [x / sqrt 2, sqrt 2 / 2] (d + 1,) and r / 2 + 1 / 2
    theta'      [theta* / sqrt 2, sqrt 2 / 2] (d + 1,): the parameter then estimated by the learner

x'.theta' = (x.theta* + 1) / 2. So the order of the arms is unchanged, a mean reward in [-1, 1] becomes one in
[0, 1], and norms of at most 1 stay at most 1. A policy uses the transformation by giving ``shift_features``
of its catalogue and ``shift_rewards`` of its log to ``ridge`` and to its solver. Nothing else changes.

Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", section 6.1.
"""

from __future__ import annotations

import numpy as np

from shortlist import checks
from shortlist.types import Matrix, Vector

_HALF_ROOT = np.sqrt(0.5)


def shift_features(features: Matrix) -> Matrix:
    """Return [x / sqrt 2, sqrt 2 / 2] of every row. Shapes: (n, d) -> (n, d + 1). Raises: InvalidShape."""
    checks.shape("features", features, (None, None))
    return np.column_stack((features * _HALF_ROOT, np.full(len(features), _HALF_ROOT)))


def shift_rewards(values: Vector) -> Vector:
    """Return r / 2 + 1 / 2. Shapes: (n,) -> (n,)."""
    return values / 2 + 0.5


def unshift_scores(scores: Vector) -> Vector:
    """Return the scores on the scale of the observed rewards, as (n,) -> (n,): undoes ``shift_rewards``."""
    return 2 * scores - 1
