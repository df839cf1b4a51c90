"""SAQM: stop when M^ beats the largest upper bound of any other slate.

Notation
    theta^, W   see ``least_squares``; M^ the best slate by theta^
    Z, alpha    ||chi_S||_W of Algorithm 1's slate S; its share of the maximum, as a norm
    U           certified upper bound of max chi'W chi, see ``certified_bounds``
    C           see ``widths.slate_width``

Stops when theta^(M^) - C ||chi_M^||_W >= max over M != M^ of theta^(M) + C sqrt(U) - epsilon.

U bounds every slate of k arms, so those of a matroid too: this is Corollary 1, whose alpha is ||.||_W of the
longest slate over sqrt(U).

Source: Kuroki et al., Algorithm 2, Equation 4, Corollary 1.
"""

from __future__ import annotations

import math
from typing import Unpack

from shortlist.errors import InvalidParameter
from shortlist.slates.campaign_state import SlateOptions, SlateState, begin
from shortlist.slates.certified_bounds import upper_bound
from shortlist.slates.densest_k_subgraph import densest_k_subgraph, theorem_1_ratio
from shortlist.slates.excess import Excess
from shortlist.slates.least_squares import Fit
from shortlist.slates.matroids import lead
from shortlist.slates.widths import Look, slate_width


def start(**options: Unpack[SlateOptions]) -> SlateState:
    """Return the campaign before any pull: see ``ask_tell``. It ends with an (epsilon, delta)-PAC slate.

    ``noise_std`` is sigma, the sub-Gaussian parameter of the noise of a total. ``bound`` "paper" takes the
    printed constant and Theorem 1's ratio: as safe, and some hundred times as many pulls.

    Cost: O(n^3) a look. Raises: InvalidParameter (k not in 1..n-1, epsilon <= 0, delta not in (0, 1), ...).
    """
    if options.get("matroid") is not None and options.get("bound") == "paper":
        text = "Theorem 1's ratio is for slates of any k arms: with rules, saqm takes bound certified"
        raise InvalidParameter(text, argument="bound")
    return begin("saqm", **options)


def excess(fit: Fit, look: Look) -> Excess:
    """Return the test of one look."""
    n, k = len(fit.theta), len(fit.best)
    ahead = lead(fit.matroid, fit.theta, fit.best)
    width = slate_width(look, n, k) * (fit.norm + largest_norm(fit, look, k))
    return Excess(width - ahead, ahead, width)


def largest_norm(fit: Fit, look: Look, k: int) -> float:
    """An upper bound of max ||chi_M||_W."""
    if look.bound == "paper":
        slate = densest_k_subgraph(fit.W, k)
        return math.sqrt(float(fit.W[slate][:, slate].sum()) / theorem_1_ratio(fit.W, k))
    # DEVIATION (Eq. 4): a certified upper bound instead of the approximate maximum over its ratio.
    return math.sqrt(upper_bound(fit.W, k))
