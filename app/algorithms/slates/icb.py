"""ICB: confidence intervals of single arms, added up over the arms in which two slates differ.

Notation
    theta^, W   see ``least_squares``; M^ the best slate by theta^
    C           see ``widths.arm_width``; arm i has the half-width C sqrt(W_ii)

Stops when max over M of theta^(M) - theta^(M^) + C sum of sqrt(W_ii) over the exchanged arms <= epsilon. The
maximum is exact: sort theta^_i + C sqrt(W_ii) outside M^ and theta^_i - C sqrt(W_ii) inside.

Source: Kuroki et al., Algorithm 4, Lemma 1.
"""

from __future__ import annotations

from typing import Unpack

import numpy as np

from app.algorithms.slates.campaign_state import Options, State, begin
from app.algorithms.slates.excess import Excess
from app.algorithms.slates.least_squares import Fit
from app.algorithms.slates.widths import Look, arm_width


def start(**options: Unpack[Options]) -> State:
    """Return the campaign before any pull: see ``ask_tell`` and ``saqm.start``.

    Cost: O(n log n) a look besides the estimate, O(n^3). Raises: as ``saqm.start``.
    """
    return begin("icb", **options)


def excess(fit: Fit, look: Look) -> Excess:
    """Return the test of one look."""
    inside = fit.inside.astype(bool)
    reach = arm_width(look, len(fit.theta)) * np.sqrt(np.diag(fit.W))
    optimistic = fit.theta + np.where(inside, -reach, reach)
    slate = np.zeros(len(fit.theta), dtype=bool)
    slate[np.argsort(-optimistic, kind="stable")[: len(fit.best)]] = True
    exchanged = slate != inside
    width = float(reach[exchanged].sum())
    lead = float(fit.theta[inside & ~slate].sum() - fit.theta[slate & ~inside].sum())
    return Excess(width - lead, lead, width)
