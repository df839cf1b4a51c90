"""Remark 1: few corners in the plane and in a flat, all of them in many dimensions."""

from __future__ import annotations

from shortlist.mips.extreme_points import extreme_points
from studies.experiments import convex_hull


def test_the_best_arm_is_one_of_few_corners_of_the_plane():
    found = convex_hull.row("gaussian", 500, 2, 2, extreme_points, asked=5)
    assert found["best_is_a_corner"] == 1.0
    assert found["share"] < 0.1
    assert found["all"] is None
