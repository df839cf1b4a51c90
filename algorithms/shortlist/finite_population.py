"""Radii: bounds of the distance between the mean of a sample drawn without replacement and the population's.

Notation
    N, t        size of the population, of the sample; any t fixed beforehand, 1 <= t <= N
    mu, mean    mean of the population, of the sample
    R           range of the population: largest value minus smallest, or a bound on it
    w, s        bounds on the absolute values of the population, on its root mean square
    sigma^      standard deviation of the sample: the root of its mean squared difference from its mean
    rho         the factor of the variance by finiteness
    level       log(1 / probability)

Every radius r is one-sided: P(mean - mu > r) <= exp(-level), and by symmetry P(mu - mean > r) <= exp(-level).
It holds at one t and on one side. For several t, or both sides, divide the probability among them.

Source: Bardenet and Maillard, "Concentration inequalities for sampling without replacement", Bernoulli 2015.
"""

from __future__ import annotations

import math

import numpy as np

from shortlist import checks
from shortlist.types import Vector

KAPPA = 7.0 / 3.0 + 3.0 / math.sqrt(2.0)
# Their Theorem 4.3 is a union of this many events, each of which fails with probability exp(-l).
_EVENTS = 5.0


def rho(t: int, population: int) -> float:
    """Return min(1 - (t-1)/N, (1 - t/N)(1 + 1/t)); the second is the smaller one from t > N/2 on.

    Raises: InvalidParameter (t not in 1..N), as everything here.
    """
    checks.in_range("t", t, least=1, most=population)
    return min(1.0 - (t - 1) / population, (1.0 - t / population) * (1.0 + 1.0 / t))


def sample_size(u: float, population: int) -> float:
    """Return m(u) <= N: every whole t >= m(u), t >= 1, has rho(t) / t <= 1 / u. m(inf) = N.

    Source: Liu, Wu, Mozafari, "A Bandit Approach to Maximum Inner Product Search", Equation 6.
    """
    if u >= 2.0**52 * population:
        return float(population)
    return min(u + 1.0, u + u / population) / (1.0 + u / population)


def hoeffding_serfling(t: int, population: int, *, spread: float, level: float) -> float:
    """Return the radius R sqrt(rho level / (2 t)), 0 at t = N: their Corollary 2.5. ``spread`` is R."""
    return spread * math.sqrt(rho(t, population) * level / (2.0 * t))


def bernstein_serfling(t: int, population: int, *, root: Vector, largest: float, level: float) -> Vector:
    """Return the radius (s sqrt(2 V level) + w level / 3) / t, for known s and w; 0 at t = N.

    ``root`` (n,) are the s of n populations, ``largest`` is w. V is ``variance_factor``: about
    t (1 - t / (2N)) for t <= N/2. The proof is in docs/papers/bounded-me.md. Shapes: -> (n,).
    """
    if t == population:
        return np.zeros_like(root)
    scale = math.sqrt(2.0 * variance_factor(t, population) * level)
    radius: Vector = root * (scale / t)
    radius += largest * level / (3.0 * t)
    return radius


def root_mean_square(t: int, mean_squares: Vector, *, largest: float, level: float) -> Vector:
    """Return upper bounds on the root mean squares s of n populations, from a sample of each.

    A bound is too small with probability exp(-level) at most. It is
    min(w, (q + w^2 level / (2t))^(1/2) + w (level / (2t))^(1/2)) for a sample whose squares have the mean q.
    ``mean_squares`` (n,) are the q, ``largest`` is w. The proof is in docs/papers/bounded-me.md.
    Shapes: -> (n,).
    """
    slack = largest * math.sqrt(level / (2.0 * t))
    bound: Vector = np.minimum(largest, np.sqrt(mean_squares + slack**2) + slack)
    return bound


def empirical_bernstein_serfling(
    t: int, population: int, *, deviation: Vector, spread: float | Vector, level: float
) -> Vector:
    """Return the radius sigma^ sqrt(2 rho l / t) + kappa R l / t, l = level + log 5: their Theorem 4.3.

    It is 0 at t = N. ``deviation`` (n,) are the sigma^ of n samples, ``spread`` is their R: that of each
    population (n,), or one for all. Shapes: -> (n,).
    """
    if t == population:
        return np.zeros_like(deviation)
    share = level + math.log(_EVENTS)
    scale = math.sqrt(2.0 * rho(t, population) * share / t)
    radius: Vector = deviation * scale + KAPPA * share / t * spread
    return radius


def variance_factor(t: int, population: int) -> float:
    """Return V of ``bernstein_serfling``: s^2 V takes the place of the variance of a sum of t values."""
    checks.in_range("t", t, least=1, most=population)
    unread = population - t
    return min(t, unread, _martingale_factor(unread, population), _martingale_factor(t, population))


def _martingale_factor(rest: int, population: int) -> float:
    if rest < 2:
        return math.inf
    return population / 2.0 * (rest / (rest - 1.0) - rest**2 / (population * (population - 1.0)))
