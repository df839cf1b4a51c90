"""Confidence sequences: the mixture against an integral, pieces, edges and bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate

from shortlist.errors import InvalidArgument, InvalidParameter, InvalidShape, NonFinite
from shortlist.evaluation import asymptotic_confidence_sequence as asymptotic
from shortlist.evaluation import confidence_sequence as bounded
from shortlist.evaluation.asymptotic_confidence_sequence import MIN_REWARDS, Unbounded


@pytest.mark.parametrize("rho", [0.7, 3.0, 40.0])
@pytest.mark.parametrize(("s", "v"), [(0.0, 0.0), (0.5, 0.25), (6.0, 3.0), (12.0, 90.0)])
def test_the_mixture_is_the_integral_of_what_it_mixes(s: float, v: float, rho: float):
    def density(x: float) -> float:
        return (1 - x) ** (rho - 1) * math.exp(-rho * (1 - x))

    def mixed(x: float) -> float:
        return density(x) * math.exp(x * s + (math.log1p(-x) + x) * v)

    whole, _ = integrate.quad(density, 0, 1)
    expected, _ = integrate.quad(mixed, 0, 1)
    (value,), (slope,) = bounded.log_mixture(np.array([s]), np.array([v]), rho)
    assert value == pytest.approx(math.log(expected / whole), rel=1e-6, abs=1e-6)
    (more,), _ = bounded.log_mixture(np.array([s + 1e-4]), np.array([v]), rho)
    assert (more - value) / 1e-4 == pytest.approx(slope, rel=1e-3, abs=1e-4)


@given(st.floats(0, 1e7), st.floats(1e-6, 0.5))
def test_the_boundary_is_where_the_mixture_reaches_one_over_alpha(v: float, alpha: float):
    s = bounded.boundary_of(np.array([v]), alpha)
    value, _ = bounded.log_mixture(s, np.array([v]), bounded.rho_of(alpha))
    assert value[0] == pytest.approx(-math.log(alpha), abs=1e-5)


@pytest.mark.rest
def test_the_boundary_is_that_of_confseq():
    boundaries = pytest.importorskip(
        "confseq.boundaries", reason="confseq is not installed: it has no wheel for every Python"
    )
    v = np.array([1.0, 30.0, 500.0, 1e5])
    theirs = boundaries.gamma_exponential_mixture_bound(v, 0.025, 250.0, 1.0, 0.025)
    assert bounded.boundary_of(v, 0.025) == pytest.approx(theirs, rel=1e-6)


@given(st.lists(st.lists(st.floats(-2, 5), max_size=20), max_size=6))
def test_pieces_are_the_whole(pieces: list[list[float]]):
    values = np.array([value for piece in pieces for value in piece])
    group, other = bounded.start(-2, 5), Unbounded()
    for piece in pieces:
        group = bounded.add(group, np.array(piece))
        other = asymptotic.add(other, np.array(piece))
    whole, whole_other = bounded.add(bounded.start(-2, 5), values), asymptotic.add(Unbounded(), values)
    assert (group.count, other.count) == (len(values), len(values))
    assert group.total == pytest.approx(whole.total)
    assert group.spread == pytest.approx(whole.spread, abs=1e-9)
    assert other.scatter == pytest.approx(whole_other.scatter, abs=1e-9)
    assert (other.low, other.high) == (whole_other.low, whole_other.high)
    if len(values):
        assert group.mean == pytest.approx(values.mean(), abs=1e-9)
        assert other.scatter == pytest.approx(values.var() * len(values), abs=1e-9)
        low, high = group.interval()
        assert -2 <= low <= high <= 5


def test_one_reward_after_the_other_by_the_definition():
    values = np.random.default_rng(3).integers(0, 2, 300).astype(float)
    group, total, spread = bounded.start(0, 1), 0.0, 0.0
    for number, value in enumerate(values.tolist()):
        spread += (value - (0.5 + total) / (number + 1)) ** 2
        total += value
        group = bounded.add(group, np.array([value]))
    assert group.spread == pytest.approx(spread)
    assert group.total == total


@pytest.mark.rest
def test_a_wider_range_keeps_the_rewards_and_their_distances_from_the_guesses():
    values = np.random.default_rng(6).random(400)
    group = bounded.add(bounded.start(0, 1), values)
    wide = bounded.widened(group, -1, 4)
    assert wide.mean == pytest.approx(values.mean())
    assert (wide.count, wide.spread) == (400, pytest.approx(group.spread / 25))
    whole = bounded.add(bounded.start(-1, 4), values)
    assert wide.spread == pytest.approx(whole.spread, rel=0.1)  # but for the first guesses
    assert wide.interval() == pytest.approx(whole.interval(), abs=0.01)
    assert bounded.widened(group, 0, 1) == group
    for low, high in ((0.1, 1), (0, 0.9), (-math.inf, 1)):
        with pytest.raises(InvalidParameter):
            bounded.widened(group, low, high)


@pytest.mark.rest
def test_intervals_narrow_and_a_higher_level_is_wider():
    values = np.random.default_rng(5).random(100_000)
    for start, add, shortest in (
        (bounded.start(0, 1), bounded.add, 100),
        (Unbounded(), asymptotic.add, MIN_REWARDS),
    ):
        widths = []
        for count in (shortest, 1_000, 10_000, 100_000):
            low, high = add(start, values[:count]).interval()
            assert low < 0.5 < high
            lower, higher = add(start, values[:count]).interval(level=0.99)
            assert lower < low < high < higher
            widths.append((high - low) / (2 * 1.96 * values.std() / math.sqrt(count)))
        assert max(widths) < 3.5  # times the width of the interval of one look
        assert min(widths) > 1.2


@pytest.mark.rest
@pytest.mark.parametrize(
    ("values", "error"),
    [
        ([0.5, 1.5], InvalidParameter),
        ([-0.1], InvalidParameter),
        ([np.nan], NonFinite),
        ([[1.0]], InvalidShape),
    ],
)
def test_bad_rewards_are_named(values, error):
    with pytest.raises(error, match="values"):
        bounded.add(bounded.start(0, 1), np.array(values))


@pytest.mark.rest
def test_bad_bounds_and_levels_are_named():
    for low, high in ((1, 1), (2, 1), (0, math.inf), (math.nan, 1)):
        with pytest.raises(InvalidParameter):
            bounded.start(low, high)
    with pytest.raises(NonFinite):
        asymptotic.add(Unbounded(), np.array([np.inf]))
    group, other = bounded.start(0, 1), asymptotic.add(Unbounded(), np.arange(200.0))
    for level in (0.0, 1.0, math.nan):
        for ask in (group.interval, other.interval):
            with pytest.raises(InvalidArgument, match="level"):
                ask(level=level)
        with pytest.raises(InvalidArgument, match="level"):
            bounded.difference(group, group, level=level)
        with pytest.raises(InvalidArgument, match="level"):
            asymptotic.difference(other, other, level=level)
