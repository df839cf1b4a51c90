"""Exhaustive: the exact gap test, over all slates. For small n; the others are measured by it.

Notation
    theta^, W   see ``least_squares``; M^ the best slate by theta^
    C_s         see ``widths.exchange_widths``, for a slate that exchanges s arms with M^

Stops when max over M of theta^(M) - theta^(M^) + C_s ||chi_M - chi_M^||_W <= epsilon.

Source: Kuroki et al., Algorithm 5, Equation 5.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations
from typing import Unpack

import numpy as np

from shortlist.errors import InvalidParameter
from shortlist.slates.campaign_state import SlateOptions, SlateState, begin
from shortlist.slates.excess import Excess
from shortlist.slates.least_squares import Fit
from shortlist.slates.matroids import Matroid
from shortlist.slates.widths import Look, exchange_widths
from shortlist.types import Matrix

MOST_SLATES = 200_000
# Slates that are compared at a time.
_CHUNK = 20_000


def start(**options: Unpack[SlateOptions]) -> SlateState:
    """Return the campaign before any pull: see ``ask_tell`` and ``saqm.start``.

    Cost: O(n^2 C(n, k)) a look. Raises: as ``saqm.start``, and InvalidParameter beyond 200,000 slates.
    """
    state = begin("exhaustive", **options)
    if math.comb(options["n"], options["k"]) > MOST_SLATES:
        text = f"method exhaustive enumerates all slates: C(n, k) must be at most {MOST_SLATES:,}"
        raise InvalidParameter(text, argument="method")
    return state


def excess(fit: Fit, look: Look, together: int = _CHUNK) -> Excess:
    """Return the test of one look. Under a matroid C_s serves all sets of k arms: more than are needed.

    ``together``: so many slates are looked at at a time.
    """
    n, k = len(fit.theta), len(fit.best)
    widths = exchange_widths(look, n, k)
    best = Excess(-math.inf, 0.0, 0.0)
    slates = bases(fit.matroid)
    for start_ in range(0, len(slates), together):
        difference = slates[start_ : start_ + together] - fit.inside
        sizes = (difference > 0).sum(axis=1)
        others = difference[sizes > 0]
        if not len(others):
            continue
        norms = np.sqrt(np.maximum(((others @ fit.W) * others).sum(axis=1), 0.0))
        width, gap = widths[sizes[sizes > 0] - 1] * norms, others @ fit.theta
        top = int(np.argmax(gap + width))
        if gap[top] + width[top] > best.value:
            best = Excess(float(gap[top] + width[top]), float(-gap[top]), float(width[top]))
    return best


@lru_cache(maxsize=4)
def bases(matroid: Matroid) -> Matrix:
    """Return the indicator vectors of the slates of a matroid. Shape (m, n), m <= C(n, k)."""
    every = all_slates(matroid.n, matroid.k)
    allowed = matroid.has(every > 0.0)
    if allowed.all():
        return every
    slates: Matrix = every[allowed]
    slates.setflags(write=False)
    return slates


@lru_cache(maxsize=4)
def all_slates(n: int, k: int) -> Matrix:
    """Return the indicator vectors of all sets of k arms. Shape (C(n, k), n)."""
    members = np.array(list(combinations(range(n), k)), dtype=np.int64)
    slates = np.zeros((len(members), n))
    np.put_along_axis(slates, members, 1.0, axis=1)
    slates.setflags(write=False)
    return slates
