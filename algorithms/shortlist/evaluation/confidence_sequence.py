"""Confidence sequences of bounded rewards: intervals that hold at all times together, at every look.

Notation
    a, b        smallest and largest possible reward; below they are scaled to 0 and 1
    t           rewards so far
    x_i, m_i    reward i, and its mean given all events before
    X_t         mean of the first t rewards
    M_t         mean of m_1 ... m_t, the estimated quantity. It moves for a policy which learns
    y_i         guess of x_i from the rewards before it: (1/2 + x_1 + ... + x_(i-1)) / i
    V_t         sum of (x_i - y_i)^2, the intrinsic time
    s           sum of x_i - m_i
    rho         where the sequence is tightest, see ``_RHO_AT``
    alpha       probability of s ever rising above u(V_t)

For every lambda in [0, 1) the process exp(lambda s + (log(1 - lambda) + lambda) V_t) is a supermartingale
from 1 on (Fan, Grama, Liu 2015; Theorem 4 of the source has guesses). So is its mean over lambda with a
density proportional to (1 - lambda)^(rho - 1) exp(-rho (1 - lambda)), which is

    m(s, v) = rho^rho / (G(rho) P(rho, rho)) e^(s + v) G(a) P(a, s + a) / (s + a)^a,  a = v + rho

with G the gamma function and P the regularised lower incomplete one. By Ville's inequality m ever reaches 1 /
alpha with probability at most alpha, and u(v) is the s at which m does. The same for -x bounds s from below.

Source: Howard, Ramdas, McAuliffe, Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence sequences"
(2021), Theorem 4 and the gamma-exponential mixture (Proposition 9). Unlike sequences with a different stake
at each reward, this one estimates the plain mean of all m_i, so a policy may learn meanwhile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammainc, gammaln

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.types import Vector

_RHO_AT = 250.0  # V_t at which it is tightest: a thousand tosses of a coin
_MOST_STEPS = 100
_CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class Bounded:
    """The kept sums of the rewards of one group, all from ``low`` to ``high``.

    ``count`` is t, ``total`` the sum of the scaled rewards, ``spread`` V_t.
    """

    low: float
    high: float
    count: int = 0
    total: float = 0.0
    spread: float = 0.0

    @property
    def mean(self) -> float | None:
        """X_t in the unit of rewards; None without any."""
        return self.low + (self.high - self.low) * self.total / self.count if self.count else None

    def interval(self, *, level: float = 0.95) -> tuple[float, float]:
        """An interval that holds M_t for all t together with probability ``level``.

        Cost: O(1). Raises: InvalidParameter (level).
        """
        checks.in_range("level", level, above=0.0, below=1.0)
        if not self.count:
            return self.low, self.high
        centre = self.total / self.count
        (half,) = radius(np.array([float(self.count)]), np.array([self.spread]), alpha=1.0 - level)
        width = self.high - self.low
        return self.low + width * max(centre - half, 0.0), self.low + width * min(centre + half, 1.0)


def start(low: float, high: float) -> Bounded:
    """A group without rewards. Raises: InvalidParameter (not low < high, or not finite)."""
    checks.in_range("low", low)
    checks.in_range("high", high, above=low)
    return Bounded(low, high)


def add(group: Bounded, values: Vector) -> Bounded:
    """The group with more rewards, in the order in which they came. In pieces or at once is the same.

    Shapes: values (n,). Cost: O(n). Raises: InvalidShape, NonFinite, InvalidParameter (out of the range).
    """
    checks.shape("values", values, (None,))
    checks.finite("values", values)
    if not ((values >= group.low) & (values <= group.high)).all():
        raise InvalidParameter(f"values must be from {group.low:g} to {group.high:g}", argument="values")
    if not len(values):
        return group
    scaled = (values - group.low) / (group.high - group.low)
    totals = group.total + np.cumsum(scaled)
    before = np.concatenate(([group.total], totals[:-1]))
    guesses = (0.5 + before) / (group.count + 1.0 + np.arange(len(values)))
    spread = group.spread + float(np.square(scaled - guesses).sum())
    return Bounded(group.low, group.high, group.count + len(values), float(totals[-1]), spread)


def widened(group: Bounded, low: float, high: float) -> Bounded:
    """The group, as if its rewards could have been from ``low`` to ``high`` all the time.

    Only the first guesses differ from those of such a group, and any guess from earlier rewards will do. The
    range must not be chosen by the rewards.

    Cost: O(1). Raises: InvalidParameter (not around the range so far).
    """
    checks.in_range("low", low, most=group.low)
    checks.in_range("high", high, least=group.high)
    ratio = (group.high - group.low) / (high - low)
    total = ratio * group.total + group.count * ((group.low - low) / (high - low))
    return Bounded(low, high, group.count, total, ratio * ratio * group.spread)


def difference(one: Bounded, other: Bounded, *, level: float = 0.95) -> tuple[float, float]:
    """An interval of the mean of ``one`` less that of ``other``, for all times together.

    Each group has half of 1 - ``level`` to fail. Cost: O(1). Raises: InvalidParameter (level).
    """
    checks.in_range("level", level, above=0.0, below=1.0)
    (low, high), (other_low, other_high) = (group.interval(level=0.5 + level / 2.0) for group in (one, other))
    return low - other_high, high - other_low


def radius(counts: Vector, spreads: Vector, *, alpha: float) -> Vector:
    """Half the width of the interval of the scaled mean that fails with probability ``alpha``: u(V_t) / t.

    ``counts`` are t, ``spreads`` V_t. Shapes: (n,), (n,) -> (n,). Cost: some ten evaluations of m each.
    Raises: InvalidParameter (alpha).
    """
    checks.in_range("alpha", alpha, above=0.0, below=1.0)
    return boundary_of(spreads, alpha / 2.0) / counts


def boundary_of(v: Vector, alpha: float) -> Vector:
    """The u of each v, from above. Shapes: (n,) -> (n,).

    log m rises with s and is convex, so Newton's steps from above stay above.
    """
    wanted, rho = -math.log(alpha), rho_of(alpha)
    s = np.sqrt(2.0 * wanted * (v + rho)) + wanted
    while (low := log_mixture(s, v, rho)[0] < wanted).any():
        s = np.where(low, 2.0 * s, s)
    for _ in range(_MOST_STEPS):
        value, slope = log_mixture(s, v, rho)
        step = np.maximum((value - wanted) / slope, 0.0)
        s = s - step
        if (step <= _CLOSE * s).all():
            break
    return s


def rho_of(alpha: float) -> float:
    """About the rho that is tightest at V_t = ``_RHO_AT``: that of a mixture of normal densities."""
    wanted = -2.0 * math.log(alpha)
    return _RHO_AT / (wanted + math.log1p(wanted))


def log_mixture(s: Vector, v: Vector, rho: float) -> tuple[Vector, Vector]:
    """Return log m(s, v) and its derivative by s. Shapes: (n,), (n,) -> (n,), (n,)."""
    shape, rate = v + rho, s + v + rho
    inside = np.log(gammainc(shape, rate))
    constant = rho * math.log(rho) - float(gammaln(rho) + np.log(gammainc(rho, rho)))
    value = constant + gammaln(shape) + inside - shape * np.log(rate) + s + v
    density = np.exp((shape - 1.0) * np.log(rate) - rate - gammaln(shape) - inside)
    return value, 1.0 + density - shape / rate
