"""Weights of the stages of an experiment. A stage is all decisions drawn with one share of the groups.

If the share of a group falls while everybody earns more, as on a Friday, the group lacks Fridays, and the
plain means of the groups differ though nothing helped. So groups are compared within each stage, and the
differences are joined.

Notation
    n_s, n'_s   decisions of both groups in stage s
    w_s         n_s n'_s / (n_s + n'_s), divided by their sum: the weight of stage s
    m_s, m'_s   mean rewards of the groups in it

The mean of a group is the sum of w_s m_s, with the weights of the other group, so the joined difference is
the difference of the means. Where rewards vary alike in all stages, each weight is inverse to the variance of
the difference of its stage. They depend on counts and not on rewards, so they prefer no stage for its luck.

Source: Cochran, "Some methods for strengthening the common chi^2 tests" (1954); Mantel and Haenszel (1959)
use the same weights.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.types import Matrix, Vector


def weights(counts: Matrix, enough: NDArray[np.bool_]) -> Vector:
    """w_s of each stage: 0 of those that do not count.

    ``counts``: of both groups. ``enough``: whether both are large enough for an interval of the stage alone.
    If no stage is, the one of largest w_s counts alone; if no stage has both groups, the one of most
    decisions.
    Shapes: (S, 2), (S,) -> (S,). Raises: InvalidShape.
    """
    checks.shape("counts", counts, (None, 2))
    checks.shape("enough", enough, (len(counts),))
    if not len(counts):
        return np.empty(0)
    totals = counts.sum(axis=1)
    stage_weights = counts.prod(axis=1) / np.maximum(totals, 1.0)
    if not (stage_weights * enough).any():
        alone = np.lexsort((totals, stage_weights))[-1]
        stage_weights, enough = np.zeros(len(counts)), np.ones(len(counts), dtype=bool)
        stage_weights[alone] = 1.0
    stage_weights = stage_weights * enough
    result: Vector = stage_weights / stage_weights.sum()
    return result
