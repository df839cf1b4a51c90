"""Epsilon-greedy: the arm of highest estimate, and with probability epsilon any arm; propensities are known.

Notation
    K           number of eligible arms
    s_i         x_i.theta^, the score of arm i
    eps         probability of exploring, drawn again for each place of a list
    n_j         arms still free at place j

At each place the best free arm is taken with probability 1 - eps, and with probability eps one of the free
ones, all alike. So the propensity of an arm is eps / n_j, and for the best one 1 - eps more.

Source: Sutton and Barto, "Reinforcement Learning: An Introduction" (2018), section 2.2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.types import Rows, Vector

SPARSE = 8  # of so many places one may be taken, or fewer: they are listed


@dataclass(frozen=True, slots=True)
class EpsilonGreedy:
    """Arms in the order in which they were taken. Shapes: places (m,), propensities (m,) in [0, 1]."""

    places: Rows
    propensities: Vector


def choose(
    scores: Vector,
    *,
    k: int,
    epsilon: float,
    rng: np.random.Generator,
    take: Callable[[int], Rows] | None = None,
    barred: NDArray[np.bool_] | None = None,
) -> EpsilonGreedy:
    """Take min(k, K) arms, one after the other.

    ``take(place)`` counts the arm just taken, and returns the places of arms barred from now on, itself
    included. ``barred`` (K,): True for arms which may not come at all. Fewer than k arms when none may come.

    Shapes: scores (K,). Cost: O(K log K), and min(k, K) calls of ``take`` with what they return.
    Raises: InvalidShape, NonFinite, InvalidParameter (k < 1, epsilon not in [0, 1]).
    """
    checks.shape("scores", scores, (None,))
    checks.finite("scores", scores)
    allowed = np.ones(len(scores), dtype=np.bool_) if barred is None else ~barred
    order = np.argsort(-scores, kind="stable")
    next_best, left = 0, int(np.count_nonzero(allowed))

    def best() -> int:
        nonlocal next_best
        while not allowed[order[next_best]]:
            next_best += 1
        return int(order[next_best])

    def any_one() -> int:
        if left * SPARSE < len(allowed):
            return int(rng.choice(np.flatnonzero(allowed)))
        while not allowed[position := int(rng.integers(len(allowed)))]:
            pass
        return position

    def taken(position: int) -> int:
        nonlocal left
        others = np.array([position]) if take is None else take(position)
        left -= len(np.unique(others[allowed[others]]))
        allowed[others] = False
        return left

    return in_turn(best, any_one, taken, left=left, k=k, epsilon=epsilon, rng=rng)


def in_turn(
    best: Callable[[], int],
    any_one: Callable[[], int],
    taken: Callable[[int], int],
    *,
    left: int,
    k: int,
    epsilon: float,
    rng: np.random.Generator,
) -> EpsilonGreedy:
    """Take k arms, where the arms need not be listed: an index knows the best one.

    ``best``      the best free arm
    ``any_one``   one of the free arms, all alike
    ``taken``     is told each taken arm, and returns the number of free ones afterwards
    ``left``      number of free arms at first

    Cost: k calls of ``best`` and ``taken``, about eps k of ``any_one``.
    Raises: InvalidParameter (k < 1, epsilon not in [0, 1]).
    """
    checks.in_range("k", k, least=1)
    checks.in_range("epsilon", epsilon, least=0.0, most=1.0)
    checks.generator(rng)
    places, propensities = list[int](), list[float]()
    while len(places) < k and left:
        top = best()
        position = any_one() if rng.random() < epsilon else top
        propensities.append(epsilon / left + (1.0 - epsilon if position == top else 0.0))
        places.append(position)
        left = taken(position)
    return EpsilonGreedy(np.array(places, dtype=np.int64), np.array(propensities, dtype=np.float64))
