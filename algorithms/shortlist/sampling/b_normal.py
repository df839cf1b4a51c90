"""B_Normal: how many standard deviations a mean may be off at any check, under the doubling schedule.

Notation
    N, m        size of the population, first batch
    pi_t        share read by check t: pi_1 = m / N, then doubled while below 1
    Y_t         (mean_t - mu) / sd(mean_t), taken as a Gaussian Markov chain of unit variance (Corollary 4)
    rho_t       correlation of Y_t with Y_t-1: sqrt(pi_t-1 (1 - pi_t) / (pi_t (1 - pi_t-1))); N drops out
    E(B)        P(some t: Y_t > B); B_Normal is the B with E(B) = delta

E is summed check by check. The density of Y_t without a crossing so far is carried on, on Gauss-Legendre
nodes.

The print's Table 1 is for a chain with a stop at -B as well, and counts crossings of +B alone: ``two_sided``.
It lies below the root of Equation 5, so for a guarantee the one-sided root is used; see
docs/papers/racing-samplers.md.

Source: Chen and Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", Corollary 4,
Appendix B.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from shortlist import checks
from shortlist.types import Vector

NODES = 96
_FAR = 9.0
_LARGEST = 40.0
_CACHED = 4_096


@lru_cache(maxsize=_CACHED)
def b_normal(delta: float, share: float, *, two_sided: bool = False) -> float:
    """Return the least B >= 0 with E(B) <= delta. Cached; about 10 ms for a new pair.

    ``share`` is pi_1; 1 or more means that everything is read by the first check, and B = 0.
    Raises: InvalidParameter (delta not in (0, 1), share <= 0).
    """
    checks.in_range("delta", delta, above=0.0, below=1.0)  # a share: it may be below checks.MIN_DELTA
    checks.in_range("share", share, above=0.0)
    if share >= 1.0 or crossing(0.0, share, two_sided=two_sided) <= delta:
        return 0.0

    def excess(bound: float) -> float:
        return math.log(max(crossing(bound, share, two_sided=two_sided), 1e-300) / delta)

    from scipy.optimize import brentq  # noqa: PLC0415 - large, and a start need not wait for it

    return float(brentq(excess, 0.0, _LARGEST))


def crossing(bound: float, share: float, *, two_sided: bool = False, nodes: int = NODES) -> float:
    """Return E(B): the probability of the walk to exceed ``bound`` at a check before the last.

    ``share`` is pi_1. ``two_sided``: before a fall below -``bound``.
    """
    places, weights = _gauss_legendre(nodes)
    low = -bound if two_sided else -_FAR
    half = (bound - low) / 2.0
    x, w = low + half * (places + 1.0), half * weights
    density = np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
    probability = float(ndtr(-bound))
    while 2.0 * share < 1.0:
        rho = math.sqrt(share * (1.0 - 2.0 * share) / (2.0 * share * (1.0 - share)))
        share *= 2.0
        spread = math.sqrt(1.0 - rho * rho)
        mass = w * density
        probability += float(mass @ ndtr((rho * x - bound) / spread))
        steps = np.exp(-0.5 * ((x[:, None] - rho * x) / spread) ** 2) / (spread * math.sqrt(2.0 * math.pi))
        density = steps @ mass
    return probability


@lru_cache(maxsize=8)
def _gauss_legendre(nodes: int) -> tuple[Vector, Vector]:
    return np.polynomial.legendre.leggauss(nodes)
