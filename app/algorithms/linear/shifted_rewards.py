"""The transformation for negative best rewards: an environment whose best reward is positive.

Notation
    x, r        features (d,) and reward as observed
    x', r'      [x / sqrt 2, sqrt 2 / 2] (d + 1,) and r / 2 + 1 / 2
    theta'      [theta* / sqrt 2, sqrt 2 / 2] (d + 1,): the parameter that the learner then estimates

x'.theta' = (x.theta* + 1) / 2, so the order of the arms is unchanged, and a mean reward in [-1, 1] comes
to lie in [0, 1]. Norms of at most 1 stay at most 1. A policy takes part by feeding ``shift_features`` of
its catalogue and ``shift_rewards`` of its log to ``ridge`` and to its solver: nothing else changes.

Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", section 6.1.
"""

from __future__ import annotations

import numpy as np

from app.algorithms import checks
from app.algorithms.types import Matrix, Vector

_HALF_ROOT = np.sqrt(0.5)


def shift_features(features: Matrix) -> Matrix:
    """Return [x / sqrt 2, sqrt 2 / 2] of every row. Shapes: (n, d) -> (n, d + 1). Raises: InvalidShape."""
    checks.shape("features", features, (None, None))
    return np.column_stack((features * _HALF_ROOT, np.full(len(features), _HALF_ROOT)))


def shift_rewards(values: Vector) -> Vector:
    """Return r / 2 + 1 / 2. Shapes: (n,) -> (n,)."""
    return values / 2 + 0.5


def unshift_scores(scores: Vector) -> Vector:
    """Return the scores in the observed scale: the inverse of ``shift_rewards``. Shapes: (n,) -> (n,)."""
    return 2 * scores - 1
