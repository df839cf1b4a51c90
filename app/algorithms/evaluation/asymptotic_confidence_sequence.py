"""Asymptotic confidence sequences: for rewards without bounds, right once there are many of them.

Notation
    t           rewards so far, of both groups for a difference
    sigma       standard deviation of a reward; for a difference sqrt(t (s_1^2 / t_1 + s_2^2 / t_2))
    rho         where the sequence is tightest, see ``_TUNED_AT``

The interval is

    sample mean +- sigma sqrt(2 (t rho^2 + 1) / (t rho)^2 log(sqrt(t rho^2 + 1) / alpha))

It holds for all t from a first look on, with a probability that tends to 1 - alpha as that first look comes
later. So there is none before ``LEAST`` rewards, and none while all rewards are alike: their spread is not
known yet.

Source: Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas, "Time-uniform central limit theory and asymptotic
confidence sequences" (2024), Theorem 2.2. For a difference of two groups to which decisions are drawn with
fixed shares, by its section 3: the difference of means is a mean of independent summands of deviation sigma,
but for terms that vanish.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from app.algorithms import checks
from app.algorithms.types import Vector

LEAST = 100  # rewards of a group
_TUNED_AT = 1_000.0


@dataclass(frozen=True, slots=True)
class Unbounded:
    """What is kept of the rewards of one group. ``scatter``: the sum of squared distances from their mean."""

    count: int = 0
    total: float = 0.0
    scatter: float = 0.0

    @property
    def mean(self) -> float | None:
        """The sample mean; None without rewards."""
        return self.total / self.count if self.count else None

    @property
    def variance_of_mean(self) -> float | None:
        """Estimated; None before ``LEAST`` rewards, and while all are alike."""
        if self.count < LEAST or self.scatter <= 0.0:
            return None
        return self.scatter / (self.count * (self.count - 1.0))

    def interval(self, *, level: float = 0.95) -> tuple[float, float] | None:
        """An interval that holds the mean for all t together with probability about ``level``.

        None before ``LEAST`` rewards, and while all are alike. Cost: O(1). Raises: InvalidParameter (level).
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
    return Unbounded(count, total, scatter)


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
