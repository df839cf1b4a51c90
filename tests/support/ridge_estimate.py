"""The estimate of a learner, computed from all of its rewards at once: what the service must come to."""

from collections.abc import Sequence

import numpy as np

Features = Sequence[float]


def ridge_estimate(
    rows: Sequence[tuple[Features, float]], weights: Sequence[float] | None = None
) -> list[float]:
    """(I + X^T W X)^-1 X^T W r of (features, reward), for a ridge of 1. ``weights``: 1 each by default."""
    X, r = np.array([x for x, _ in rows]), np.array([reward for _, reward in rows])
    w = np.ones(len(r)) if weights is None else np.array(weights)
    return list(np.linalg.solve(np.eye(X.shape[1]) + X.T * w @ X, X.T * w @ r))
