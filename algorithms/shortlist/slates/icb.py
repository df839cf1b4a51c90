"""ICB: confidence intervals of single arms, added up over the arms in which two slates differ.

Notation
    theta^, W   see ``least_squares``; M^ the best slate by theta^
    C           see ``widths.arm_width``; arm i has the half-width C sqrt(W_ii)

Stops when max over M of theta^(M) - theta^(M^) + C sum of sqrt(W_ii) over the exchanged arms <= epsilon. The
maximum is exact: it is the best slate for the weights theta^_i + C sqrt(W_ii) outside M^ and
theta^_i - C sqrt(W_ii) inside, so one call of the linear oracle finds it, whatever the matroid is.

Source: Kuroki et al., Algorithm 4, Lemma 1, Appendices A and B.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from shortlist import checks
from shortlist.slates.allocation import UNIFORM, slates
from shortlist.slates.campaign_state import SlateOptions, SlateState, begin, first_look, next_look
from shortlist.slates.excess import Excess
from shortlist.slates.least_squares import Fit, fit
from shortlist.slates.matroids import Matroid
from shortlist.slates.widths import Look, arm_width
from shortlist.types import Rows, Vector


def start(**options: Unpack[SlateOptions]) -> SlateState:
    """Return the campaign before any pull: see ``ask_tell`` and ``saqm.start``.

    Cost: O(n log n) a look besides the estimate, O(n^3). Raises: as ``saqm.start``.
    """
    return begin("icb", **options)


def excess(fit: Fit, look: Look) -> Excess:
    """Return the test of one look. Cost: one call of the linear oracle, O(n)."""
    inside = fit.inside.astype(bool)
    reach = arm_width(look, len(fit.theta)) * np.sqrt(np.maximum(np.diag(fit.W), 0.0))
    optimistic = fit.theta + np.where(inside, -reach, reach)
    slate = np.zeros(len(fit.theta), dtype=bool)
    slate[fit.matroid.best(optimistic)] = True
    exchanged = slate != inside
    width = float(reach[exchanged].sum())
    lead = float(fit.theta[inside & ~slate].sum() - fit.theta[slate & ~inside].sum())
    return Excess(width - lead, lead, width)


@dataclass(frozen=True, slots=True, eq=False)
class IcbResult:
    """``best`` (k,) ascending, found from ``observed`` totals; no slate exceeds it by more than ``excess``.

    ``done``: ``excess`` is at most epsilon. Otherwise as many totals were seen as were allowed.
    """

    best: Rows
    observed: int
    excess: float
    done: bool


def identify(
    matroid: Matroid,
    totals: Callable[[Rows], Vector],
    *,
    epsilon: float,
    delta: float,
    noise_std: float,
    seed: int,
    most: int = 1_000_000,
) -> IcbResult:
    """Run ICB to its end on the slates of any matroid: spanning trees of a graph, say.

    Its slate is within epsilon of the best with probability at least 1 - delta.

    ``matroid``: its linear oracle. ``totals``: measures slates (m, k), each shown once -> (m,).
    ``noise_std``: sigma, the sub-Gaussian parameter of the noise of a total. ``most``: no more totals.
    Cost: O(n^3) a look, O(n log n) and a call of the oracle a total.
    Raises: InvalidParameter (epsilon or noise_std not positive, delta not in [1e-100, 1)).
    """
    checks.in_range("epsilon", epsilon, above=0.0)
    checks.delta(delta)
    checks.in_range("noise_std", noise_std, above=0.0)
    A, b, observed, until = np.zeros((matroid.n, matroid.n)), np.zeros(matroid.n), 0, first_look(matroid.n)
    result = IcbResult(matroid.best(b), 0, math.inf, done=False)
    index = 0
    while not result.done and until <= most:
        shown = slates(UNIFORM, matroid, seed, np.arange(observed, until))
        chi = np.zeros((len(shown), matroid.n))
        np.put_along_axis(chi, shown, 1.0, axis=1)
        A, b = A + chi.T @ chi, b + chi.T @ totals(shown)
        observed, index, until = until, index + 1, next_look(until)
        estimate = fit(A, b, matroid)
        if estimate is not None:
            value = excess(estimate, Look(noise_std, delta, "certified", observed, index)).value
            result = IcbResult(estimate.best, observed, value, done=value <= epsilon)
    return result
