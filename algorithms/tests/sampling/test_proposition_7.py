"""Proposition 7: where means are as far off as its event allows, a race reads just what Equation 10 says.

Nothing is drawn. The means of every check are put at the edge of their widths, against the best arm. The
bound is computed from the print, with B_Normal from another form of Corollary 4: Y_t sqrt(u_t) is Brownian
motion at the times u_t = T / (N - T).
"""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from shortlist.sampling.race import RaceRules, race
from shortlist.sampling.racing_normal import normal_rules, normal_width

pytestmark = pytest.mark.rest

SIZES = ((1_000, 50), (777, 20), (40, 30))
SETTINGS = [(0.1, 4), (0.01, 2), (0.3, 3)]
NODES = 161
INSIDE = 1e-6  # how far from the edge of its event a mean is, as a share of the width


def crossing(bound, size, first):
    """P(some check t < t*: W(u_t) > B sqrt(u_t)), by Simpson's rule between the checks."""
    x = np.linspace(-9.0, bound, NODES)
    density, found, t = stats.norm.pdf(x), stats.norm.sf(bound), first
    while 2 * t < size:
        before, after = t / (size - t), 2 * t / (size - 2 * t)
        spread = math.sqrt(after - before)
        there = x * math.sqrt(before)
        escapes = stats.norm.sf((bound * math.sqrt(after) - there) / spread)
        found += integrate.simpson(density * escapes, x=x)
        moves = stats.norm.pdf(x[:, None] * math.sqrt(after), loc=there, scale=spread) * math.sqrt(after)
        density, t = integrate.simpson(moves * density, x=x, axis=1), 2 * t
    return found


@cache
def b_normal(delta, size, first):
    """The root of Equation 5 for Gaussian means."""
    return optimize.brentq(lambda bound: crossing(bound, size, first) - delta, 0.0, 9.0, xtol=1e-9)


def equation_10(gap, *, arms, size, first, delta, variance):
    """T*(gap). The print forgets that a race reads m at least: ceil(log2(n / m)) may be negative there."""
    bound = b_normal(delta / (arms - 1 if variance == "pairwise" else arms), size, first)
    needed = size / ((size - 1) * gap**2 / (4 * bound**2) + 1)
    doublings = max(0, math.ceil(math.log2(needed / first)))
    return arms * min(first * 2**doublings, size)


class WorstCase:
    """Arm 0 is the best, the others are behind by ``gap`` deviations, and every mean errs against arm 0.

    ``scale(t)`` is the width of Equation 9 for the deviation 1. Arms have different deviations.
    """

    def __init__(self, arms, gap, variance, scale):
        self._deviations = 1.0 + np.arange(arms)
        self._variance, self._scale, self._gap = variance, scale, gap
        self._left, self._t, self.reads = np.arange(arms), 0, 0

    def read_to(self, t):
        self.reads += len(self._left) * (t - self._t)
        self._t = t

    def keep(self, places):
        self._left = self._left[places]

    def means(self):
        off = (1.0 - INSIDE) * self._scale(self._t)
        if self._variance == "pairwise":
            found = (off - self._gap) * self._pairs(0)
        else:
            found = off * self._deviations - self._gap * (self._deviations + self._deviations[0])
            found[0] = -off * self._deviations[0]
        return found[self._left]

    def deviations(self):
        return self._deviations[self._left]

    def deviations_from(self, place):
        return self._pairs(self._left[place])[self._left]

    def _pairs(self, arm):
        return np.abs(self._deviations - self._deviations[arm])


def gaps(size, first, delta, arms, variance):
    """Just below and above the gap at which each check is the last, and some far from all of them."""
    bound = b_normal(delta / (arms - 1 if variance == "pairwise" else arms), size, first)
    checks = (first * 2**look for look in itertools.count())
    edges = [
        2 * bound * math.sqrt((size / t - 1) / (size - 1))
        for t in itertools.takewhile(lambda t: t < size, checks)
    ]
    return [edge * factor for edge in edges for factor in (0.999, 1.001)] + [1e-6, 3.0]


def reads(rules, gap, *, arms, size, first, delta, variance):
    bound = b_normal(delta / (arms - 1 if variance == "pairwise" else arms), size, first)

    def scale(t):
        return bound * math.sqrt((1 - (t - 1) / (size - 1)) / t)

    sample = WorstCase(arms, gap, variance, scale)
    assert race(sample, np.zeros(arms), rules) == 0
    return sample.reads


@pytest.mark.parametrize("variance", ["pairwise", "marginal"])
@pytest.mark.parametrize(("size", "first"), SIZES)
@pytest.mark.parametrize(("delta", "arms"), SETTINGS)
def test_the_worst_case_of_a_race_reads_what_equation_10_says(delta, arms, size, first, variance):
    rules = normal_rules(arms, size, delta=delta, variance=variance, first=first)
    for gap in gaps(size, first, delta, arms, variance):
        setting = {"arms": arms, "size": size, "first": first, "delta": delta, "variance": variance}
        assert reads(rules, gap, **setting) == equation_10(gap, **setting)


def without_the_population(rules, size, bound):
    return RaceRules(
        rules.schedule, lambda t, s, ranges: s * bound / math.sqrt(t), rules.ranges, rules.variance
    )


BROKEN = {
    "a width that is 1 % larger": lambda rules, size, bound: RaceRules(
        rules.schedule, normal_width(size, 1.01 * bound), rules.ranges, rules.variance
    ),
    "the width of an infinite population": without_the_population,
    "a check of everything only": lambda rules, size, bound: RaceRules(
        (size,), rules.width, rules.ranges, rules.variance
    ),
    "delta shared by the checks too": lambda rules, size, bound: normal_rules(
        len(rules.ranges), size, delta=0.1 / 5, variance=rules.variance, first=50
    ),
}


@pytest.mark.parametrize("variance", ["pairwise", "marginal"])
@pytest.mark.parametrize("broken", BROKEN)
def test_a_race_that_reads_more_is_noticed(broken, variance):
    setting = {"arms": 4, "size": 1_000, "first": 50, "delta": 0.1, "variance": variance}
    bound = b_normal(0.1 / (3 if variance == "pairwise" else 4), 1_000, 50)
    right = normal_rules(4, 1_000, delta=0.1, variance=variance, first=50)
    rules = BROKEN[broken](right, 1_000, bound)
    assert any(
        reads(rules, gap, **setting) > equation_10(gap, **setting)
        for gap in gaps(1_000, 50, 0.1, 4, variance)
    )
