"""Propensities of a policy which knows none: shares of a list in simulated draws.

Notation, besides ``logged``
    n, M        decisions, draws for each

The propensity of an arm given those before it is the share of draws which go on with the arm, among those
which begin like the list. For a single arm the share is unbiased with a standard error of sqrt(t (1 - t) /
M). A list drawn with a probability well below 1 / M is mostly not seen at all.
"""

from __future__ import annotations

import numpy as np

from shortlist import checks
from shortlist.types import Matrix, Rows, Vector


def weigh(simulated: Rows, scores: Vector, which: Rows, drawn: Rows) -> tuple[Matrix, Matrix]:
    """Return the propensity of each arm of the lists, and the mean prediction for what was drawn there.

    ``simulated``   lists that the policy drew: rows of arms, -2 where none was left
    ``scores``      what a model predicts of these arms, 0 where there is none
    ``which``       which of the q situations each decision has
    ``drawn``       rows of the arms of the logged lists, -1 for one that could not be drawn

    Shapes: simulated, scores (q, M, k), which (n,), drawn (n, k) -> (n, k), (n, k).
    Cost: O(n M k), and O(n M) memory. Raises: InvalidShape.
    """
    checks.shape("drawn", drawn, (len(which), None))
    checks.shape("simulated", simulated, (None, None, drawn.shape[1]))
    checks.shape("scores", scores, simulated.shape)
    propensities, expected = np.zeros(drawn.shape), np.zeros(drawn.shape)
    alike = np.ones((len(which), simulated.shape[1]), dtype=np.bool_)
    for j in range(drawn.shape[1]):
        before = alike.sum(axis=1)
        counted = np.maximum(before, 1)
        expected[:, j] = np.where(alike, scores[which, :, j], 0.0).sum(axis=1) / counted
        alike &= simulated[which, :, j] == drawn[:, j, None]
        propensities[:, j] = alike.sum(axis=1) / counted
    return propensities, expected


def with_own_draw(propensities: Matrix, draws: int) -> Matrix:
    """Return what ``weigh`` found of logged lists, each counted as one draw more: none is 0.

    The count c of a list down to a place, of probability p, is binomial, so its inverse is unbiased but for
    what is rarer than one in ``draws``, and that is missing from mean weights, where it can be seen:

        E[(M + 1) / (c + 1)] = (1 - (1 - p)^(M + 1)) / p

    Shapes: propensities (n, k) of ``draws`` = M -> (n, k) in (0, 1]. Cost: O(n k).
    Raises: InvalidShape, InvalidParameter (draws < 1).
    """
    checks.shape("propensities", propensities, (None, None))
    checks.in_range("draws", draws, least=1)
    counts = np.rint(np.cumprod(propensities, axis=1) * draws) + 1.0
    before = np.hstack((np.full((len(counts), 1), draws + 1.0), counts[:, :-1]))
    shares: Matrix = counts / before
    return shares
