"""Racing: successive elimination by bounds from the variance of the rewards.

Notation, beyond that of ``bounded_me``
    w           bound on the absolute rewards
    s           upper bound on an arm's root mean square reward
    t           number of coordinates after which arms are checked; all t are fixed beforehand
    L           number of checks before the last, at which everything was read
    level       log(2 n L / delta)

At a check every remaining arm has been read at t coordinates. Its mean lies within a radius of the true
one, by a Bernstein bound without replacement. An arm goes if its upper bound is below the k-th largest lower
bound.

Over blocked arms s is known beforehand, from fourth moments. Elsewhere it is bounded from the sample itself.
Squares cost more than sums, so they are taken of the first coordinates only, about a thirtieth of all reads;
later checks use the last bounds s.

The engine of Racing-EBS for the best k arms, with a narrower bound: see docs/papers/bounded-me.md.

Source: Chen and Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", Algorithm 1.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from shortlist.errors import InvalidParameter
from shortlist.finite_population import (
    bernstein_serfling,
    empirical_bernstein_serfling,
    root_mean_square,
)
from shortlist.guarantee import Guarantee, exactly
from shortlist.mips.answer import Answer
from shortlist.mips.bounded_me import check_arguments
from shortlist.mips.partial_sums import PartialSums, kth_largest, largest, read_all
from shortlist.mips.rewards import CoordinateRewards
from shortlist.types import Rows, Vector

Width = Literal["second_moment", "empirical_bernstein"]

FEW_COORDINATES = "there are too few coordinates to sample"
ALL_READ = "no arm could be told apart before everything was read"
# With fewer coordinates the first check would see fewer than four of them.
LEAST_DIM = 256
# Checks are after these shares of the coordinates, the last after all of them.
_SHARES = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4)
# The second check is after at least this many times as many coordinates as the first.
_SECOND = 1.5
# Squares are summed in at most this share of a scan's reads.
_SQUARED_SHARE = 1.0 / 30.0
# A race may have to read everything. Its overhead may then be this share of a scan.
_MOST_OVERHEAD = 0.16


def racing(
    rewards: CoordinateRewards, *, k: int, epsilon: float, delta: float, width: Width = "second_moment"
) -> Answer:
    """Return ``k`` arms; with probability 1 - delta their k-th best mean is within epsilon of the true one.

    Arguments as of ``bounded_me``. ``width`` "empirical_bernstein" takes the bound of the paper instead, for
    the range 2 w of an arm's rewards.
    Shapes: rewards of n arms -> rows, values (min(k, n),). Cost: at most n N reads, ``Answer.reads``.
    Raises: InvalidParameter (as ``bounded_me``, and the width).
    """
    check_arguments(k, epsilon, delta)
    if width not in {"second_moment", "empirical_bernstein"}:
        raise InvalidParameter("width must be second_moment or empirical_bernstein", argument="width")
    if few_coordinates(rewards) or rewards.size <= k:
        return read_all(rewards, k, FEW_COORDINATES)
    times = schedule(rewards)
    level = math.log(2.0 * rewards.size * len(times) / delta)
    partial, budget = PartialSums(rewards), _SQUARED_SHARE * rewards.size * rewards.dim
    known = rewards.root_mean_squares() if width == "second_moment" else None
    roots: Vector = np.full(rewards.size, np.inf) if known is None else known
    done = False
    while times:
        cost = len(partial.places) * (times[0] - partial.t)
        squares = known is None and (width == "empirical_bernstein" or not partial.t or cost <= budget)
        if partial.t and not squares:
            times = worthwhile(partial, times, roots, level, k=k, epsilon=epsilon)
            if not times:
                break
        budget -= cost
        partial.read_to(times.pop(0), squares=squares)
        radius, roots = radii(partial, roots, level, width)
        radius += rewards.noise
        left, done = decided(partial.sums / partial.t, radius, k, epsilon)
        if len(left) < len(roots):
            partial.keep(left)
            roots = roots[left]
        if done or partial.few_are_left():
            break
    sampled = done or len(partial.places) < rewards.size
    guarantee = Guarantee("pac", epsilon, delta) if sampled else exactly(ALL_READ)
    return partial.answer(k, guarantee, decided=done)


def few_coordinates(rewards: CoordinateRewards) -> bool:
    """Return whether a race would cost much more than a scan, should it have to read everything."""
    n, dim = rewards.size, rewards.dim
    return dim < LEAST_DIM or rewards.costs.overhead(n, dim) > _MOST_OVERHEAD * n * dim


def schedule(rewards: CoordinateRewards) -> list[int]:
    """Return after how many coordinates arms are checked, the last check, after all N, left out.

    First after the least sample that is worth reading, then after fixed shares of N well beyond it.
    """
    dim = rewards.dim
    least = rewards.costs.least_sample(rewards.size, dim)
    times = [least, *(share * dim for share in _SHARES if share * dim >= _SECOND * least)]
    return sorted({rewards.rounded(t) for t in times} - {dim})


def worthwhile(
    partial: PartialSums, times: list[int], roots: Vector, level: float, *, k: int, epsilon: float
) -> list[int]:
    """Return the checks from the next one on that is worth its cost, if the means stay as they are; or [].

    A check is worth its cost if it ends the race, or drops arms whose further reads would cost more. Leaving
    out checks takes nothing from what the others promise.

    ``times``: the checks to come. ``roots`` (m,): the bounds s, from which the radii will be.
    """
    rewards, m = partial.rewards, len(partial.places)
    n, dim, costs = rewards.size, rewards.dim, rewards.costs
    means = partial.sums / partial.t
    best = largest(means, k)
    for position, t in enumerate(times):
        radius = bernstein_serfling(t, dim, root=roots, largest=rewards.bounds.largest, level=level)
        lower = float((means[best] - radius[best]).min())
        upper = np.add(means, radius, out=radius)
        left = int(np.count_nonzero(upper >= lower))
        upper[best] = -np.inf
        saved = costs.finishing(m, t, n, dim) - costs.finishing(left, t, n, dim)
        if float(upper.max()) - lower <= epsilon or saved > costs.checking(n, dim):
            return times[position:]
    return []


def radii(partial: PartialSums, roots: Vector, level: float, width: Width) -> tuple[Vector, Vector]:
    """Return how far the means of the arms that are left can be off, and their bounds s. Shapes: (m,) each.

    ``roots`` (m,): the bounds s so far. ``level``: log(1 / probability) of each one-sided event.
    """
    rewards, t = partial.rewards, partial.t
    largest_reward = rewards.bounds.largest
    if width == "empirical_bernstein":
        # The rewards of one arm lie in [-w, w]. R is the range of one coordinate's: that can be half as much.
        widths = empirical_bernstein_serfling(
            t, rewards.dim, deviation=deviations(partial), spread=2.0 * largest_reward, level=level
        )
        return widths, roots
    if partial.squared == t:
        mean_squares = partial.squares / t
        widths = root_mean_square(t, mean_squares, largest=largest_reward, level=level)
        roots = np.minimum(roots, widths + rewards.noise)
    return bernstein_serfling(t, rewards.dim, root=roots, largest=largest_reward, level=level), roots


def deviations(partial: PartialSums) -> Vector:
    """Return upper bounds on the standard deviations of what was read, rounding included. Shape: (m,)."""
    noise, t = partial.rewards.noise, partial.t
    root = np.sqrt(partial.squares / t) + noise
    mean = np.maximum(np.abs(partial.sums) / t - noise, 0.0)
    roots: Vector = np.sqrt(np.maximum(root**2 - mean**2, 0.0))
    return roots


def decided(means: Vector, radius: Vector, k: int, epsilon: float) -> tuple[Rows, bool]:
    """Return the best k positions and True if they will do; else those that can still be among the best k.

    Shapes: means, radius (m,), ``radius`` being how far a mean can be off.
    """
    best = largest(means, k)
    upper = means + radius
    upper[best] = -np.inf
    if upper.max() - (means[best] - radius[best]).min() <= epsilon:
        return best, True
    upper[best] = np.inf
    return np.flatnonzero(upper >= kth_largest(means - radius, k)), False
