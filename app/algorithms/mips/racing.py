"""Racing: successive elimination by bounds that follow the variance of the rewards.

Notation, beyond that of ``bounded_me``
    w           bound on the absolute rewards
    s           upper bound on an arm's root mean square reward
    look        a number t of coordinates, fixed beforehand, at which arms are compared
    L           number of looks before the last, at which everything was read
    level       log(2 n L / delta)

At a look every arm that is left has been read at t coordinates. Its mean lies within r of the true one, by a
Bernstein bound without replacement whose variance is bounded from the sample itself. Arms whose upper bound
is below the k-th largest lower bound go. Second moments are taken of the first coordinates only, about a
thirtieth of all reads: they cost several times what a sum costs. Later looks use the last bounds s.

It is the engine of Racing-EBS for the best k arms, with a narrower bound: see docs/papers.md, section 2.

Source: Chen and Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", Algorithm 1.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from app.algorithms.finite_population import (
    bernstein_serfling,
    empirical_bernstein_serfling,
    root_mean_square,
)
from app.algorithms.mips.answer import Answer, Guarantee, exactly
from app.algorithms.mips.bounded_me import check
from app.algorithms.mips.rewards import Rewards
from app.algorithms.mips.tally import Tally, largest, read_all
from app.algorithms.types import Rows, Vector
from app.errors import InvalidParameter

Width = Literal["second_moment", "empirical_bernstein"]

FEW_COORDINATES = "there are too few coordinates to sample"
ALL_READ = "no arm could be told apart before everything was read"
LEAST_DIM = 256
_SQUARED_SHARE = 1.0 / 30.0
_LOOKS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4)


def racing(
    rewards: Rewards, *, k: int, epsilon: float, delta: float, width: Width = "second_moment"
) -> Answer:
    """Return ``k`` arms; with probability 1 - delta their k-th best mean is within epsilon of the true one.

    Arguments as of ``bounded_me``. ``width`` "empirical_bernstein" takes the bound of the paper instead.
    Shapes: rewards of n arms -> rows, values (min(k, n),). Cost: at most n N reads, ``Answer.reads``.
    Raises: InvalidParameter (as ``bounded_me``, and the width).
    """
    check(k, epsilon, delta)
    if width not in {"second_moment", "empirical_bernstein"}:
        raise InvalidParameter("width must be second_moment or empirical_bernstein", loc=("width",))
    if rewards.dim < LEAST_DIM or rewards.size <= k:
        return read_all(rewards, k, FEW_COORDINATES)
    times = looks(rewards)
    level = math.log(2.0 * rewards.size * len(times) / delta)
    tally, budget = Tally(rewards), _SQUARED_SHARE * rewards.size * rewards.dim
    roots: Vector = np.full(rewards.size, np.inf)
    done = False
    for t in times:
        squares = width == "empirical_bernstein" or (
            tally.squared == tally.t and len(tally.places) * (t - tally.t) <= budget
        )
        if not squares and not may_decide(tally, t, roots, level, k=k, epsilon=epsilon):
            continue
        budget -= len(tally.places) * (t - tally.t)
        tally.read_to(t, squares=squares)
        radius, roots = radii(tally, roots, level, width)
        left, done = decided(tally.sums / t, radius + rewards.noise, k, epsilon)
        tally.keep(left)
        roots = roots[left]
        if done or tally.few_are_left():
            break
    sampled = done or len(tally.places) < rewards.size
    if not done:
        tally.read_to(rewards.dim)
    return tally.answer(k, Guarantee("pac", epsilon, delta) if sampled else exactly(ALL_READ))


def may_decide(tally: Tally, t: int, roots: Vector, level: float, *, k: int, epsilon: float) -> bool:
    """Whether a look at t can drop an arm or end the race, were the means to stay as they are.

    It is not worth its time otherwise. Leaving out a look takes nothing from what the others promise.
    """
    largest = tally.rewards.bounds.largest
    least = bernstein_serfling(
        t, tally.rewards.dim, root=roots.min(keepdims=True), largest=largest, level=level
    )
    means = tally.sums / tally.t
    kth = np.partition(means, len(means) - k)[len(means) - k]
    return 2.0 * float(least[0]) <= max(epsilon, float(kth - means.min()))


def looks(rewards: Rewards) -> list[int]:
    """The looks before the last: N over powers of two, where blocks end, and late ones halfway between."""
    return sorted({rewards.rounded(share * rewards.dim) for share in _LOOKS} - {rewards.dim})


def radii(tally: Tally, roots: Vector, level: float, width: Width) -> tuple[Vector, Vector]:
    """Return how far the means can be off, and the bounds s, of the arms that are left. Shapes: (m,) each."""
    rewards, t = tally.rewards, tally.t
    if width == "empirical_bernstein":
        deviation = np.sqrt(np.maximum(tally.squares - tally.sums**2 / t, 0.0) / t)
        spread = rewards.bounds.spread
        found = empirical_bernstein_serfling(t, rewards.dim, deviation=deviation, spread=spread, level=level)
        return found, roots
    largest = rewards.bounds.largest
    if tally.squared == t:
        mean_squares = tally.squares / t
        found = root_mean_square(t, mean_squares, largest=largest, level=level)
        roots = np.minimum(roots, found + rewards.noise)
    return bernstein_serfling(t, rewards.dim, root=roots, largest=largest, level=level), roots


def decided(means: Vector, radius: Vector, k: int, epsilon: float) -> tuple[Rows, bool]:
    """Return the positions of the arms that can still be among the best k, and whether k of them will do."""
    lower, upper = means - radius, means + radius
    kth = np.partition(lower, len(lower) - k)[len(lower) - k]
    left = np.flatnonzero(upper >= kth)
    best = largest(means, k)
    others = upper.copy()
    others[best] = -np.inf
    return left, bool(others.max() - lower[best].min() <= epsilon)
