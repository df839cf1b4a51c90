"""Widths of estimates: multipliers C of ||v||_W, the standard deviation of v'theta^ over sigma.

Notation
    t, j        results so far; index of the look at them, 1, 2, ...
    sigma       sub-Gaussian parameter of the noise of one total
    K, r        number of slates C(n, k); largest exchange min(k, n - k)
    N_s         number of slates with s arms exchanged against a given one, C(k, s) C(n - k, s)

A look is a test whether the campaign can stop. Looks are taken at times fixed in advance, so the union is
over j; look j has the share 6 delta / (pi^2 j^2).
The proofs are in docs/papers/top-k-from-totals.md, "Constants".

Source: Kuroki et al., "Polynomial-time Algorithms for Multiple-arm Identification with Full-bandit Feedback",
Proposition 1, Lemma 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from shortlist.types import Vector

Bound = Literal["certified", "paper"]


@dataclass(frozen=True, slots=True)
class Look:
    """One look: ``sigma``, ``delta`` of the campaign, ``observed`` is t, ``index`` is j.

    ``bound``: see ``campaign_state.SlateOptions``.
    """

    sigma: float
    delta: float
    bound: Bound
    observed: int
    index: int

    def width(self, log_events: float, log_directions: float) -> float:
        """Return C for ``exp(log_events)`` one-sided events.

        With ``bound`` "paper" it is the printed one, for ``exp(log_directions)`` vectors.
        """
        if self.bound == "paper":
            return printed(self, log_directions)
        # DEVIATION (Prop. 1): one-sided events are counted, and looks instead of rounds.
        budget = math.log(self.delta * 6.0 / math.pi**2) - 2.0 * math.log(self.index)
        return self.sigma * math.sqrt(2.0 * (log_events - budget))


def printed(look: Look, log_directions: float) -> float:
    """Return the paper's C_t = 2 sqrt(2) sigma sqrt(log(6 t^2 K / (pi^2 delta))), for K >= 3 directions."""
    inside = math.log(6.0 / math.pi**2 / look.delta) + 2.0 * math.log(look.observed)
    return 2.0 * math.sqrt(2.0) * look.sigma * math.sqrt(inside + max(log_directions, math.log(3.0)))


def log_slates(n: int, k: int) -> float:
    """Return log K."""
    return math.log(math.comb(n, k))


def slate_width(look: Look, n: int, k: int) -> float:
    """Return C for the value of every slate at once, above or below, and one on the other side (SAQM)."""
    return look.width(math.log(math.comb(n, k) + 1), log_slates(n, k))


def slate_interval(look: Look, n: int, k: int) -> float:
    """Return C for the value of every slate at once, on both sides."""
    return look.width(math.log(2.0) + log_slates(n, k), log_slates(n, k))


def arm_width(look: Look, n: int) -> float:
    """Return C for every single arm at once, on both sides (ICB)."""
    return look.width(math.log(2.0 * n), math.log(n))


def exchange_widths(look: Look, n: int, k: int) -> Vector:
    """Return C for the gaps between the best slate and all that exchange 1, ..., r arms with it. Shape (r,).

    Each number of arms has the share delta / r, so the C of small exchanges, which decide, is smaller.
    """
    largest = min(k, n - k)
    if look.bound == "paper":
        return np.full(largest, printed(look, log_slates(n, k)))
    counts = [math.comb(k, size) * math.comb(n - k, size) for size in range(1, largest + 1)]
    return np.array([look.width(math.log(largest) + math.log(count), 0.0) for count in counts])
