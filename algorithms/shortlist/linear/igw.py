"""Inverse-gap weighting: the worse an arm looks beside the best one, the less often it is drawn.

Notation
    n           number of candidates: the drawable arms
    f_a         estimated mean reward of candidate a
    b           the candidate of largest f; of several the first
    gamma       how sharply the best is preferred: 0 draws uniformly, infinity would always draw b
    p_a         1 / (n + gamma (f_b - f_a)) for a other than b, and p_b = 1 - the sum of these
    k           arms to draw: the first from p, each further one from the p of the remaining candidates

No p is above that of b, and p_b >= 1 / n. For any true means f* and any arm a*, the expected regret against
a* of one draw is at most 2 n / gamma + gamma / 4 times the expected squared error of the estimate of the arm
drawn (Lemma 3). This turns an oracle for regression into a bandit of small regret.

Source: Foster and Rakhlin, "Beyond UCB: Optimal and Efficient Contextual Bandits with Regression Oracles",
Algorithm 1 (SquareCB) with mu = n; the weights are those of Abe and Long 1999.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shortlist import checks
from shortlist.types import Rows, Vector


@dataclass(frozen=True, slots=True)
class Igw:
    """Arms in the order they were drawn.

    Shapes: places (m,) among the candidates, propensities (m,) in (0, 1].
    """

    places: Rows
    propensities: Vector


def propensities(estimates: Vector, *, gamma: float) -> Vector:
    """Return p, the probability of each candidate to be drawn first.

    ``estimates`` are the f of all candidates, in the unit of rewards; ``gamma`` is in one divided by it.

    Shapes: (n,) -> (n,). Cost: O(n). Raises: InvalidShape, NonFinite, InvalidParameter (gamma < 0).
    """
    _check(estimates, gamma)
    if not len(estimates):
        return np.empty(0)
    others, best = _others(estimates, gamma)
    others[best] = 1.0 - others.sum()
    return others


def choose(estimates: Vector, *, k: int, gamma: float, rng: np.random.Generator) -> Igw:
    """Draw min(k, n) candidates without replacement.

    The propensity of the arm at a place is its probability given the arms before it, so the product of all
    propensities is the probability of the ordered list.

    Shapes: estimates (n,), as in ``propensities``. Cost: O(k n).
    Raises: InvalidShape, NonFinite, InvalidParameter (gamma < 0, k < 1).
    """
    # DEVIATION (Alg. 1, line 5): for k > 1 place by place, each from what is left; k = 1 is as printed.
    _check(estimates, gamma)
    checks.in_range("k", k, least=1)
    checks.generator(rng)
    left = np.arange(len(estimates))
    places: list[int] = []
    probabilities: list[float] = []
    for _ in range(min(k, len(estimates))):
        others, best = _others(estimates[left], gamma)
        bounds = others.cumsum()
        drawn, probability = int(bounds.searchsorted(rng.random(), side="right")), 1.0 - bounds[-1]
        if drawn < len(left):
            probability = others[drawn]
        else:
            drawn = best  # has what the others leave over
        places.append(int(left[drawn]))
        probabilities.append(float(probability))
        left = np.delete(left, drawn) if len(places) < k else left
    return Igw(np.array(places, dtype=np.int64), np.array(probabilities, dtype=np.float64))


def _check(estimates: Vector, gamma: float) -> None:
    checks.shape("estimates", estimates, (None,))
    checks.finite("estimates", estimates)
    checks.in_range("gamma", gamma, least=0.0)


def _others(estimates: Vector, gamma: float) -> tuple[Vector, int]:
    """Return p with 0 in place of p_b, and the place of b. At least one candidate."""
    best = int(estimates.argmax())
    shares: Vector = 1.0 / (len(estimates) + gamma * (estimates[best] - estimates))
    shares[best] = 0.0
    return shares, best
