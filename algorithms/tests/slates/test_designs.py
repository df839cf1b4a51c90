"""Designs of slates: optimal, rounded, the same for the same seed."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_allocation import vectors

from matroid_instances import MATROIDS, bases
from shortlist.errors import InvalidParameter
from shortlist.slates import allocation, exhaustive
from shortlist.slates.allocation import UNIFORM, design_of, g_optimal, rounded, slates
from shortlist.slates.certified_bounds import upper_bound
from shortlist.slates.matroids import PartitionMatroid, UniformMatroid, unseen

pytestmark = pytest.mark.rest


def test_uniform_shows_every_arm_and_every_pair_equally_often():
    n, k, pulls = 10, 3, 30_000
    x = vectors(slates(UNIFORM, UniformMatroid(n, k), 3, np.arange(n, n + pulls)), n)
    A = x.T @ x
    assert np.diag(A) == pytest.approx(np.full(n, pulls * k / n), rel=0.01)
    pairs = A[np.triu_indices(n, 1)]
    expected = pulls * k * (k - 1) / (n * (n - 1))
    # Each count has standard deviation below sqrt(expected): 6 of them, 45 pairs, false alarm below 1e-7.
    assert np.abs(pairs - expected).max() < 6 * np.sqrt(expected)
    W = np.linalg.inv(A / pulls)
    assert (np.linalg.eigvalsh(W)[-1] * k) == pytest.approx(n * (n - 1) / (n - k), rel=0.05)


def test_g_reaches_the_optimum_on_its_support_and_beats_equal_weights():
    n, k = 12, 3
    support = np.unique(slates(UNIFORM, UniformMatroid(n, k), 1, np.arange(6 * n)), axis=0)
    weights, value = g_optimal(support, n, np.zeros((n, 0)))
    assert weights.sum() == pytest.approx(1.0)
    assert n - 1e-9 <= value <= n * 1.02 + 1e-9
    x = vectors(support, n)
    spread = ((x @ np.linalg.inv((x * weights[:, None]).T @ x)) * x).sum(axis=1).max()
    assert spread == pytest.approx(value)
    assert ((x @ np.linalg.inv(x.T @ x / len(x))) * x).sum(axis=1).max() > value


def test_g_is_invertible_in_every_period():
    n, k = 9, 4
    design = design_of("g", UniformMatroid(n, k), 2)
    period = int(design.counts.sum())
    assert design.counts.min() >= 1
    orders = set()
    for first in (0, period, 7 * period):
        shown = slates(design, UniformMatroid(n, k), 2, np.arange(first, first + period))
        orders.add(shown.tobytes())
        found, counts = np.unique(shown, axis=0, return_counts=True)
        assert (found == design.support).all()
        assert (counts == design.counts).all()
    assert len(orders) == 3, "each period has an order of its own"
    assert np.linalg.matrix_rank(vectors(design.support, n)) == n


@pytest.mark.parametrize("support", [[[0, 1], [2, 3]], [[0, 1], [1, 2], [2, 3], [0, 3]], [[0, 1]] * 9])
def test_a_support_that_cannot_be_inverted_is_refused(support):
    with pytest.raises(InvalidParameter, match="linearly independent"):
        g_optimal(np.array(support), 4, np.zeros((4, 0)))


def test_g_is_refused_for_many_arms():
    with pytest.raises(InvalidParameter) as raised:
        design_of("g", UniformMatroid(allocation.MOST_G_ARMS + 1, 3), 1)
    assert raised.value.argument == "allocation"


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=30), st.integers(1, 20))
@settings(max_examples=80)
def test_rounding_keeps_the_total_and_every_slate(shares, times):
    weights = np.array(shares) / sum(shares)
    total = times * len(weights)
    counts = rounded(weights, total)
    assert counts.sum() == total
    assert counts.min() >= 1
    assert (np.abs(counts - total * weights) <= len(weights)).all()
    # What makes an apportionment efficient: no slate could give one up for another to gain.
    assert ((counts - 1) / weights).max() <= (counts / weights).min() * (1 + 1e-12)


def test_shuffles_are_uniform():
    """Each of the 24 orders of 4 arms has 1/24: chi-square with 23 degrees, false alarm 1e-6 at 75."""
    order = allocation.shuffles(9, np.arange(24_000), 4)
    _, counts = np.unique(order @ np.array([64, 16, 4, 1]), return_counts=True)
    assert len(counts) == 24
    assert ((counts - 1_000) ** 2 / 1_000).sum() < 75


def test_the_criterion_of_g_bounds_every_slate_and_a_small_support_shows():
    n, k = 8, 3
    chi = exhaustive.all_slates(n, k)
    for support in (2, 12):
        design = design_of("g", UniformMatroid(n, k), 4, support)
        x = np.repeat(vectors(design.support, n), design.counts, axis=0)
        W = np.linalg.inv(x.T @ x / len(x))
        most = ((chi @ W) * chi).sum(axis=1).max()
        assert n - 1e-9 <= most <= design.criterion <= 1.3 * most
        assert (design.criterion > 2 * n) == (support == 2)


@pytest.mark.parametrize(
    ("sizes", "limits"), [((2, 8), (2, 3)), ((1, 8, 1), (1, 3, 1)), ((6, 2, 1), (2, 1, 1))]
)
def test_the_criterion_of_g_leaves_out_what_no_slate_sees(sizes, limits):
    """Full groups are components. Between them A has no inverse: its pseudo-inverse is 0 there.

    With 1 in place of 0 the bound is a seventh larger.
    """
    matroid = PartitionMatroid(tuple(np.repeat(np.arange(len(sizes)), sizes).tolist()), limits, sum(limits))
    hidden = unseen(matroid)
    assert hidden.shape[1] >= len(sizes) - 1
    design = design_of("g", matroid, 4)
    x = vectors(design.support, matroid.n)
    shares = design.counts / design.counts.sum()
    W = np.linalg.pinv((x * shares[:, None]).T @ x, hermitian=True, rcond=1e-9)
    assert design.criterion == pytest.approx(upper_bound(W, matroid.k), rel=0.01)
    assert upper_bound(W + hidden @ hidden.T, matroid.k) > 1.1 * design.criterion


@pytest.mark.parametrize("name", MATROIDS)
def test_the_criterion_of_g_bounds_every_slate_of_a_matroid(name):
    matroid = MATROIDS[name]
    design = design_of("g", matroid, 4)
    x = vectors(design.support, matroid.n)
    shares = design.counts / design.counts.sum()
    W = np.linalg.pinv((x * shares[:, None]).T @ x, hermitian=True, rcond=1e-9)
    every = bases(matroid)
    most = ((every @ W) * every).sum(axis=1).max()
    assert matroid.n - unseen(matroid).shape[1] - 1e-9 <= most <= design.criterion * (1 + 1e-9)


class AskedOnly:
    """A matroid that answers only what its protocol asks."""

    def __init__(self, matroid):
        self.n, self.k, self.best, self.has = matroid.n, matroid.k, matroid.best, matroid.has


@pytest.mark.parametrize("name", ["two of each", "one of each", "alone", "every group full"])
def test_the_slates_of_a_matroid_do_not_depend_on_how_they_are_computed(name):
    """By calls of its oracle, or for many orders of the arms at once."""
    matroid, pulls = MATROIDS[name], np.arange(60)
    shown = slates(UNIFORM, matroid, 7, pulls)
    assert slates(UNIFORM, AskedOnly(matroid), 7, pulls).tolist() == shown.tolist()


@pytest.mark.parametrize("name", ["g", "xy"])
def test_a_design_is_rounded_over_the_first_slates_of_uniform(name):
    """12 slates an arm, a period of ten pulls for each that differs."""
    n, k = 5, 2
    design = design_of(name, UniformMatroid(n, k), 3)
    shown = slates(UNIFORM, UniformMatroid(n, k), 3, np.arange(12 * n))
    assert design.support.tolist() == np.unique(shown, axis=0).tolist()
    assert design.counts.sum() == 10 * len(design.support)


@pytest.mark.parametrize("name", ["g", "xy"])
def test_an_optimal_design_is_for_as_many_arms_as_its_limit_says(monkeypatch, name):
    limited = dataclasses.replace(allocation._OPTIMAL[name], most_arms=6)
    monkeypatch.setitem(allocation._OPTIMAL, name, limited)
    assert len(design_of(name, UniformMatroid(6, 2), 5).support)
    with pytest.raises(InvalidParameter, match=f"allocation {name} is for at most 6 arms"):
        design_of(name, UniformMatroid(7, 2), 5)


@pytest.mark.parametrize("name", ["g", "xy"])
def test_an_optimal_design_is_over_the_first_twelve_slates_an_arm(name):
    matroid = UniformMatroid(11, 5)
    first = {tuple(row) for row in slates(UNIFORM, matroid, 5, np.arange(12 * 11)).tolist()}
    assert {tuple(row) for row in design_of(name, matroid, 5).support.tolist()} == first
