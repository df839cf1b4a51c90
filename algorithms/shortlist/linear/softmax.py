"""Boltzmann exploration: arms are drawn from the softmax of their estimates, so propensities are known.

Notation
    K, d        number of eligible arms, dimension
    theta^      the estimate (d,) of ridge regression
    s_i         x_i.theta^, the score of arm i
    tau         temperature: p(i) is proportional to exp(s_i / tau)
    k           arms to draw: the first from p, each further one from p restricted to the remaining ones

The arms are those of the k largest s_i / tau + Gumbel noise, which have exactly this distribution
(``sampling.gumbel_max``). The propensity of the arm at place j is its probability given the arms before it,
so the product of all propensities is the probability of the ordered list. Propensities are computed from the
same scores as the draw, so rounding of a score makes none of them wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.sampling.gumbel_max import top_k
from shortlist.types import Rows, Vector


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
    checks.generator(rng)
    # Subtracting first keeps the differences: divided first, large scores would round them away.
    weights = (scores - scores.max(initial=-np.inf)) / temperature if len(scores) else scores
    places, logs = top_k(weights, k, rng=rng)
    return Softmax(places, np.maximum(np.exp(logs), np.finfo(np.float64).tiny))


def choose_within(
    scores: Vector,
    take: Callable[[int], Rows],
    *,
    k: int,
    temperature: float,
    rng: np.random.Generator,
    barred: NDArray[np.bool_] | None = None,
) -> Softmax:
    """As ``choose``, where drawn arms can rule out others: each arm is drawn among those still allowed.

    ``take(place)`` counts the arm just drawn, and returns the places of arms barred from now on. ``barred``
    (K,): True for arms which may not come at all. Fewer than k arms when none may come.

    To pass over ruled-out arms, in the order of the k largest of ``choose``, has the same distribution as to
    draw again from the remaining ones: given its place among some arms, the largest is any of them by their
    softmax.

    Shapes: scores (K,). Cost: O(K + k log k) while few are passed over, O(K log K) at most; min(k, K) calls,
    and what they return. Raises: as ``choose``.
    """
    checks.shape("scores", scores, (None,))
    checks.finite("scores", scores)
    checks.in_range("k", k, least=1)
    checks.in_range("temperature", temperature, above=0.0)
    checks.generator(rng)
    # Before which place an arm is ruled out: each is allowed until then.
    ends = np.full(len(scores), k + 1, dtype=np.int64)
    if barred is not None:
        ends[barred] = 0
    weights = (scores - scores.max(initial=-np.inf, where=ends > 0)) / temperature if len(scores) else scores
    noisy = weights + rng.gumbel(size=len(weights))
    drawn: list[int] = []
    ask = 2 * k
    while len(drawn) < k:
        left = np.flatnonzero(ends > len(drawn))
        for position in left[_first(noisy[left], ask)].tolist():
            if len(drawn) < k and ends[position] > len(drawn):
                others = take(position)
                drawn.append(position)
                ends[others] = np.minimum(ends[others], len(drawn))
                ends[position] = len(drawn)
        if ask >= len(left):
            break
        ask *= 4
    places = np.array(drawn, dtype=np.int64)
    masses = _log_masses(weights, ends, k + 1)[1 : len(drawn) + 1]
    with np.errstate(under="ignore"):
        propensities = np.exp(np.minimum(weights[places] - masses, 0.0))
    return Softmax(places, np.maximum(propensities, np.finfo(np.float64).tiny))


def _first(noisy: Vector, count: int) -> Rows:
    """Slots of the ``count`` largest, the largest first."""
    rows = np.argpartition(-noisy, count - 1)[:count] if count < len(noisy) else np.arange(len(noisy))
    return rows[np.lexsort((rows, -noisy[rows]))]


def _log_masses(weights: Vector, ends: Rows, last: int) -> Vector:
    """Log of the sum of exp(w) over the arms whose end is j or later, for each j up to ``last``: (last + 1,).

    Summed from the last one on: nothing is subtracted.
    """
    top = np.full(last + 1, -np.inf)
    np.maximum.at(top, ends, weights)
    with np.errstate(under="ignore", divide="ignore", invalid="ignore"):
        sums = np.bincount(ends, np.exp(weights - top[ends]), minlength=last + 1)
        logs = np.where(sums > 0.0, np.log(sums) + top, -np.inf)
        masses: Vector = np.logaddexp.accumulate(logs[::-1])[::-1]
    return masses
