"""Racing: successive elimination by bounds that follow the variance of the rewards.

Notation, beyond that of ``bounded_me``
    w           bound on the absolute rewards
    s           upper bound on an arm's root mean square reward
    look        a number t of coordinates, fixed beforehand, at which arms are compared
    L           number of looks before the last, at which everything was read
    level       log(2 n L / delta)

At a look every arm that is left has been read at t coordinates. Its mean lies within r of the true one, by a
Bernstein bound without replacement. Arms whose upper bound is below the k-th largest lower bound go. Over
blocked arms s is known beforehand, from fourth moments. Elsewhere it is bounded from the sample itself:
second moments are taken of the first coordinates only, about a thirtieth of all reads, for they cost several
times what a sum costs; later looks use the last bounds s.

It is the engine of Racing-EBS for the best k arms, with a narrower bound: see docs/papers/bounded-me.md.

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
from app.algorithms.guarantee import Guarantee, exactly
from app.algorithms.mips.answer import Answer
from app.algorithms.mips.bounded_me import check
from app.algorithms.mips.prices import LARGE, beside, least_sample
from app.algorithms.mips.rewards import Rewards
from app.algorithms.mips.tally import Tally, kth_largest, largest, read_all
from app.algorithms.types import Rows, Vector
from app.errors import InvalidParameter

Width = Literal["second_moment", "empirical_bernstein"]

FEW_COORDINATES = "there are too few coordinates to sample"
ALL_READ = "no arm could be told apart before everything was read"
LEAST_DIM = 256
_SQUARED_SHARE = 1.0 / 30.0
_LOOKS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4)
# The second look is at least so many times as far as the first.
_BEYOND = 1.5
# A race that reads everything may take so much longer than a scan, as a share of it, for what comes beside.
_MOST_BESIDE = 0.16
# What a look costs beside its reads, in coordinates of a scan.
_LOOK = 2_000_000


def racing(
    rewards: Rewards, *, k: int, epsilon: float, delta: float, width: Width = "second_moment"
) -> Answer:
    """Return ``k`` arms; with probability 1 - delta their k-th best mean is within epsilon of the true one.

    Arguments as of ``bounded_me``. ``width`` "empirical_bernstein" takes the bound of the paper instead, for
    the range 2 w of an arm's rewards.
    Shapes: rewards of n arms -> rows, values (min(k, n),). Cost: at most n N reads, ``Answer.reads``.
    Raises: InvalidParameter (as ``bounded_me``, and the width).
    """
    check(k, epsilon, delta)
    if width not in {"second_moment", "empirical_bernstein"}:
        raise InvalidParameter("width must be second_moment or empirical_bernstein", loc=("width",))
    if few_coordinates(rewards) or rewards.size <= k:
        return read_all(rewards, k, FEW_COORDINATES)
    times = looks(rewards)
    level = math.log(2.0 * rewards.size * len(times) / delta)
    tally, budget = Tally(rewards), _SQUARED_SHARE * rewards.size * rewards.dim
    known = rewards.roots() if width == "second_moment" else None
    roots: Vector = np.full(rewards.size, np.inf) if known is None else known
    done = False
    while times:
        cost = len(tally.places) * (times[0] - tally.t)
        squares = known is None and (width == "empirical_bernstein" or not tally.t or cost <= budget)
        if tally.t and not squares:
            times = useful(tally, times, roots, level, k=k, epsilon=epsilon)
            if not times:
                break
        budget -= cost
        tally.read_to(times.pop(0), squares=squares)
        radius, roots = radii(tally, roots, level, width)
        radius += rewards.noise
        left, done = decided(tally.sums / tally.t, radius, k, epsilon)
        if len(left) < len(roots):
            tally.keep(left)
            roots = roots[left]
        if done or tally.few_are_left():
            break
    sampled = done or len(tally.places) < rewards.size
    guarantee = Guarantee("pac", epsilon, delta) if sampled else exactly(ALL_READ)
    return tally.answer(k, guarantee, decided=done)


def few_coordinates(rewards: Rewards) -> bool:
    """Whether a race would take much longer than a scan, should it have to read everything."""
    n, dim = rewards.size, rewards.dim
    return dim < LEAST_DIM or beside(n, dim) > _MOST_BESIDE * n * dim


def useful(
    tally: Tally, times: list[int], roots: Vector, level: float, *, k: int, epsilon: float
) -> list[int]:
    """The looks from the next one on that is worth its time, were the means to stay as they are; or [].

    A look is, if it ends the race or drops arms whose further reads take longer than the look. Leaving out
    looks takes nothing from what the others promise. The widths are those of the bounds ``roots``.
    """
    rewards, m = tally.rewards, len(tally.places)
    n, dim, prices = rewards.size, rewards.dim, rewards.prices
    means = tally.sums / tally.t
    best = largest(means, k)
    least = _LOOK if n * dim >= LARGE else 0.0
    for place, t in enumerate(times):
        radius = bernstein_serfling(t, dim, root=roots, largest=rewards.bounds.largest, level=level)
        lower = float((means[best] - radius[best]).min())
        upper = np.add(means, radius, out=radius)
        left = int(np.count_nonzero(upper >= lower))
        upper[best] = -np.inf
        dropped = prices.finishing(m, t, n, dim) - prices.finishing(left, t, n, dim)
        if float(upper.max()) - lower <= epsilon or dropped > least:
            return times[place:]
    return []


def looks(rewards: Rewards) -> list[int]:
    """The looks before the last: the least sample, well beyond it N over powers of two, and late ones halfway
    between.
    """
    dim = rewards.dim
    least = least_sample(rewards.size, dim)
    times = [least, *(share * dim for share in _LOOKS if share * dim >= _BEYOND * least)]
    return sorted({rewards.rounded(t) for t in times} - {dim})


def radii(tally: Tally, roots: Vector, level: float, width: Width) -> tuple[Vector, Vector]:
    """Return how far the means can be off, and the bounds s, of the arms that are left. Shapes: (m,) each."""
    rewards, t = tally.rewards, tally.t
    largest = rewards.bounds.largest
    if width == "empirical_bernstein":
        # The rewards of one arm lie in [-w, w]. R is the range of one coordinate's: that can be half as much.
        found = empirical_bernstein_serfling(
            t, rewards.dim, deviation=deviations(tally), spread=2.0 * largest, level=level
        )
        return found, roots
    if tally.squared == t:
        mean_squares = tally.squares / t
        found = root_mean_square(t, mean_squares, largest=largest, level=level)
        roots = np.minimum(roots, found + rewards.noise)
    return bernstein_serfling(t, rewards.dim, root=roots, largest=largest, level=level), roots


def deviations(tally: Tally) -> Vector:
    """Return upper bounds on the standard deviations of what was read, rounding included. Shape: (m,)."""
    noise, t = tally.rewards.noise, tally.t
    root = np.sqrt(tally.squares / t) + noise
    mean = np.maximum(np.abs(tally.sums) / t - noise, 0.0)
    found: Vector = np.sqrt(np.maximum(root**2 - mean**2, 0.0))
    return found


def decided(means: Vector, radius: Vector, k: int, epsilon: float) -> tuple[Rows, bool]:
    """Return the best k positions and True if they will do; else those that can still be among the best k."""
    best = largest(means, k)
    upper = means + radius
    upper[best] = -np.inf
    if upper.max() - (means[best] - radius[best]).min() <= epsilon:
        return best, True
    upper[best] = np.inf
    return np.flatnonzero(upper >= kth_largest(means - radius, k)), False
