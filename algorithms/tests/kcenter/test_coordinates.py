"""The blocked layout holds the same points, and reads what it counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from center_brute_force import squared
from shortlist.kcenter.coordinates import blocked

pytestmark = pytest.mark.rest


@settings(max_examples=60)
@given(
    n=st.integers(1, 600),
    dim=st.integers(1, 40),
    width=st.integers(1, 12),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_a_layout_is_a_permutation_of_the_coordinates(n, dim, width, dtype):
    rng = np.random.default_rng(7)
    points = rng.standard_normal((n, dim)).astype(dtype)
    before = points.copy()
    found = blocked(points, rng=np.random.default_rng(1), width=width)
    assert found.blocks.dtype == dtype
    assert not found.blocks.flags.writeable
    flat = found.points()
    order = np.random.default_rng(1).permutation(dim)
    np.testing.assert_array_equal(flat, points[:, order])
    np.testing.assert_array_equal(points, before)
    np.testing.assert_array_equal(found.point(n - 1).ravel()[:dim], points[n - 1, order])
    for start in range(len(found.blocks)):
        reads = found.reads_after(start)
        lengths = np.minimum(width, dim - width * np.roll(np.arange(len(found.blocks)), -start))
        np.testing.assert_array_equal(np.diff(reads), lengths)
        assert (reads[0], reads[-1]) == (0, dim)


def test_the_scale_bounds_every_squared_difference():
    points = np.random.default_rng(0).uniform(-3, 5, (20, 30)).astype(np.float32)
    found = blocked(points, rng=np.random.default_rng(1))
    ranges = points.max(axis=0).astype(float) - points.min(axis=0)
    assert found.scale == ranges.max() ** 2
    assert squared(points).max() <= 30 * found.scale
    assert blocked(points, rng=np.random.default_rng(1), scale=64.0).scale == 64.0


def test_the_order_is_drawn_from_the_generator():
    points = np.arange(100.0).reshape(1, -1)
    orders = {tuple(blocked(points, rng=np.random.default_rng(s)).points()[0]) for s in range(5)}
    assert len(orders) == 5
