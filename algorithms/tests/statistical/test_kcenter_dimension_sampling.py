"""The promises of the intervals and of DS-UCB and DS-TS, over many seeded runs.

A failure rate of at most delta is rejected beyond the binomial quantile at 1e-8: over all tests of this file
the false-alarm probability stays below 1e-6. Each promise has a broken variant that the test must reject.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from center_brute_force import greedy, squared
from shortlist.kcenter import intervals, stages
from shortlist.kcenter.coordinates import blocked
from shortlist.kcenter.ds_ts import ds_ts
from shortlist.kcenter.ds_ucb import ds_ucb

pytestmark = pytest.mark.rest

ALARM = 1e-8


def allowed(runs, rate):
    return int(stats.binom.isf(ALARM, runs, rate))


def misses(bounds, *, runs, replace, seed, population):
    """How many of ``runs`` sequences leave the interval at some look; a look is every fourth answer."""
    rng = np.random.default_rng(seed)
    size, mean = len(population), population.mean()
    order = rng.integers(size, size=(runs, size)) if replace else np.argsort(rng.random((runs, size)), axis=1)
    t = np.arange(4, size, 4)
    means = np.cumsum(population[order], axis=1)[:, t - 1] / t
    looks = np.arange(1, len(t) + 1)
    missed = np.zeros(runs, dtype=bool)
    for column, (count, look) in enumerate(zip(t, looks, strict=True)):
        lower, upper = bounds(means[:, column], np.full(runs, count), np.full(runs, look))
        missed |= (mean < lower) | (mean > upper)
    return int(missed.sum())


def shrunk(bounds, factor=3.0):
    def narrower(mean, t, j):
        lower, upper = bounds(mean, t, j)
        return mean - (mean - lower) / factor, mean + (upper - mean) / factor

    return narrower


POPULATIONS = {
    "rare": np.repeat((0.0, 1.0), (380, 20)),
    "fair": np.repeat((0.0, 1.0), (200, 200)),
    "smooth": np.linspace(0.0, 1.0, 400) ** 2,
}
SHARE = 0.1


@pytest.mark.parametrize("replace", [False, True], ids=["without", "with replacement"])
@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("kind", ["kl", "lil"])
def test_the_proven_intervals_hold_at_all_looks_at_once(kind, population, replace):
    """Each side of kl has its share of delta; lil counts both sides at once."""
    bounds = {
        "kl": lambda mean, t, j: intervals.kl(mean, t, j, SHARE / 2),
        "lil": lambda mean, t, j: (mean - intervals.lil(t, SHARE), mean + intervals.lil(t, SHARE)),
    }[kind]
    found = misses(bounds, runs=2000, replace=replace, seed=3, population=POPULATIONS[population])
    assert found <= allowed(2000, SHARE)


@pytest.mark.parametrize("population", POPULATIONS)
def test_a_third_of_the_kl_interval_does_not(population):
    bounds = shrunk(lambda mean, t, j: intervals.kl(mean, t, j, SHARE / 2))
    found = misses(bounds, runs=2000, replace=True, seed=3, population=POPULATIONS[population])
    assert found > allowed(2000, SHARE)


def test_the_gaussian_interval_holds_and_a_third_of_it_does_not():
    rng, runs, t = np.random.default_rng(5), 2000, np.arange(1, 401)
    means = np.cumsum(rng.normal(0.3, 0.5, (runs, 400)), axis=1) / t
    lower, upper = intervals.gaussian(means, np.broadcast_to(t, means.shape), 0.25, SHARE / 2)
    assert ((lower > 0.3) | (upper < 0.3)).any(axis=1).sum() <= allowed(runs, SHARE)
    narrow = np.abs(means - 0.3) > (upper - lower) / 6
    assert narrow.any(axis=1).sum() > allowed(runs, SHARE)


def near_ties(seed):
    """Corners of the cube whose distances from point 0 nearly tie: greedy is hard to follow."""
    rng = np.random.default_rng(seed)
    points = np.zeros((12, 1200))
    for row, flips in enumerate(rng.permutation(np.linspace(570, 600, 11)).astype(int), start=1):
        points[row, rng.choice(1200, size=flips, replace=False)] = 1.0
    return points


def wrong_runs(algorithm, runs):
    """Points, layout and algorithm have seeds of their own: none of the draws foresees another."""
    wrong = 0
    for seed in range(runs):
        points = near_ties(seed)
        coordinates = blocked(points, rng=np.random.default_rng((seed, 1)), width=8)
        found = algorithm(coordinates, k=3, delta=0.1, first=0, rng=np.random.default_rng((seed, 2)))
        assert found.guarantee.kind == "pac"
        wrong += found.centers.tolist() != greedy(squared(points), 3, 0)
    return wrong


@pytest.mark.parametrize("algorithm", [ds_ucb, ds_ts])
def test_the_centres_are_those_of_greedy(algorithm):
    assert wrong_runs(algorithm, 60) <= allowed(60, 0.1)


@pytest.mark.parametrize("algorithm", [ds_ucb, pytest.param(ds_ts, marks=pytest.mark.slow)])
def test_with_a_third_of_the_interval_they_are_not(algorithm, monkeypatch):
    original = stages.interval
    monkeypatch.setattr(stages, "interval", lambda *args, **options: shrunk(original(*args, **options)))
    assert wrong_runs(algorithm, 60) > allowed(60, 0.1)
