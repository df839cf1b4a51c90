"""Extreme points against plain references, and what they are for: the best arm of any query is one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.errors import InvalidArgument
from shortlist.mips.extreme_points import MOST_DIMENSIONS, extreme_points, surely_extreme

pytestmark = pytest.mark.rest


def chain(points):
    """Corners of a polygon by the monotone chain of whole numbers."""

    def half(order):
        hull = []
        for row in order:
            while len(hull) > 1 and turn(points[hull[-2]], points[hull[-1]], points[row]) <= 0:
                hull.pop()
            hull.append(row)
        return hull[:-1]

    def turn(a, b, c):
        return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])

    order = sorted(range(len(points)), key=lambda row: tuple(points[row]))
    return sorted(set(half(order) + half(order[::-1])))


@given(seed=st.integers(0, 2**32), n=st.integers(3, 60))
def test_in_the_plane_they_are_the_corners_of_a_polygon(seed, n):
    rng = np.random.default_rng(seed)
    points = np.unique(rng.integers(-9, 10, (n, 2)), axis=0)
    places = points - points.mean(axis=0)
    if np.linalg.matrix_rank(places) < 2:
        return
    assert extreme_points(points.astype(float)).tolist() == chain(points.tolist())


@given(seed=st.integers(0, 2**32), n=st.integers(1, 80), dim=st.integers(1, 5), flat=st.integers(0, 5))
def test_the_best_arm_is_one_of_them(seed, n, dim, flat):
    """Also where arms lie in a flat of fewer dimensions, are equal, or are few."""
    rng = np.random.default_rng(seed)
    arms = rng.standard_normal((n, min(flat, dim))) @ rng.standard_normal((min(flat, dim), dim)) + 3.0
    arms = np.vstack((arms, arms[:1]))
    corners = extreme_points(arms)
    assert len(np.unique(corners)) == len(corners) > 0
    for query in rng.standard_normal((20, dim)):
        products = arms @ query
        assert products[corners].max() == pytest.approx(products.max(), rel=1e-9, abs=1e-9)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), n=st.integers(7, 60), dim=st.integers(2, 5))
def test_what_is_surely_extreme_is_extreme(seed, n, dim):
    arms = np.random.default_rng(seed).standard_normal((n, dim))
    assert set(surely_extreme(arms)) <= set(extreme_points(arms))


def test_few_arms_are_corners_of_the_plane_and_nearly_all_in_many_dimensions():
    rng = np.random.default_rng(1)
    assert len(extreme_points(rng.standard_normal((5_000, 2)))) < 40
    assert len(extreme_points(rng.standard_normal((5_000, 3)))) < 200
    assert len(surely_extreme(rng.standard_normal((500, 30)))) > 450


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros((0, 2)),
        np.zeros(3),
        np.array([[1.0, np.nan]]),
        np.random.default_rng(0).standard_normal((30, MOST_DIMENSIONS + 1)),
    ],
)
def test_what_has_no_hull_is_refused(bad):
    with pytest.raises(InvalidArgument) as raised:
        extreme_points(bad)
    assert raised.value.argument == "vectors"
