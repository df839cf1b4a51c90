"""SA-FOA: stop when no slate can beat M^ by more than epsilon; norms of gaps by a first-order approximation.

Notation
    theta^, W   see ``least_squares``; M^ the best slate by theta^
    C_s         see ``widths.exchange_widths``
    M_i, v_i    a slate of the support; chi_M^ - chi_M_i
    h           C / (2 ||v_i||): C ||v|| <= h ||v||^2 + C ||v_i|| / 2 for every v

Source: Kuroki et al., Algorithm 3, Equation 5.
"""

from __future__ import annotations

from typing import Unpack

import numpy as np

from shortlist.errors import InvalidParameter
from shortlist.slates.campaign_state import SlateOptions, SlateState, begin
from shortlist.slates.densest_k_subgraph import peel
from shortlist.slates.excess import Excess
from shortlist.slates.gap_bounds import gap_bounds
from shortlist.slates.least_squares import Fit
from shortlist.slates.widths import Look, exchange_widths
from shortlist.types import Matrix, Rows


def start(**options: Unpack[SlateOptions]) -> SlateState:
    """Return the campaign before any pull: see ``ask_tell`` and ``saqm.start``.

    ``bound`` "paper" is Algorithm 3 as printed, which is not (epsilon, delta)-PAC: it compares an approximate
    maximum, which is too small, with epsilon, and may stop too early.

    Cost: O(n^3) a look, O(p n^2) for a support of p slates with ``bound`` "paper". Raises: as ``saqm.start``.
    """
    if options.get("matroid") is not None:
        text = "sa_foa bounds the gaps of slates of any k arms: with rules take icb, saqm or exhaustive"
        raise InvalidParameter(text, argument="method")
    return begin("sa_foa", **options)


def excess(fit: Fit, look: Look) -> Excess:
    """Return the test of one look, with a certified upper bound of Equation 5."""
    # DEVIATION (Eq. 5): the first-order approximation is maximised from above, not approximately.
    gaps, bounds = gap_bounds(fit, exchange_widths(look, len(fit.theta), len(fit.best)))
    worst = int(bounds.argmax())
    return Excess(float(bounds[worst]), float(-gaps[worst]), float(bounds[worst] - gaps[worst]))


def heuristic(fit: Fit, look: Look, support: Rows) -> Excess:
    """Return Equation 5 at the best of the slates that Algorithm 1 finds: a lower bound of its maximum.

    Shapes: support (p, k), the slates M_i. Cost: O(p n^2).
    """
    inside, C = fit.inside, exchange_widths(look, len(fit.theta), len(fit.best))
    norms = _norms(fit.W, _indicators(support, len(inside)) - inside)
    scale = C.max() / (2.0 * norms[norms > 0.0])
    if not len(scale):
        return Excess(0.0, 0.0, 0.0)
    # Q_i = h W + diag(theta^ - 2 h W chi_M^); its shift to a positive definite matrix changes no peeling.
    pull = np.diag(fit.W) - 2.0 * (fit.W @ inside)
    slates = np.unique(peel(fit.W, scale, np.outer(scale, pull) + fit.theta, len(fit.best)), axis=0)
    difference = _indicators(slates, len(inside)) - inside
    sizes = (difference > 0.0).sum(axis=1)
    gaps = difference @ fit.theta
    widths = np.where(sizes > 0, C[sizes - 1], 0.0) * _norms(fit.W, difference)
    top = int(np.argmax(gaps + widths))
    return Excess(float(gaps[top] + widths[top]), float(-gaps[top]), float(widths[top]))


def _indicators(slates: Rows, n: int) -> Matrix:
    indicators = np.zeros((len(slates), n))
    np.put_along_axis(indicators, slates, 1.0, axis=1)
    return indicators


def _norms(W: Matrix, vectors: Matrix) -> Matrix:
    squares: Matrix = np.maximum(((vectors @ W) * vectors).sum(axis=1), 0.0)
    return np.sqrt(squares)
