"""Propensities of inverse-gap weighting for the lists drawn by another policy.

Notation as in ``linear.igw`` and ``logged``, with n decisions and c candidates of each at most.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.types import Matrix, Rows, Vector


def weigh(
    estimates: Matrix,
    is_candidate: NDArray[np.bool_],
    drawn: Rows,
    *,
    gamma: float | Vector,
    predicted: Matrix | None = None,
) -> tuple[Matrix, Matrix]:
    """Return the propensity of each arm of the lists, and the mean prediction for what would be drawn there.

    ``is_candidate``   False where a decision has fewer candidates than others
    ``drawn``          places of the arms of a list among its candidates; -1: it is none, so its propensity
                       is 0
    ``gamma``          of all decisions, or of each
    ``predicted``      what a model predicts of the candidates; None: their estimates

    Shapes: estimates, is_candidate, predicted (n, c), drawn (n, k), gamma () or (n,) -> (n, k), (n, k).
    Cost: O(n c k). Raises: InvalidShape, InvalidParameter (gamma < 0).
    """
    checks.shape("estimates", estimates, (None, None))
    checks.shape("is_candidate", is_candidate, estimates.shape)
    checks.shape("drawn", drawn, (len(estimates), None))
    gammas = np.broadcast_to(np.asarray(gamma, dtype=np.float64), len(estimates))[:, None]
    checks.in_range("gamma", float(gammas.min(initial=np.inf)) if len(gammas) else 0.0, least=0.0)
    left, every = is_candidate.copy(), np.arange(len(estimates))
    predicted = estimates if predicted is None else predicted
    propensities, expected = np.zeros(drawn.shape), np.zeros(drawn.shape)
    if not estimates.shape[1]:
        return propensities, expected
    for j in range(drawn.shape[1]):
        remaining = np.where(left, estimates, -np.inf)
        best = remaining.argmax(axis=1)
        top = remaining[every, best]
        has_arms = left.any(axis=1)
        gaps = np.where(left, top[:, None] - estimates, 0.0)
        p = np.where(left, 1.0 / (np.maximum(left.sum(axis=1), 1)[:, None] + gammas * gaps), 0.0)
        p[every, best] = 0.0
        p[every, best] = np.where(has_arms, 1.0 - p.sum(axis=1), 0.0)
        expected[:, j] = np.einsum("ij,ij->i", p, np.where(left, predicted, 0.0))
        logged_rows = np.flatnonzero(drawn[:, j] >= 0)
        propensities[logged_rows, j] = p[logged_rows, drawn[logged_rows, j]]
        left[logged_rows, drawn[logged_rows, j]] = False
    return propensities, expected
