"""Naive greedy by matrix products returns what the definition says, cancellation and ties included."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from center_brute_force import best_radius, greedy, radius, squared
from shortlist.errors import InvalidParameter, InvalidShape, NonFinite
from shortlist.kcenter.naive_greedy import naive_greedy


def run(points, k, first=0):
    return naive_greedy(points, k=k, first=first, rng=np.random.default_rng(0))


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 12),
    dim=st.integers(1, 5),
    data=st.data(),
    dtype=st.sampled_from([np.float32, np.float64, np.int64]),
)
def test_integer_points_give_exactly_the_greedy_centres(seed, n, dim, data, dtype):
    points = np.random.default_rng(seed).integers(-2, 3, (n, dim)).astype(dtype)
    k, first = data.draw(st.integers(1, n)), data.draw(st.integers(0, n - 1))
    found, matrix = run(points, k, first), squared(points)
    assert found.centers.tolist() == greedy(matrix, k, first)
    assert found.radius == np.sqrt(radius(matrix, found.centers))
    assert (found.radius_kind, found.guarantee.kind) == ("exact", "exact")
    assert found.reads == found.exhaustive_reads == n * dim * k


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
def test_cancellation_does_not_change_the_centres(dtype, offset):
    """Far from the origin the matrix product keeps few digits of a distance, or none."""
    rng = np.random.default_rng(3)
    points = (offset + rng.standard_normal((80, 2100))).astype(dtype)
    assert run(points, 6).centers.tolist() == greedy(squared(points), 6, 0)


@pytest.mark.rest
@pytest.mark.parametrize("seed", range(40))
def test_the_radius_is_at_most_twice_the_best(seed):
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(4, 11)), int(rng.integers(1, 5))
    points = rng.standard_normal((n, 2))
    k = min(k, n)
    best = np.sqrt(best_radius(squared(points), k))
    assert run(points, k).radius <= 2.0 * best + 1e-12


def test_equal_points_are_chosen_in_row_order():
    assert run(np.ones((5, 3)), 5, first=2).centers.tolist() == [2, 0, 1, 3, 4]
    assert run(np.ones((5, 3)), 5).radius == 0.0


@pytest.mark.rest
def test_a_random_first_centre_is_drawn_from_all():
    points, rng = np.zeros((4, 1)), np.random.default_rng(0)
    seen = {int(naive_greedy(points, k=1, rng=rng).centers[0]) for _ in range(200)}
    assert seen == {0, 1, 2, 3}


@pytest.mark.rest
@pytest.mark.parametrize(
    ("points", "options", "error", "name"),
    [
        (np.ones(3), {"k": 1}, InvalidShape, "points"),
        (np.ones((0, 3)), {"k": 1}, InvalidParameter, "points"),
        (np.ones((3, 0)), {"k": 1}, InvalidParameter, "points"),
        (np.array([[1.0], [np.nan]]), {"k": 1}, NonFinite, "points"),
        (np.full((2, 2), 1e200), {"k": 1}, NonFinite, "points"),
        (np.ones((3, 2)), {"k": 0}, InvalidParameter, "k"),
        (np.ones((3, 2)), {"k": 4}, InvalidParameter, "k"),
        (np.ones((3, 2)), {"k": 1, "first": 3}, InvalidParameter, "first"),
        (np.ones((3, 2)), {"k": 1, "first": -1}, InvalidParameter, "first"),
    ],
)
def test_bad_input_is_named(points, options, error, name):
    with pytest.raises(error, match=name) as raised:
        naive_greedy(points, rng=np.random.default_rng(0), **options)
    assert raised.value.argument == name
