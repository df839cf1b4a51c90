"""Racing-Normal: the race with widths for Gaussian means, and share delta among all checks at once.

Notation
    D, N        number of arms, of factors
    T           factors read so far of every remaining arm
    m           first batch; 50 was enough for a lognormal population in the paper and here
    B           B_Normal(delta / D', m / N), see ``b_normal``; D' is D, or D - 1 with pairwise variance

G = sigma^ sqrt((1 - (T-1)/(N-1)) / T) B. The total variation to p is at most delta as far as the means of T
>= m rewards are Gaussian and sigma^ is the population's: a rare and large factor breaks this.

Source: Chen and Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", section 3.3.2.
"""

from __future__ import annotations

import math

import numpy as np

from shortlist.sampling.b_normal import b_normal
from shortlist.sampling.factors import Draws, Factors, check
from shortlist.sampling.race import (
    RaceRules,
    Variance,
    Width,
    check_race,
    doubling,
    draw_by_race,
    rivals,
)
from shortlist.types import Vector

FIRST = 50


def racing_normal(
    factors: Factors,
    *,
    delta: float,
    rng: np.random.Generator,
    log_prior: Vector | None = None,
    draws: int = 1,
    variance: Variance = "pairwise",
    first: int = FIRST,
) -> Draws:
    """Return draws whose distribution is within ``delta`` of p in total variation, for Gaussian means.

    ``first`` is m; 1 counts as 2.
    Shapes: log_prior (D,), the log f_0 -> rows (draws,). Cost: at most D N reads; O(D T) time a draw.
    Raises: InvalidShape, NonFinite, InvalidParameter (delta not in (0, 1), draws < 1, first < 1, no states).
    """
    log_prior = check(factors, log_prior, draws)
    rules = normal_rules(factors.arms, factors.size, delta=delta, variance=variance, first=first)
    return draw_by_race(factors, log_prior, draws, rng, rules)


def normal_rules(arms: int, size: int, *, delta: float, variance: Variance, first: int) -> RaceRules:
    """Return the schedule and widths of a race of D arms over N factors. Raises: InvalidParameter."""
    check_race(delta, first)
    schedule = doubling(max(first, 2), size)
    bound = b_normal(delta / rivals(arms, variance), schedule[0] / size)
    return RaceRules(schedule, normal_width(size, bound), np.zeros(arms), variance)


def normal_width(size: int, bound: float) -> Width:
    """Return the width of Equation 9; ``bound`` is B."""

    def width(t: int, deviations: Vector, ranges: Vector) -> Vector:  # noqa: ARG001 - of the protocol
        scale = math.sqrt((1.0 - (t - 1) / (size - 1)) / t) * bound
        return deviations * scale

    return width
