"""DS-UCB, DS-TS, random sampling: greedy's centres, ties, costs, and the defects of the printed loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from center_brute_force import best_radius, greedy, radius, separated, squared
from shortlist.errors import InvalidParameter
from shortlist.kcenter import race as race_module
from shortlist.kcenter import stages
from shortlist.kcenter.coordinates import blocked
from shortlist.kcenter.ds_ts import ds_ts
from shortlist.kcenter.ds_ucb import ds_ucb
from shortlist.kcenter.naive_greedy import naive_greedy
from shortlist.kcenter.random_sampling import random_sampling

pytestmark = pytest.mark.rest

ALGORITHMS = (ds_ucb, ds_ts, random_sampling)
everywhere = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda f: f.__name__)


def run(algorithm, points, k, first=0, *, seed=1, width=8, **options):
    coordinates = blocked(points, rng=np.random.default_rng(seed + 100), width=width)
    options = {"delta": 0.1, "ci": "kl"} | options
    return algorithm(coordinates, k=k, first=first, rng=np.random.default_rng(seed), **options)


@pytest.fixture
def always_sample(monkeypatch):
    """Race also where reading everything would be cheaper: small cases reach every branch."""
    monkeypatch.setattr(stages, "can_tell_apart", lambda coordinates, bounds: coordinates.scale > 0.0)


@everywhere
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 9), dim=st.integers(1, 40), data=st.data())
def test_integer_points_with_many_ties_end_with_the_greedy_centres(algorithm, seed, n, dim, data):
    """Duplicates and equal distances everywhere: the printed loops never end here. Ours reads at most n m k.

    The centres may differ with probability delta = 1e-9.
    """
    points = np.random.default_rng(seed).integers(0, 2, (n, dim)).astype(np.float64)
    k, first = data.draw(st.integers(1, n)), data.draw(st.integers(0, n - 1))
    matrix = squared(points)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "can_tell_apart", lambda coordinates, bounds: coordinates.scale > 0.0)
        found = run(algorithm, points, k, first, seed=seed, width=3, delta=1e-9, radius="exact")
    assert found.centers.tolist() == greedy(matrix, k, first)
    assert found.radius == pytest.approx(np.sqrt(radius(matrix, found.centers)), abs=1e-12)
    assert found.reads <= found.exhaustive_reads == n * dim * k


@everywhere
def test_reads_counts_the_coordinates_that_were_taken_from_the_layout(algorithm, monkeypatch):
    points = separated(40, 1003, 5, seed=4)
    taken = []
    original = race_module.Race._read  # private: what is read, to count it

    def spy(race, rows, column, look, count):
        lengths = np.diff(race.reads_after)[look : look + count]
        taken.append(len(rows) * int(lengths.sum()))
        original(race, rows, column, look, count)

    monkeypatch.setattr(race_module.Race, "_read", spy)
    found = run(algorithm, points, 4, width=10)
    assert found.guarantee.kind == "pac"
    assert found.reads == sum(taken) > 0


@everywhere
def test_no_coordinate_of_a_pair_is_read_twice(algorithm, monkeypatch, always_sample):
    """Sampling without replacement: with t = m the mean is exact without m further reads."""
    seen = set()
    original = race_module.Race._read  # private: what is read, to count it

    def spy(race, rows, column, look, count):
        blocks = {(race.start + look + i) % race.last_look for i in range(count)}
        pairs = {(int(row), column, block) for row in rows for block in blocks}
        assert len(pairs) == len(rows) * count
        assert not pairs & seen
        seen.update(pairs)
        original(race, rows, column, look, count)

    monkeypatch.setattr(race_module.Race, "_read", spy)
    points = np.random.default_rng(0).random((12, 90))
    run(algorithm, points, 5, width=8, radius="exact")
    assert seen


@everywhere
def test_no_dimension_to_spare_means_exact(algorithm):
    points = np.random.default_rng(0).standard_normal((30, 16))
    found, wanted = (
        run(algorithm, points, 4, width=64),
        naive_greedy(points, k=4, first=0, rng=np.random.default_rng(0)),
    )
    assert found.guarantee.kind == "exact"
    assert found.centers.tolist() == wanted.centers.tolist()
    assert found.radius == pytest.approx(wanted.radius, rel=1e-12)
    assert found.reads == found.exhaustive_reads == 30 * 16 * 4


@everywhere
def test_scaling_and_shifting_the_points_changes_nothing_but_the_radius(algorithm):
    points = separated(40, 2000, 5, seed=6, dtype=np.float64)
    plain, moved = (run(algorithm, some, 4, width=32) for some in (points, points * 64.0 - 1024.0))
    assert plain.centers.tolist() == moved.centers.tolist()
    assert plain.reads == moved.reads
    assert moved.radius == pytest.approx(64.0 * plain.radius, rel=1e-9)


@everywhere
def test_a_tolerance_stops_near_ties_and_keeps_its_promise(algorithm):
    """Every point of d within epsilon of the largest will do; near ties cost all coordinates without it."""
    rng = np.random.default_rng(8)
    points = np.zeros((30, 4000))
    points[1], points[2] = 1.0, np.where(np.arange(4000) < 3999, 1.0, 0.99)
    points[3:] = 0.3 * rng.random((27, 1))
    tolerant, strict = (run(algorithm, points, 2, width=32, epsilon=epsilon) for epsilon in (0.1, 0.0))
    assert strict.centers.tolist() == [0, 1]
    assert tolerant.centers[1] in (1, 2)
    assert tolerant.reads < strict.reads
    assert tolerant.guarantee.epsilon == 0.1


@pytest.mark.parametrize("seed", range(25))
def test_the_radius_of_the_centres_is_within_the_factor_and_the_tolerance(seed):
    """r^2 <= 4 OPT^2 + m epsilon, by trying all sets of centres."""
    rng = np.random.default_rng(seed)
    points = rng.random((9, 3)) @ rng.choice((-0.5, 0.5), size=(3, 2400))
    matrix, k, epsilon = squared(points), int(rng.integers(2, 5)), 0.02 * (seed % 3)
    found = run(ds_ucb, points, k, seed=seed, epsilon=epsilon)
    assert radius(matrix, found.centers) <= 4.0 * best_radius(matrix, k) + 2400 * epsilon + 1e-9


def test_the_experimental_interval_promises_nothing():
    found = run(ds_ucb, separated(40, 2000, 5, seed=6), 3, ci="experiment", c_alpha=0.1)
    assert found.guarantee.kind == "none"
    wide = run(ds_ucb, separated(40, 2000, 5, seed=6), 3, ci="experiment", c_alpha=0.4)
    assert wide.reads > found.reads


def test_thompson_sampling_never_draws_a_pair_that_is_known(always_sample, monkeypatch):
    """The printed line 12 may choose a retired pair forever; a pull of one would read nothing."""
    original = race_module.Race.pull

    def spy(race, rows, columns, blocks):
        assert (race.looks[columns, rows] < race.last_look).all()
        assert not np.isin(rows, race.centers).any()
        original(race, rows, columns, blocks)

    monkeypatch.setattr(race_module.Race, "pull", spy)
    for seed in range(20):
        points = np.random.default_rng(seed).integers(0, 2, (8, 30)).astype(float)
        run(ds_ts, points, 6, seed=seed, width=4, mix=1.0)


def test_the_estimate_is_of_the_squared_distance_and_has_no_bias():
    """The printed root of Equation 7 is biased by several standard errors here.

    False alarm below 1e-6: the mean of 4000 blocks against a normal quantile of 1e-7.
    """
    rng = np.random.default_rng(0)
    points = rng.random((2, 512)) ** 3
    true = float(((points[0] - points[1]) ** 2).mean())
    means = []
    for seed in range(4000):
        coordinates = blocked(points, rng=np.random.default_rng(seed), width=8)
        rng = np.random.default_rng((seed, 1))
        race = race_module.Race(coordinates, 1, lambda mean, t, j: (mean, mean), rng)
        race.add(0)
        race.pull(np.array([1]), np.array([0]), np.array([1]))
        means.append(race.mean[0, 1] * coordinates.scale)
    error = np.std(means) / np.sqrt(len(means))
    assert abs(np.mean(means) - true) < 5.4 * error
    assert abs(np.mean(np.sqrt(means)) - np.sqrt(true)) > 5.4 * np.std(np.sqrt(means)) / np.sqrt(len(means))


@everywhere
def test_the_layout_is_not_changed_and_a_seed_repeats(algorithm):
    coordinates = blocked(separated(30, 1500, 4, seed=9), rng=np.random.default_rng(0))
    before = coordinates.blocks.copy()
    runs = [algorithm(coordinates, k=3, delta=0.1, rng=np.random.default_rng(4)) for _ in range(2)]
    np.testing.assert_array_equal(coordinates.blocks, before)
    assert runs[0].centers.tolist() == runs[1].centers.tolist()
    assert (runs[0].reads, runs[0].radius) == (runs[1].reads, runs[1].radius)


def test_a_mixture_outside_the_unit_interval_is_named():
    with pytest.raises(InvalidParameter, match="mix"):
        run(ds_ts, np.zeros((3, 20)), 1, mix=1.5)
