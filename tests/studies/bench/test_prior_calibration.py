"""How far noise and intervals of a learned prior hold: seeded draws, with wide margins."""

from __future__ import annotations

from studies.bench import prior_calibration


def test_noise_and_ellipsoids_are_near_what_they_say_and_errors_above_the_least():
    (row,) = prior_calibration.rows(keys=(60,), directions=(3,), draws=2)
    assert (row["keys"], row["directions"]) == (60, 3)
    assert 0.7 < row["noise"] < 1.1
    assert 0.7 < row["ellipsoid"] <= 1.0
    assert 1.0 < row["error"] < 1.6
