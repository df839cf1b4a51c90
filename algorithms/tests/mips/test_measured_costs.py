"""What reads cost on this machine: within bounds whatever the clock says."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import astuple, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.mips.measured_costs import MOST_OVERHEAD, MOST_READ, USUAL, costs_of, measure
from shortlist.mips.read_costs import ReadCosts

pytestmark = pytest.mark.rest

UNIT = 1.0 / 8e9
USUAL_TIMES = {"picked": 3.5 * UNIT, "whole": 3.0 * UNIT, "search": 1_600_000.0 * UNIT}
TIMES = st.one_of(st.floats(0.0, 1e6), st.sampled_from([math.nan, math.inf, -1.0, -math.inf, 5e-324]))


def is_usual(costs: ReadCosts) -> bool:
    """Whether every cost is finite, and within the bounds around what is usual."""
    for value, usual, most in zip(
        astuple(costs), astuple(USUAL), (MOST_READ, MOST_READ, *[MOST_OVERHEAD] * 6), strict=True
    ):
        if not usual / most * 0.999 <= value <= usual * most * 1.001:
            return False
    return costs.picked >= 1.0 and costs.whole >= 1.0


@pytest.mark.parametrize(
    "clock",
    [
        lambda: 0.0,
        itertools.count(0.0, -1.0).__next__,
        itertools.count(0.0, 1e9).__next__,
        lambda: math.nan,
        np.random.default_rng(0).standard_cauchy,
    ],
    ids=["stands still", "runs backwards", "is slow", "has no time", "is noise"],
)
def test_whatever_the_clock_says_the_costs_are_within_bounds(clock):
    assert is_usual(measure(clock, np.random.default_rng(0)))


def test_this_machine_is_within_bounds():
    assert is_usual(measure(time.thread_time, np.random.default_rng(0)))


@given(unit=TIMES, picked=TIMES, whole=TIMES, search=TIMES)
def test_whatever_is_measured_the_costs_are_within_bounds(unit, picked, whole, search):
    assert is_usual(costs_of(unit, picked=picked, whole=whole, search=search))


def test_usual_times_give_the_usual_costs():
    found = costs_of(UNIT, **USUAL_TIMES)
    np.testing.assert_allclose(astuple(found), astuple(replace(USUAL, large=2e-3 / UNIT)), rtol=1e-12)


def test_costs_are_relative_to_a_scan():
    """Where a scan takes twice as long, everything else costs half, and a search counts as large sooner."""
    found = costs_of(2.0 * UNIT, **USUAL_TIMES)
    np.testing.assert_allclose(
        astuple(found), np.array(astuple(costs_of(UNIT, **USUAL_TIMES))) / 2, rtol=1e-12
    )


def test_overhead_follows_the_search():
    slow = costs_of(UNIT, **{**USUAL_TIMES, "search": 2.0 * USUAL_TIMES["search"]})
    for name in ("query", "coordinate", "arm", "decision", "check"):
        assert getattr(slow, name) == pytest.approx(2.0 * getattr(USUAL, name))
    assert (slow.picked, slow.whole) == pytest.approx((USUAL.picked, USUAL.whole))
