"""Learners carried to other features: exact where the new ones are linear in the old, honest where not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.linear import bilinear, feature_map, ridge, ridge_sums
from shortlist.linear.feature_map import agreement, carried, carried_each, fit, of_learner

SEEDS = st.integers(0, 2**32 - 1)


def learned(rng, features, *, signals=1, weights=None):
    """Sums of 60 rewards of random arms; and which arms, and the rewards."""
    rows = rng.integers(len(features), size=60)
    values = rng.standard_normal((60, signals)) if signals > 1 else rng.standard_normal(60)
    first = np.ones(60, dtype=bool)
    return ridge_sums.of(features[rows], values, first, weights), rows, values


def numbers(sums):
    """All that a learner knows."""
    return [sums.gram, sums.moments, sums.products, np.array([sums.weight, sums.observations])]


def assert_close(one, other, tolerance=1e-8):
    for a, b in zip(numbers(one), numbers(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, np.abs(b).max()))


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(1, 6), st.integers(1, 9), st.integers(1, 3))
def test_where_the_new_features_are_linear_it_is_as_if_they_had_been_there_from_the_start(
    seed, dim, new_dim, signals
):
    rng = np.random.default_rng(seed)
    old = rng.standard_normal((80, dim))
    new = old @ rng.standard_normal((dim, new_dim))
    found = fit(old, new, rng.random(80) + 0.1, intercept=False)
    assert found.r2 == pytest.approx(1.0, abs=1e-6)
    sums, rows, values = learned(rng, old, signals=signals)
    anew = ridge_sums.of(new[rows], values, np.ones(60, dtype=bool))
    assert_close(carried(sums, of_learner(found)), anew, 1e-6)


@pytest.mark.rest
@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(1, 5), st.integers(1, 5))
def test_an_intercept_takes_up_what_all_arms_were_moved_by(seed, dim, new_dim):
    rng = np.random.default_rng(seed)
    old = rng.standard_normal((80, dim))
    new = old @ rng.standard_normal((dim, new_dim)) + 3.0 * rng.standard_normal(new_dim)
    found = fit(old, new, np.ones(80), intercept=True)
    before, after = np.column_stack((old, np.full(80, 0.7))), np.column_stack((new, np.full(80, 1.9)))
    sums, rows, values = learned(rng, before)
    anew = ridge_sums.of(after[rows], values, np.ones(60, dtype=bool))
    assert_close(carried(sums, of_learner(found, constants=(0.7, 1.9))), anew, 1e-6)
    np.testing.assert_allclose(found(old), new, atol=1e-6)


@pytest.mark.rest
def test_the_numbers_of_a_context_stay_where_the_directions_follow_the_features():
    rng = np.random.default_rng(5)
    old = rng.standard_normal((80, 6))
    new = old @ rng.standard_normal((6, 6))
    found, back = (fit(*pair, np.ones(80), intercept=False) for pair in ((old, new), (new, old)))
    directions = rng.standard_normal((2, 6))
    contexts = rng.standard_normal((80, 3))
    before = bilinear.phi(old, directions, contexts)
    after = bilinear.phi(new, directions @ back.linear, contexts)
    sums, rows, values = learned(rng, before)
    anew = ridge_sums.of(after[rows], values, np.ones(60, dtype=bool))
    assert_close(carried(sums, of_learner(found, interactions=6)), anew, 1e-6)


@pytest.mark.rest
@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_the_map_is_the_least_squares_solution_written_out(seed, dim, new_dim, intercept):
    """At the ridge that was chosen nothing is left of the gradient, and no other of the grid does better."""
    rng = np.random.default_rng(seed)
    old, new, weights = (
        rng.standard_normal((30, dim)),
        rng.standard_normal((30, new_dim)),
        rng.random(30) + 0.01,
    )
    found = fit(old, new, weights, intercept=intercept)
    share = weights / weights.sum()
    centered = old - share @ old if intercept else old
    mean = np.trace((share[:, None] * centered).T @ centered) / dim

    def solved(kept, ridge_of_it):
        """(C, b) of these arms by the normal equations of [x ; 1]."""
        x = np.column_stack((old, np.ones(30))) if intercept else old
        penalty = ridge_of_it * np.diag([1.0] * dim + [0.0] * intercept)
        scaled = share[kept, None] * x[kept]
        return np.linalg.solve(scaled.T @ x[kept] + penalty, scaled.T @ new[kept]).T

    def press(ridge_of_it):
        left = 0.0
        for row in range(30):
            kept = np.arange(30) != row
            own = solved(kept, ridge_of_it)
            x = np.append(old[row], 1.0) if intercept else old[row]
            left += share[row] * np.sum((own @ x - new[row]) ** 2)
        return left

    ridges = feature_map.RIDGES * mean
    chosen = min(ridges, key=press)
    expected = solved(np.ones(30, dtype=bool), chosen)
    np.testing.assert_allclose(found.linear, expected[:, :dim], atol=1e-6)
    if intercept:
        np.testing.assert_allclose(found.shift, expected[:, dim], atol=1e-6)


@pytest.mark.rest
def test_unrelated_features_explain_nothing_however_many_they_are():
    """With as many arms as twice the dimension plain least squares would claim a half."""
    rng = np.random.default_rng(7)
    old, new = rng.standard_normal((400, 200)), rng.standard_normal((400, 8))
    plain = np.linalg.lstsq(old, new, rcond=None)[0]
    assert 1.0 - np.sum((new - old @ plain) ** 2) / np.sum(new**2) > 0.4
    assert fit(old, new, np.ones(400), intercept=True).r2 < 0.02


@pytest.mark.rest
def test_a_carried_learner_estimates_what_the_learner_did():
    rng = np.random.default_rng(13)
    old = rng.standard_normal((200, 6))
    turn = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    new = old @ turn
    sums, _, _ = learned(rng, old)
    found = fit(old, new, np.ones(200), intercept=False)
    before = ridge.posterior(sums, ridge=1.0).theta @ old.T
    after = ridge.posterior(carried(sums, of_learner(found)), ridge=1.0).theta @ new.T
    assert agreement(before[None], after[None]) == pytest.approx(1.0, abs=1e-6)
    wrong = ridge.posterior(sums, ridge=1.0).theta @ new.T
    assert abs(agreement(before[None], wrong[None])) < 0.9


@pytest.mark.rest
def test_carrying_is_the_same_to_the_bit_and_changes_nothing_that_it_is_given():
    rng = np.random.default_rng(17)
    sums, _, _ = learned(rng, rng.standard_normal((20, 5)), signals=3)
    kept = sums.total.copy(), sums.more.copy()
    transform = rng.standard_normal((7, 5))
    one, other = carried(sums, transform), carried(sums, transform)
    assert one.total.tobytes() == other.total.tobytes()
    assert one.more.tobytes() == other.more.tobytes()
    assert (sums.total == kept[0]).all()
    assert (sums.more == kept[1]).all()
    assert (one.dim, one.signals) == (7, 3)


@pytest.mark.rest
@pytest.mark.parametrize(("dim", "new_dim", "signals"), [(1, 3, 1), (5, 7, 1), (33, 33, 1), (33, 20, 3)])
def test_each_learner_is_carried_as_it_is_alone_to_the_bit(dim, new_dim, signals):
    """The fold carries one, a worker many: a replay compares their bytes."""
    rng = np.random.default_rng(19)
    sums = [learned(rng, rng.standard_normal((20, dim)), signals=signals)[0] for _ in range(9)]
    sums = [ridge_sums.add(each, *one_row(rng, dim, signals)) for each in sums]  # so that errors are not 0
    transform, root = rng.standard_normal((new_dim, dim)), rng.standard_normal((new_dim, new_dim))
    how = transform, root @ root.T, dim
    together = carried_each(sums, *how)
    assert [each.total.any() for each in together] == [True] * 9
    for own, each in zip(sums, together, strict=True):
        alone = carried(own, *how)
        assert (alone.total.tobytes(), alone.more.tobytes()) == (each.total.tobytes(), each.more.tobytes())
        assert (alone.observations, alone.weight) == (each.observations, each.weight)
        exact = replace(own, more=own.more - own.more_error, more_error=0.0 * own.more)
        np.testing.assert_allclose(each.moments[1:], exact.moments[1:] @ transform.T, rtol=1e-12)
        np.testing.assert_allclose(each.products, exact.products, rtol=1e-15)
    assert carried_each([], *how) == []


def one_row(rng, dim, signals):
    values = rng.standard_normal((1, signals)) if signals > 1 else rng.standard_normal(1)
    return rng.standard_normal((1, dim)), values, np.ones(1, dtype=bool)


@pytest.mark.rest
def test_carried_sums_vary_as_the_new_features_do():
    """Where the map leaves something open, G' has the size of what a learner of the new features has."""
    rng = np.random.default_rng(8)
    old = rng.standard_normal((4_000, 3))
    new = old @ rng.standard_normal((3, 5)) + rng.standard_normal((4_000, 5)) @ rng.standard_normal((5, 5))
    found = fit(old, new, np.ones(4_000), intercept=False)
    values, first = old[:, 0], np.ones(4_000, dtype=bool)
    sums, anew = ridge_sums.of(old, values, first), ridge_sums.of(new, values, first)
    whole = carried(sums, of_learner(found), found.residual, 3)
    np.testing.assert_allclose(whole.gram, anew.gram, rtol=0.0, atol=0.01 * np.abs(anew.gram).max())
    without = carried(sums, of_learner(found))
    assert np.abs(without.gram - anew.gram).max() > 0.1 * np.abs(anew.gram).max()
    # so estimates are those of a learner of the new features, and are not stretched
    theta, true = (ridge.posterior(each, ridge=1.0).theta for each in (whole, anew))
    np.testing.assert_allclose(new @ theta, new @ true, atol=0.05 * np.abs(new @ true).max())
    one, other = (ridge_sums.of(old[part], values[part], first[part]) for part in (slice(9), slice(9, None)))
    parts = [carried(each, of_learner(found), found.residual, 3).gram for each in (one, other)]
    np.testing.assert_allclose(parts[0] + parts[1], whole.gram, rtol=1e-9, atol=1e-6)


def test_carried_sums_have_the_size_of_the_new_features_however_far_the_old_ones_are_from_0():
    """What the map leaves open is spread by the whole length of the old features, as it was measured."""
    rng = np.random.default_rng(9)
    old = 4.0 + rng.standard_normal((2_000, 3))
    new = old @ rng.standard_normal((3, 4)) + 2.0 * rng.standard_normal((2_000, 4))
    found = fit(old, new, np.ones(2_000), intercept=True)
    seen, shown = (np.hstack((each, np.ones((2_000, 1)))) for each in (old, new))
    sums, anew = (ridge_sums.of(each, old[:, 0], np.ones(2_000, dtype=bool)) for each in (seen, shown))
    whole = carried(sums, of_learner(found, constants=(1.0, 1.0)), found.residual, 3)
    np.testing.assert_allclose(whole.gram, anew.gram, rtol=0.0, atol=0.01 * np.abs(anew.gram).max())
