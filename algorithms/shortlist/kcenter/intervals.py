"""Confidence intervals that hold at every look at once, for means of answers in [0, 1] and Gaussian ones.

Notation
    t           number of answers of each pair (r,)
    j           1, 2, ...: which look at the pair this is (r,); bounds are evaluated at looks only
    mean        mean of the t answers (r,)
    delta'      share of delta for one side of one pair's interval
    kl(p, q)    p log(p/q) + (1-p) log((1-p)/(1-q)), the Bernoulli divergence

Status; the proofs are in docs/papers/k-center.md
    kl, gaussian    proven, if the number t of the j-th look does not depend on the answers
    lil             proven, whatever the looks
    experiment      heuristic: the width that the paper's experiments use, tuned on its data
All hold alike for answers drawn with and without replacement.

Source: Jali, Karamchandani, Moharir, "Greedy k-Center from Noisy Distance Samples", Equations 9, 14, 22.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlog1py, xlogy

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.types import Matrix, Vector

Counts = NDArray[np.int64]
Bounds = tuple[Vector, Vector]
Interval = Callable[[Vector, Counts, Counts], Bounds]
IntervalMethod = Literal["kl", "lil", "experiment"]

# a > 1 and k1 > 1 + 1/(a - 1) of Equation 14: the sum over j of 1 / (k1 j^a) is below 1.
_A = 1.1
_K1 = 11.001
_NEWTON_STEPS = 8


def sides(n: int, k: int, epsilon: float) -> int:
    """Return how many one-sided events share delta: delta' = delta / sides.

    Without a tolerance the centres are greedy's own as long as no interval fails, so only the n k pairs with
    these centres matter. With a tolerance ``epsilon`` > 0 the answers decide which of several centres is
    chosen, so every pair counts.
    """
    # DEVIATION (Alg. 1, line 2): delta / n^2 also for the pairs that greedy never looks at.
    return 2 * n * k if epsilon == 0.0 else max(n * (n - 1), 1)


def interval(
    kind: IntervalMethod, *, delta: float, n: int, k: int, epsilon: float, c_alpha: float
) -> Interval:
    """Return the bounds as a function of (mean, t, j), all (r,), of answers in [0, 1].

    ``delta`` is shared by all pairs of ``n`` points and ``k`` centres, see ``sides``. ``c_alpha`` is the
    factor C_alpha of Equation 22, for ``kind`` "experiment" alone.
    Raises: InvalidParameter (kind, delta not in [1e-100, 1), c_alpha <= 0).
    """
    checks.delta(delta)
    checks.in_range("c_alpha", c_alpha, above=0.0)
    share = delta / sides(n, k, epsilon)
    if kind == "kl":
        return lambda mean, t, j: kl(mean, t, j, share)
    if kind == "lil":
        return lambda mean, t, _: _around(mean, lil(t, share))
    if kind == "experiment":
        return lambda mean, t, _: _around(mean, experiment(t, n, delta, c_alpha))
    raise InvalidParameter("ci must be kl, lil or experiment", argument="ci")


def is_proven(kind: IntervalMethod) -> bool:
    """Return whether the interval ``kind`` keeps its promise by proof."""
    return kind != "experiment"


def _around(mean: Vector, radius: Vector) -> Bounds:
    return np.maximum(mean - radius, 0.0), np.minimum(mean + radius, 1.0)


def level(j: Counts, share: float) -> Vector:
    """Return log(k1 j^a / share): exp(-level) summed over all looks is below ``share``, which is delta'."""
    levels: Vector = math.log(_K1 / share) + _A * np.log(j)
    return levels


def kl(mean: Vector, t: Counts, j: Counts, share: float) -> Bounds:
    """Return the least and the largest q with t kl(mean, q) <= log(k1 j^a / delta'): Equation 14.

    ``share`` is delta'. Rounding makes the interval at most 1e-6 wider on either side, never narrower.
    Shapes: (r,) -> (r,), (r,). Cost: O(r).
    """
    # DEVIATION (Eq. 14): the look j replaces t inside the logarithm, bounds are evaluated at looks only.
    allowed = level(j, share) / t
    # Both sides at once: of few pairs, what costs is the number of calls.
    mirrored, upper = _kl_upper(np.stack((1.0 - mean, mean)), allowed)
    return 1.0 - mirrored, upper


def _kl_upper(mean: Matrix, allowed: Vector) -> Matrix:
    """Return the largest q with kl(mean, q) <= allowed, or slightly more: (2, r), (r,) -> (2, r).

    kl(mean, .) is convex, so Newton's method from outside the interval stays outside. It starts at the
    smaller of two upper bounds: Pinsker's, and the one of kl(p, q) >= p log p + (1-p) log(1-p) - (1-p)
    log(1-q).
    """
    complement = 1.0 - mean
    entropy = -xlogy(mean, mean) - xlogy(complement, complement)
    tiny = np.finfo(np.float64).tiny
    tail = -np.expm1(-(allowed + entropy) / np.maximum(complement, 2.0**-53))
    upper = np.minimum(np.minimum(mean + np.sqrt(allowed / 2.0), tail), 1.0 - 2.0**-53)
    for _ in range(_NEWTON_STEPS):
        excess = -entropy - xlogy(mean, upper) - xlog1py(complement, -upper) - allowed
        upper -= np.maximum(excess, 0.0) * upper * (1.0 - upper) / np.maximum(upper - mean, tiny)
    bound: Matrix = np.minimum(upper * (1.0 + 2.0**-40), 1.0)
    return bound


def lil(t: Counts, share: float) -> Vector:
    """Return sqrt(2 beta / t), beta = 2 log(125 log(1.12 t) / delta'): Equation 9. Shapes: (r,) -> (r,)."""
    radius: Vector = np.sqrt(4.0 * np.log(125.0 * np.log(1.12 * t) / share) / t)
    return radius


def experiment(t: Counts, n: int, delta: float, c_alpha: float) -> Vector:
    """Return sqrt(C_alpha log(1 + (1 + log t) n^2 / delta) / t): Equation 22. Shapes: (r,) -> (r,)."""
    radius: Vector = np.sqrt(c_alpha * np.log1p((1.0 + np.log(t)) * n**2 / delta) / t)
    return radius


def gaussian(mean: Vector, t: Counts, variance: float, share: float) -> Bounds:
    """Return mean -/+ sqrt(2 variance log(k1 t^a / delta') / t): Equation 14 for Gaussian answers.

    ``variance`` is that of one answer, ``share`` is delta'. Every answer is a look. Shapes: (r,) -> (r,),
    (r,).
    """
    radius = np.sqrt(2.0 * variance * level(t, share) / t)
    return mean - radius, mean + radius
