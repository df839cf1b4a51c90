"""Racing-EBS: the race with empirical Bernstein-Serfling widths, proven for every bounded population.

Notation
    D, N        number of arms, of factors
    T           factors read so far of every arm that is left
    t*          number of checks; the last is when everything was read, and needs no width
    C_i         range of log f_n(i) over n: largest minus smallest, or a bound on it

G = B_EBS(delta / (D' (t* - 1)), T, sigma^, C): a union over arms and checks. D' is D, or D - 1 with pairwise
variance.

Source: Chen and Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", section 3.3.1.
"""

from __future__ import annotations

import math

import numpy as np

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.finite_population import empirical_bernstein_serfling
from shortlist.sampling.factors import Draws, Factors, check
from shortlist.sampling.race import (
    RaceRules,
    Variance,
    check_race,
    doubling,
    draw_by_race,
    rivals,
)
from shortlist.types import Vector

FIRST = 2


def racing_ebs(
    factors: Factors,
    *,
    ranges: Vector,
    delta: float,
    rng: np.random.Generator,
    log_prior: Vector | None = None,
    draws: int = 1,
    variance: Variance = "pairwise",
    first: int = FIRST,
) -> Draws:
    """Return draws whose distribution is within ``delta`` of p in total variation.

    ``first`` is the first T; 1 counts as 2.
    Shapes: ranges (D,), the C_i; log_prior (D,), the log f_0 -> rows (draws,).
    Cost: at most D N reads; O(D T) time a draw. Raises: InvalidShape, NonFinite, InvalidParameter (delta not
    in (0, 1), draws < 1, first < 1, no states, a negative range).
    """
    log_prior = check(factors, log_prior, draws)
    check_ranges(ranges, factors.arms)
    rules = ebs_rules(ranges, factors.size, delta=delta, variance=variance, first=first)
    return draw_by_race(factors, log_prior, draws, rng, rules)


def ebs_rules(ranges: Vector, size: int, *, delta: float, variance: Variance, first: int) -> RaceRules:
    """Return the schedule and widths of a race over ``size`` factors. Raises: InvalidParameter."""
    check_race(delta, first)
    schedule = doubling(max(first, 2), size)
    level = math.log(rivals(len(ranges), variance) * max(1, len(schedule) - 1) / delta)

    def width(t: int, deviations: Vector, some: Vector) -> Vector:
        return empirical_bernstein_serfling(t, size, deviation=deviations, spread=some, level=level)

    return RaceRules(schedule, width, ranges, variance)


def check_ranges(ranges: Vector, arms: int) -> None:
    """Raise InvalidArgument unless there is a finite range >= 0 for each arm. Shape: (arms,)."""
    checks.shape("ranges", ranges, (arms,))
    checks.finite("ranges", ranges)
    if bool(np.any(ranges < 0.0)):
        raise InvalidParameter("ranges must be >= 0", argument="ranges")
