"""Examination: how likely the places of a list are looked at, from lists drawn at random.

Notation
    K           places
    r_k         reward of the arm at place k of a list
    p_k         examination: the probability that place k is looked at; p_1 = 1 by convention
    m           mean reward of an arm looked at
    theta_k     p_k / p_1, what is estimated
    S_k         sum of r_k; s_jk sum of r_j r_k, over the n lists with a place k
    f           square of the radius of a confidence sequence of n summands of second moment 1

The position-based model: an arm at place k earns p_k times its reward where looked at. Where a list was drawn
at random, each place has every arm equally often, so E r_k = p_k m at each list, for any viewer and any past:
the d_k = r_k - theta_k r_1 are differences of a martingale. The estimate is S_k / S_1. The interval holds
every theta for which the sum of the d_k may still be chance,

    (S_k - theta S_1)^2 <= f (s_kk - 2 theta s_1k + theta^2 s_11),

the numbers between the roots of a square polynomial; without roots nothing is known yet. As the sequence with
the radius f, the interval holds for all n together, asymptotically.

Source: Craswell, Zoeter, Taylor and Ramsey, "An Experimental Comparison of Click Position-Bias Models"
(2008), section 3, the model; Joachims, Swaminathan and Schnabel, "Unbiased Learning-to-Rank with Biased
Feedback" (2017), section 5, its estimate from lists in random order; Fieller, "Some Problems in Interval
Estimation" (1954), the interval of a ratio; f as in ``asymptotic_confidence_sequence``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shortlist import checks
from shortlist.evaluation.asymptotic_confidence_sequence import LARGEST, MIN_REWARDS, radius
from shortlist.types import Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class RandomLists:
    """The kept sums of lists drawn at random. Shapes: all (K,), of the lists with a place k.

    ``firsts``, ``totals``: S_1 and S_k; ``first_squares``, ``squares``, ``products``: s_11, s_kk and s_1k.
    ``largest``: the largest r_k^2.
    """

    counts: Vector
    firsts: Vector
    totals: Vector
    first_squares: Vector
    squares: Vector
    products: Vector
    largest: Vector

    def __len__(self) -> int:
        return len(self.counts)


@dataclass(frozen=True, slots=True)
class Examined:
    """p_k / p_1; None while nothing is known."""

    value: float | None
    interval: tuple[float, float] | None


def start() -> RandomLists:
    """No lists."""
    return RandomLists(*(np.zeros(0) for _ in range(7)))


def add(lists: RandomLists, rewards: Matrix) -> RandomLists:
    """The lists with more of them. ``rewards``: not a number at places that a list has not.

    Shapes: rewards (n, K'), K' at least 1. Cost: O(n K'). Raises: InvalidShape.
    """
    checks.shape("rewards", rewards, (None, None))
    is_there = ~np.isnan(rewards)
    present = np.where(is_there, rewards, 0.0)
    first = present[:, :1] * is_there
    more = (is_there, first, present, first * first, present * present, first * present)
    places = max(len(lists), rewards.shape[1])
    largest = (present * present).max(axis=0, initial=0.0)
    sums = [
        _padded(had, places) + _padded(addition.sum(axis=0, dtype=np.float64), places)
        for had, addition in zip(_sums(lists), more, strict=True)
    ]
    sums.append(np.maximum(_padded(lists.largest, places), _padded(largest, places)))
    return RandomLists(*sums)


def estimates(lists: RandomLists, *, level: float = 0.95) -> list[Examined]:
    """The examination of each place relative to that of the first, each with an interval of this level.

    An interval holds its p_k / p_1 for all times together with probability about ``level``. None before
    ``MIN_REWARDS`` lists, and while one reward makes more than ``LARGEST`` of the sum of squares.

    Cost: O(K). Raises: InvalidParameter (level).
    """
    checks.in_range("level", level, above=0.0, below=1.0)
    return [_estimate(lists, place, 1.0 - level) for place in range(len(lists))]


def _estimate(lists: RandomLists, place: int, alpha: float) -> Examined:
    total, first = float(lists.totals[place]), float(lists.firsts[place])
    value = total / first if first else None
    if place == 0 or value is None:
        return Examined(value, None if value is None else (1.0, 1.0))
    if lists.counts[place] < MIN_REWARDS or _is_uneven(lists, 0) or _is_uneven(lists, place):
        return Examined(value, None)
    factor = radius(int(lists.counts[place]), 1.0, alpha=alpha) ** 2
    square = first**2 - factor * float(lists.first_squares[place])
    middle = total * first - factor * float(lists.products[place])
    rest = total**2 - factor * float(lists.squares[place])
    if square <= 0.0:
        return Examined(value, None)
    half = math.sqrt(max(middle**2 - square * rest, 0.0))
    return Examined(value, (max((middle - half) / square, 0.0), (middle + half) / square))


def _is_uneven(lists: RandomLists, place: int) -> bool:
    return bool(lists.largest[place] > LARGEST * lists.squares[place])


def _sums(lists: RandomLists) -> tuple[Vector, ...]:
    return lists.counts, lists.firsts, lists.totals, lists.first_squares, lists.squares, lists.products


def _padded(values: Vector, places: int) -> Vector:
    return np.pad(values, (0, places - len(values)))
