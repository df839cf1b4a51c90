"""After how many totals a campaign has stopped, whatever the noise: the sample bounds of SAQM and ICB.

Notation
    gap         Delta_min, by how much the best slate exceeds the second
    q           C sqrt(U) for SAQM: how far the estimate of any slate can be off
    L           C times the bound of the longest norm in SAQM's test: q, or Z / alpha with ``bound`` "paper"
    b_s         for ICB: how far the estimated gap of two slates can be off that differ by an exchange of s
                arms, C times the sum of the 2 s largest sqrt(W_ii); s = 1, ..., r

SAQM has stopped when 3 q + L <= gap + epsilon: Theorem 3 and Corollary 1, where L = q / alpha and
q = C sqrt(rho / t), and so t >= (3 + 1 / alpha)^2 C^2 rho / (gap + epsilon)^2. ICB has stopped when
b_r <= epsilon, or when 2 b_s <= s gap + epsilon and b_s < s gap for all s: Lemma 3.

The campaign's slates are fixed in advance, and so are q, L and b_s at every look. The proofs are in
docs/papers/top-k-from-totals.md, "Sample bounds".

Source: Kuroki et al., Theorem 3, Corollary 1, Lemma 3, and their proofs in Appendix F.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.slates import saqm
from shortlist.slates.ask_tell import slates_of
from shortlist.slates.campaign_state import SlateMethod, SlateState, next_look
from shortlist.slates.certified_bounds import upper_bound
from shortlist.slates.least_squares import Fit, fit
from shortlist.slates.widths import Look, arm_width, slate_width
from shortlist.types import Matrix


def stops_by(state: SlateState, gap: float, most: int) -> int | None:
    """Return the number of totals after which the campaign has stopped; None if more than ``most``.

    If the number is t_j, the campaign takes more with probability at most 6 delta / (pi^2 j^2).

    ``state``: as ``saqm.start`` or ``icb.start`` make it. Its pulls are told in the order of asking.
    Cost: O(n^3) a look. Raises: InvalidParameter (another method, gap < 0).
    """
    settings = state.settings
    checks.in_range("gap", gap, least=0.0)
    if settings.method not in _STOPS:
        raise InvalidParameter("only saqm and icb have a sample bound", argument="method")
    look, index = state.next_look, 1
    while look <= most:
        fitted = fit(_design_matrix(state, look), np.zeros(settings.n), settings.slates)
        if fitted is not None:
            at_look = Look(settings.noise_std, settings.delta, settings.bound, look, index)
            if _STOPS[settings.method](fitted, at_look, gap, settings.epsilon):
                return look
        look, index = next_look(look), index + 1
    return None


def _saqm_stops(found: Fit, look: Look, gap: float, epsilon: float) -> bool:
    n, k = len(found.theta), len(found.best)
    C, longest = slate_width(look, n, k), saqm.largest_norm(found, look, k)
    return C * (3.0 * math.sqrt(upper_bound(found.W, k)) + longest) <= gap + epsilon


def icb_stops(found: Fit, look: Look, gap: float, epsilon: float) -> bool:
    n, k = len(found.theta), len(found.best)
    sizes = np.arange(1, min(k, n - k) + 1)
    widest = np.sort(np.sqrt(np.maximum(np.diag(found.W), 0.0)))[::-1]
    b = arm_width(look, n) * np.cumsum(widest)[2 * sizes - 1]
    surely_best = (b < sizes * gap) & (2.0 * b <= sizes * gap + epsilon)
    return bool(surely_best.all() or b[-1] <= epsilon)


_STOPS: Mapping[SlateMethod, Callable[[Fit, Look, float, float], bool]] = {
    "saqm": _saqm_stops,
    "icb": icb_stops,
}


def _design_matrix(state: SlateState, pulls: int) -> Matrix:
    """Return A after the first pulls. Of a design with periods one is counted, for all that are complete."""
    period = int(state.design.counts.sum())
    complete, remainder = divmod(pulls, period) if period else (0, pulls)
    A = _counted(state, complete * period, remainder)
    return A + complete * _counted(state, 0, period) if complete else A


def _counted(state: SlateState, first: int, count: int) -> Matrix:
    shown = slates_of(state, np.arange(first, first + count))
    chi = np.zeros((len(shown), state.settings.n))
    np.put_along_axis(chi, shown, 1.0, axis=1)
    return chi.T @ chi
