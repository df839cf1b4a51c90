"""Remark 1: few corners in the plane and in a flat, all of them in many dimensions."""

from __future__ import annotations

import pytest

from shortlist.mips.extreme_points import extreme_points, surely_extreme
from studies.experiments import convex_hull


def test_the_best_arm_is_one_of_few_corners_of_the_plane():
    found = convex_hull.row("gaussian", 500, 2, 2, extreme_points, asked=5)
    assert found["best_is_a_corner"] == 1.0
    assert found["share"] < 0.1
    assert found["all"] is None


@pytest.mark.rest
def test_in_a_flat_few_corners_are_left_to_sample():
    found = convex_hull.row("in a flat", 400, 512, 3, extreme_points, asked=5)
    assert found["best_is_a_corner"] == 1.0
    assert found["share"] < 0.3
    assert 0 < found["hull"] <= found["share"]
    assert found["hull"] < found["all"] <= 1


@pytest.mark.rest
def test_a_little_noise_makes_every_arm_a_corner():
    found = convex_hull.row("near a flat", 200, 512, 512, surely_extreme, asked=5)
    assert found["share"] == 1.0
    assert found["at_least"]
    assert found["hull"] is None
