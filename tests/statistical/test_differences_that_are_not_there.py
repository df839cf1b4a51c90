"""Experiments that are looked at after every decision: how many ever find a difference that is not there.

A sequence of level 0.95 may fail in 5 % of them; it is rejected beyond the binomial quantile at 1e-4.
Intervals that are made for one look must be rejected by the same test.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from scipy import stats

from shortlist.evaluation import asymptotic_confidence_sequence as asymptotic
from shortlist.evaluation import confidence_sequence as bounded
from shortlist.evaluation.asymptotic_confidence_sequence import LARGEST, MIN_REWARDS, Unbounded

pytestmark = pytest.mark.rest

DECISIONS, ALPHA, SHARE = 2_000, 0.05, 0.3
COUNTS = pytest.mark.parametrize("count", [150, pytest.param(500, marks=pytest.mark.slow)])


def most_of(experiments: int) -> int:
    return int(stats.binom.ppf(1 - 1e-4, experiments, ALPHA))


Rewards = Callable[[np.random.Generator], np.ndarray]


def coins(rng: np.random.Generator) -> np.ndarray:
    return (rng.random(DECISIONS) < 0.3).astype(float)


def rare(rng: np.random.Generator) -> np.ndarray:
    return (rng.random(DECISIONS) < 0.02).astype(float)


def drifting(rng: np.random.Generator) -> np.ndarray:
    """The means of both groups rise alike, as of a policy that learns."""
    return (rng.random(DECISIONS) < np.linspace(0.1, 0.8, DECISIONS)).astype(float)


def normal(rng: np.random.Generator) -> np.ndarray:
    return 50.0 + 20.0 * rng.normal(size=DECISIONS)


def skewed(rng: np.random.Generator) -> np.ndarray:
    return rng.exponential(size=DECISIONS)


class Paths:
    """Two groups of one experiment, after every decision. Shapes: all (2, DECISIONS)."""

    def __init__(self, rewards: np.ndarray, rng: np.random.Generator) -> None:
        second = rng.random(DECISIONS) < SHARE
        self.values = [rewards[~second], rewards[second]]
        member = np.array([~second, second])
        self.counts = member.cumsum(axis=1)
        self.totals = (member * rewards).cumsum(axis=1)
        guesses = (0.5 + self.totals - member * rewards) / np.maximum(self.counts, 1)
        self.spreads = (member * np.square(rewards - guesses)).cumsum(axis=1)
        self.squares = (member * rewards**2).cumsum(axis=1)
        self.low = np.minimum.accumulate(np.where(member, rewards, np.inf), axis=1)
        self.high = np.maximum.accumulate(np.where(member, rewards, -np.inf), axis=1)

    @property
    def scatter(self) -> np.ndarray:
        return np.maximum(self.squares - self.totals**2 / np.maximum(self.counts, 1), 0.0)

    @property
    def even(self) -> np.ndarray:
        """Whether no single reward makes too much of the scatter of its group."""
        means = self.totals / np.maximum(self.counts, 1)
        largest = np.maximum(self.high - means, means - self.low) ** 2
        return (largest <= LARGEST * self.scatter).all(axis=0)

    @property
    def apart(self) -> np.ndarray:
        means = self.totals / np.maximum(self.counts, 1)
        return means[0] - means[1]


def experiments(rewards: Rewards, seed: int, count: int) -> list[Paths]:
    rng = np.random.default_rng(seed)
    return [Paths(rewards(rng), rng) for _ in range(count)]


def always_valid(paths: Paths) -> np.ndarray:
    """Half the width of the difference's interval at every look: infinite while a group is empty."""
    halves = []
    for counts, spreads in zip(paths.counts, paths.spreads, strict=True):
        own = np.flatnonzero(np.diff(counts, prepend=0))  # the looks with a new decision of this group
        found = bounded.radius(counts[own], spreads[own], alpha=ALPHA / 2)
        halves.append(np.append(np.inf, found)[counts])
    return halves[0] + halves[1]


def variance_of_difference(paths: Paths) -> np.ndarray:
    n = np.maximum(paths.counts, 2)
    return (paths.scatter / (n * (n - 1.0))).sum(axis=0)


def of_one_look(paths: Paths) -> np.ndarray:
    """The broken variant: the 95 % interval for a number of decisions that was fixed beforehand."""
    half = stats.norm.ppf(1 - ALPHA / 2) * np.sqrt(variance_of_difference(paths))
    return np.where((paths.counts >= MIN_REWARDS).all(axis=0), half, np.inf)


@cache
def asymptotic_radii_of_variance_1() -> np.ndarray:
    return np.array([asymptotic.radius(t, 1.0, alpha=ALPHA) for t in range(1, DECISIONS + 1)])


def for_many(paths: Paths) -> np.ndarray:
    """The radius grows as the root of the variance, so that of 1 does for all; some are checked."""
    variances = variance_of_difference(paths)
    half = np.sqrt(variances) * asymptotic_radii_of_variance_1()
    for look in range(MIN_REWARDS, DECISIONS, DECISIONS // 8):
        own = asymptotic.radius(look + 1, float(variances[look]), alpha=ALPHA)
        assert half[look] == pytest.approx(own, rel=1e-12)
    return np.where((paths.counts >= MIN_REWARDS).all(axis=0) & paths.even, half, np.inf)


def fooled(all_paths: list[Paths], radius: Callable[[Paths], np.ndarray]) -> int:
    return sum(bool((np.abs(paths.apart) > radius(paths)).any()) for paths in all_paths)


@COUNTS
@pytest.mark.parametrize("rewards", [coins, rare, drifting])
def test_bounded_rewards_hardly_ever_show_a_difference_that_is_not_there(rewards: Rewards, count: int):
    found = experiments(rewards, 1, count)
    assert fooled(found, always_valid) <= most_of(count)
    if rewards is coins:
        assert fooled(found, of_one_look) > most_of(count)


@COUNTS
@pytest.mark.parametrize("rewards", [normal, skewed])
def test_many_unbounded_rewards_hardly_ever_show_one(rewards: Rewards, count: int):
    found = experiments(rewards, 2, count)
    assert fooled(found, for_many) <= most_of(count)
    assert fooled(found, of_one_look) > most_of(count)


@COUNTS
def test_the_mean_of_one_group_is_held_at_all_times_also_when_it_drifts(count: int):
    means = np.linspace(0.1, 0.8, DECISIONS)
    running = means.cumsum() / np.arange(1, DECISIONS + 1)
    failures, rng = 0, np.random.default_rng(3)
    counts = np.arange(1.0, DECISIONS + 1)
    for _ in range(count):
        values = (rng.random(DECISIONS) < means).astype(float)
        totals = values.cumsum()
        spreads = np.square(values - (0.5 + totals - values) / counts).cumsum()
        half = bounded.radius(counts, spreads, alpha=ALPHA)
        failures += bool((np.abs(totals / counts - running) > half).any())
    assert failures <= most_of(count)


def means_missed(draw: Callable[[np.random.Generator], np.ndarray], mean: float, *, any_rewards: bool) -> int:
    """In how many of 300 runs the sequence of one group ever misses its mean. ``any_rewards`` is broken."""
    rng, t, missed = np.random.default_rng(7), np.arange(1.0, 5_001), 0
    radii = np.array([asymptotic.radius(int(count), 1.0, alpha=ALPHA) for count in t])
    for _ in range(300):
        values = draw(rng)
        means = values.cumsum() / t
        scatter = np.maximum((values**2).cumsum() - t * means**2, 0.0)
        low, high = np.minimum.accumulate(values), np.maximum.accumulate(values)
        largest = np.maximum(high - means, means - low) ** 2
        begun = (t >= MIN_REWARDS) & (low < high) & (any_rewards | (largest <= LARGEST * scatter))
        half = radii * np.sqrt(scatter / (t * np.maximum(t - 1.0, 1.0)))
        missed += bool((begun & (np.abs(means - mean) > half)).any())
    return missed


@pytest.mark.parametrize(
    ("draw", "mean"),
    [
        (lambda rng: (rng.random(5_000) < 0.01).astype(float), 0.01),
        (lambda rng: rng.lognormal(0.0, 1.5, 5_000), math.exp(1.125)),
    ],
    ids=["1 in 100", "lognormal"],
)
def test_there_is_no_interval_before_rare_or_very_large_rewards_are_seen_often_enough(
    draw: Callable[[np.random.Generator], np.ndarray], mean: float
):
    most = int(stats.binom.ppf(1 - 1e-4, 300, ALPHA))
    assert means_missed(draw, mean, any_rewards=False) <= most
    assert means_missed(draw, mean, any_rewards=True) > most


def test_a_difference_that_is_there_is_found():
    rng = np.random.default_rng(5)
    groups = [bounded.add(bounded.start(0, 1), (rng.random(5_000) < p).astype(float)) for p in (0.4, 0.3)]
    low, high = bounded.difference(*groups)
    assert 0.0 < low < 0.1 < high
    many = [asymptotic.add(Unbounded(), p + rng.normal(size=2_000)) for p in (0.4, 0.1)]
    low, high = asymptotic.difference(*many) or (math.nan, math.nan)
    assert 0.0 < low < 0.3 < high
