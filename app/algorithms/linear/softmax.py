"""Boltzmann exploration: arms are drawn from the softmax of their estimates, so propensities are known.

Notation
    K, d        number of eligible arms, dimension
    theta^      the estimate (d,) of ridge regression
    s_i         x_i.theta^, the score of arm i
    tau         temperature: p(i) is proportional to exp(s_i / tau)
    k           arms to draw: the first from p, each further one from p restricted to those that are left

The arms are those of the k largest s_i / tau + Gumbel noise, which have exactly this distribution
(``sampling.gumbel_max``). The propensity of the arm at place j is its probability given the arms before it,
so the product of all propensities is the probability of the ordered list. Propensities are computed from the
same scores that the draw uses, so rounding of a score makes none of them wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.algorithms import checks
from app.algorithms.sampling.gumbel_max import top_k
from app.algorithms.types import Rows, Vector


@dataclass(frozen=True, slots=True)
class Softmax:
    """Arms in the order they were drawn. Shapes: places (m,) in the scores, propensities (m,) in (0, 1]."""

    places: Rows
    propensities: Vector


def choose(scores: Vector, *, k: int, temperature: float, rng: np.random.Generator) -> Softmax:
    """Draw min(k, K) arms without replacement.

    A propensity below the least positive normal float64 is returned as that number. This can happen only
    after the first place. ``temperature`` is tau.

    Shapes: scores (K,), the s of all eligible arms. Cost: O(K + k log k), besides the K d of the scores.
    Raises: InvalidShape, NonFinite, InvalidParameter (k < 1, temperature <= 0).
    """
    checks.shape("scores", scores, (None,))
    checks.finite("scores", scores)
    checks.in_range("temperature", temperature, above=0.0)
    # Subtracting first keeps the differences: divided first, large scores would round them away.
    weights = (scores - scores.max(initial=-np.inf)) / temperature if len(scores) else scores
    places, logs = top_k(weights, k, rng=rng)
    return Softmax(places, np.maximum(np.exp(logs), np.finfo(np.float64).tiny))


def choose_within(
    scores: Vector,
    still_allowed: Callable[[int | None], NDArray[np.bool_]],
    *,
    k: int,
    temperature: float,
    rng: np.random.Generator,
) -> Softmax:
    """As ``choose``, where what was drawn can rule out others: each arm is drawn among those still allowed.

    ``still_allowed(place)`` counts the arm that was just drawn (None: none yet) and returns True for every
    arm that may come next (K,); the drawn ones are left out here. Fewer than k arms when none may come.

    Shapes: scores (K,). Cost: k times O(K) and k calls. Raises: as ``choose``.
    """
    checks.shape("scores", scores, (None,))
    checks.finite("scores", scores)
    checks.in_range("k", k, least=1)
    checks.in_range("temperature", temperature, above=0.0)
    places: list[int] = []
    propensities: list[float] = []
    drawn = np.zeros(len(scores), dtype=np.bool_)
    last = None
    while len(places) < k:
        left = np.flatnonzero(still_allowed(last) & ~drawn)
        if not len(left):
            break
        one = choose(scores[left], k=1, temperature=temperature, rng=rng)
        last = int(left[one.places[0]])
        drawn[last] = True
        places.append(last)
        propensities.append(float(one.propensities[0]))
    return Softmax(np.array(places, dtype=np.int64), np.array(propensities, dtype=np.float64))
