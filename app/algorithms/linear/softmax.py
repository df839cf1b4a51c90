"""Boltzmann exploration: arms are drawn from the softmax of their estimates, so propensities are known.

Notation
    K, d        number of eligible arms, dimension
    theta^      the estimate (d,) of ridge regression
    s_i         x_i.theta^, the score of arm i
    tau         temperature: p(i) is proportional to exp(s_i / tau)
    k           arms to draw: the first from p, each further one from p restricted to those that are left

The arms are the k largest of s_i / tau + Gumbel noise, which draws exactly so (``sampling.gumbel_max``). The
propensity of the arm at place j is its probability given those before it; the product of all of them is the
probability of the ordered list. It is computed from the very scores that were drawn from: no rounding of a
score makes a propensity wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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

    A propensity below the least positive float64 is given as that: it can occur only beyond the first place.
    Shapes: scores (K,), the s of all eligible arms. Cost: O(K + k log k), besides the K d of the scores.
    Raises: InvalidShape, NonFinite, InvalidParameter (k < 1, temperature <= 0).
    """
    checks.shape("scores", scores, (None,))
    checks.finite("scores", scores)
    checks.in_range("temperature", temperature, above=0.0)
    # Differences first: a large common part must not be all that a float64 can hold after the division.
    weights = (scores - scores.max(initial=-np.inf)) / temperature if len(scores) else scores
    places, logs = top_k(weights, k, rng=rng)
    return Softmax(places, np.maximum(np.exp(logs), np.finfo(np.float64).tiny))
