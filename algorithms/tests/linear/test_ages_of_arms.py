"""What the age of an arm adds, from sums of bins of ages in stretches of time."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.errors import InvalidParameter, InvalidShape, NonFinite
from shortlist.linear import ages
from shortlist.linear.ages import (
    BINS,
    DOUBT,
    FROM_S,
    SMOOTH,
    STRENGTH,
    AgeNumbers,
    added,
    bin_of,
    bins_of,
    fit,
)

NOISE = 0.09


def test_bins_are_octaves_from_a_quarter_of_an_hour_on():
    assert len(FROM_S) == BINS == 14
    assert FROM_S[:5] == (0, 900, 1_800, 3_600, 7_200)
    assert FROM_S[-1] == 900 * 2**12
    edges = [1_000 * from_s + more for from_s in FROM_S for more in (-1, 0, 1)]
    found = bins_of(np.array([*edges, 10**15]))
    assert found.tolist() == [bin_of(age) for age in (*edges, 10**15)]
    for number, from_s in enumerate(FROM_S):
        assert bin_of(1_000 * from_s) == number
        assert bin_of(1_000 * from_s - 1) == max(number - 1, 0)  # before it came, by another clock: new


def stretches(rng: np.random.Generator, *, truth: np.ndarray, level: float, count: int = 60):
    """Rewards of stretches with a level of their own each, at some ages each."""
    for _ in range(count):
        at = rng.choice(BINS, size=300, p=rng.dirichlet(np.ones(BINS)))
        rho = truth[at] + level * rng.normal() + 0.3 * rng.normal(size=len(at))
        yield at, rho


def sums(at: np.ndarray, rho: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.bincount(at, minlength=BINS).astype(float), np.bincount(at, rho, minlength=BINS)


def test_a_fit_is_the_ridge_regression_with_a_level_of_each_stretch():
    rng = np.random.default_rng(1)
    truth = rng.normal(size=BINS)
    rows, levels, rhos, known = [], [], [], ages.nothing()
    for number, (at, rho) in enumerate(stretches(rng, truth=truth, level=1.0, count=5)):
        known = added(known, *sums(at, rho))
        rows.append(np.eye(BINS)[at])
        levels.append(np.eye(5)[np.full(len(at), number)])
        rhos.append(rho)
    design = np.hstack((np.vstack(rows), np.vstack(levels)))
    penalty = np.diag([STRENGTH] * BINS + [0.0] * 5)
    for one in range(BINS - 1):
        penalty[one : one + 2, one : one + 2] += SMOOTH * np.array([[1.0, -1.0], [-1.0, 1.0]])
    whole = np.linalg.solve(design.T @ design + penalty, design.T @ np.concatenate(rhos))
    f, deviations = fit(known, NOISE)
    # What the stretches and bins explain of all squares, over what noise would.
    least = np.linalg.lstsq(design, np.concatenate(rhos), rcond=None)[0]
    of_levels = np.linalg.lstsq(design[:, BINS:], np.concatenate(rhos), rcond=None)[0]
    explained = ((design @ least - design[:, BINS:] @ of_levels) ** 2).sum() / NOISE
    factor = 1.0 - DOUBT * (BINS - 1) / explained
    np.testing.assert_allclose(f, factor * whole[:BINS], atol=1e-9)
    inverse = np.linalg.inv(design.T @ design + penalty)[:BINS, :BINS]
    np.testing.assert_allclose(deviations, np.sqrt(NOISE * inverse.diagonal()), atol=1e-9)
    assert abs(f.mean()) < 1e-9


def test_ages_are_found_beside_levels_that_change():
    rng = np.random.default_rng(2)
    truth = 0.5 * np.exp(-np.arange(BINS) / 3.0)
    known = ages.nothing()
    for at, rho in stretches(rng, truth=truth, level=2.0, count=600):
        known = added(known, *sums(at, rho))
    f, deviations = fit(known, NOISE)
    # 600 * 300 / 14 rewards each, of noise .3: five deviations, one failure in a hundred thousand; what is
    # shrunk of the largest is less than a tenth of .5
    assert np.abs(f - truth + truth.mean()).max() < 5 * deviations.max() + 0.05


def test_arms_that_came_at_once_have_no_effect_of_age():
    rng, known = np.random.default_rng(3), ages.nothing()
    for number in range(40):  # what was learned of keys, or the time of day, changes with the age of all
        at = np.full(500, min(number // 3, BINS - 1))
        known = added(known, *sums(at, np.cos(number) + rng.normal(size=500)))
    f, deviations = fit(known, 1.0)
    assert np.abs(f).max() < 1e-12
    np.testing.assert_allclose(deviations, fit(ages.nothing(), 1.0)[1], err_msg="as uncertain as before")


def test_what_chance_explains_is_taken_for_nothing():
    rng, known = np.random.default_rng(4), ages.nothing()
    for at, rho in stretches(rng, truth=np.zeros(BINS), level=1.0, count=30):
        known = added(known, *sums(at, rho))
    assert not fit(known, NOISE)[0].any()
    assert fit(known, NOISE / 100.0)[0].any()


def test_what_is_given_is_checked_and_nothing_changes_nothing():
    known = ages.nothing()
    assert added(known, np.zeros(BINS), np.zeros(BINS)) is known
    with pytest.raises(InvalidShape):
        added(known, np.ones(3), np.ones(3))
    with pytest.raises(InvalidParameter):
        fit(known, 0.0)
    with pytest.raises(NonFinite):
        added(known, np.ones(BINS), np.full(BINS, np.nan))
    before = AgeNumbers(known.A.copy(), known.r.copy())
    added(known, np.ones(BINS), np.arange(BINS, dtype=float))
    np.testing.assert_array_equal(known.A, before.A)
    np.testing.assert_array_equal(known.r, before.r)
