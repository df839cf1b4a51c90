"""Asymptotic confidence sequences: for rewards without bounds, right once there are many of them.

Notation
    t           rewards so far, of both groups for a difference
    sigma       standard deviation of a reward; for a difference sqrt(t (s_1^2 / t_1 + s_2^2 / t_2))
    rho         where the sequence is tightest, see ``_TUNED_AT``

The interval is

    sample mean +- sigma sqrt(2 (t rho^2 + 1) / (t rho)^2 log(sqrt(t rho^2 + 1) / alpha))

It holds for all t from a first look on, with a probability which tends to 1 - alpha the later the first look
comes. How late is late enough depends on the rewards: 100 are too few if one of them is not 0. So there is no
interval before ``MIN_REWARDS`` rewards, and none while a single one makes more than ``LARGEST`` of the sum of
squared distances from the mean. Of rewards of 1 now and then and else 0, there are 15 ones by then.
Simulations chose it: tests/statistical/test_differences_that_are_not_there.py.

Source: Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas, "Time-uniform central limit theory and asymptotic
confidence sequences" (2024), Theorem 2.2. For a difference of two groups to which decisions are drawn with
fixed shares, by its section 3: the difference of means is a mean of independent summands of deviation sigma,
but for terms that vanish.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from shortlist import checks
from shortlist.types import Vector

MIN_REWARDS = 100  # rewards of a group
LARGEST = 1 / 15  # part of the scatter that one reward may make
_TUNED_AT = 1_000.0

Missing = Literal["few", "alike", "uneven"]  # why there is no interval


@dataclass(frozen=True, slots=True)
class Unbounded:
    """The kept sums of the rewards of one group.

    ``scatter`` is the sum of squared distances from their mean, ``low`` and ``high`` are the smallest and the
    largest.
    """

    count: int = 0
    total: float = 0.0
    scatter: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    @property
    def mean(self) -> float | None:
        """The sample mean; None without rewards."""
        return self.total / self.count if self.count else None

    @property
    def missing(self) -> Missing | None:
        """Why there is no interval; None where there is one."""
        if self.count < MIN_REWARDS:
            return "few"
        if self.low == self.high:
            return "alike"
        mean = self.total / self.count
        largest = max(self.high - mean, mean - self.low) ** 2
        return "uneven" if largest > LARGEST * self.scatter else None

    @property
    def needed(self) -> int | None:
        """The least number of rewards for an interval, by those so far; None where there is one, or none
        tell.

        With a heavy tail the number grows with the rewards: each largest one is larger than those before.
        """
        match self.missing:
            case "few":
                return MIN_REWARDS
            case "uneven":
                mean = self.total / self.count
                largest = max(self.high - mean, mean - self.low) ** 2
                return math.ceil(self.count * largest / (LARGEST * self.scatter))
        return None

    @property
    def variance_of_mean(self) -> float | None:
        """Estimated; None while there is no interval."""
        return None if self.missing else self.scatter / (self.count * (self.count - 1.0))

    def interval(self, *, level: float = 0.95) -> tuple[float, float] | None:
        """An interval that holds the mean for all t together with probability about ``level``.

        None while it is ``missing``. Cost: O(1). Raises: InvalidParameter (level).
        """
        checks.in_range("level", level, above=0.0, below=1.0)
        variance = self.variance_of_mean
        if variance is None:
            return None
        half = radius(self.count, variance, alpha=1.0 - level)
        return self.total / self.count - half, self.total / self.count + half


def add(group: Unbounded, values: Vector) -> Unbounded:
    """The group with more rewards, in any order. Shapes: values (n,). Cost: O(n).

    Raises: InvalidShape, NonFinite.
    """
    checks.shape("values", values, (None,))
    checks.finite("values", values)
    if not len(values):
        return group
    count, total = group.count + len(values), group.total + float(values.sum())
    mean = float(values.mean())
    scatter = group.scatter + float(np.square(values - mean).sum())
    if group.count:
        apart = mean - group.total / group.count
        scatter += apart * apart * group.count * (len(values) / count)
    low, high = min(group.low, float(values.min())), max(group.high, float(values.max()))
    return Unbounded(count, total, scatter, low, high)


def joined(groups: Sequence[Unbounded], weights: Vector) -> Unbounded:
    """A group with the weighted mean of these, and the variance of the weighted mean.

    ``weights``: sum to 1; a group of weight 0 is left out, the others have rewards. Each reward is as far
    from the joined mean as it moves the joined mean. Shapes: weights (S,). Cost: O(S).
    """
    used = [(group, weight) for group, weight in zip(groups, weights.tolist(), strict=True) if weight > 0.0]
    if len(used) == 1:
        return used[0][0]
    count, mean, scatter, low, high = sum(group.count for group, _ in used), 0.0, 0.0, 0.0, 0.0
    for group, weight in used:
        group_mean, scale = group.total / group.count, weight * count / group.count
        mean, scatter = mean + weight * group_mean, scatter + scale**2 * group.scatter
        low, high = min(low, scale * (group.low - group_mean)), max(high, scale * (group.high - group_mean))
    return Unbounded(count, count * mean, scatter, mean + low, mean + high)


def difference(one: Unbounded, other: Unbounded, *, level: float = 0.95) -> tuple[float, float] | None:
    """An interval of the mean of ``one`` less that of ``other``, for all times together.

    None while either group has no interval. Cost: O(1). Raises: InvalidParameter (level).
    """
    checks.in_range("level", level, above=0.0, below=1.0)
    variances = one.variance_of_mean, other.variance_of_mean
    if variances[0] is None or variances[1] is None:
        return None
    half = radius(one.count + other.count, variances[0] + variances[1], alpha=1.0 - level)
    centre = one.total / one.count - other.total / other.count
    return centre - half, centre + half


def radius(count: int, variance_of_mean: float, *, alpha: float) -> float:
    """Half the width of the interval; ``count`` is t, ``variance_of_mean`` sigma^2 / t.

    Raises: InvalidParameter (alpha).
    """
    checks.in_range("alpha", alpha, above=0.0, below=1.0)
    wanted = -2.0 * math.log(alpha)
    scaled = count * (wanted + math.log1p(wanted)) / _TUNED_AT  # t rho^2
    factor = 2.0 * (scaled + 1.0) / scaled * (0.5 * math.log1p(scaled) - math.log(alpha))
    return math.sqrt(variance_of_mean * factor)
