"""The intervals: the roots they claim, their printed values, and their sides of caution."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.errors import InvalidParameter
from shortlist.kcenter import intervals


def divergence(p, q):
    terms = ((p, q), (1.0 - p, 1.0 - q))
    return sum(a * math.log(a / b) if a > 0.0 else 0.0 for a, b in terms)


def bounds(mean, t, j=None, share=1e-4):
    found = intervals.kl(np.array([mean]), np.array([t]), np.array([j or t]), share)
    return float(found[0][0]), float(found[1][0])


@settings(max_examples=200)
@given(
    mean=st.one_of(st.floats(0.0, 1.0), st.sampled_from([0.0, 1.0, 1e-12, 1 - 1e-12, 0.5])),
    t=st.integers(1, 20_000),
    share=st.floats(1e-12, 0.5),
)
def test_kl_bounds_are_the_roots_and_never_inside_them(mean, t, share):
    lower, upper = bounds(mean, t, share=share)
    allowed = (math.log(11.001 / share) + 1.1 * math.log(t)) / t
    assert 0.0 <= lower <= mean <= upper <= 1.0
    for bound, end in ((lower, 0.0), (upper, 1.0)):
        if min(abs(bound - end), abs(bound - mean)) > 1e-9:
            assert divergence(mean, bound) >= allowed * (1 - 1e-6)
            inner = bound + (2e-6 if end == 0.0 else -2e-6)
            assert abs(inner - 0.5) > 0.5 or abs(inner - mean) < 2e-6 or divergence(mean, inner) <= allowed


@pytest.mark.rest
def test_kl_of_extreme_means_has_a_closed_form():
    allowed = (math.log(11.001 / 1e-4) + 1.1 * math.log(50)) / 50
    assert bounds(0.0, 50) == pytest.approx((0.0, 1.0 - math.exp(-allowed)), abs=1e-9)
    assert bounds(1.0, 50) == pytest.approx((math.exp(-allowed), 1.0), abs=1e-9)


@pytest.mark.rest
def test_printed_widths():
    """MATH of Equations 9 and 22 by hand: n = 200, delta = 0.1, as the paper's experiments."""
    t = np.array([2000])
    assert intervals.lil(t, 0.1 / 200**2)[0] == pytest.approx(
        math.sqrt(2 * 2 * math.log(125 * math.log(1.12 * 2000) / (0.1 / 200**2)) / 2000)
    )
    assert 0.18 < intervals.lil(t, 0.1 / 200**2)[0] < 0.22
    wanted = math.sqrt(0.1 * math.log(1 + (1 + math.log(2000)) * 200**2 / 0.1) / 2000)
    assert intervals.experiment(t, 200, 0.1, 0.1)[0] == pytest.approx(wanted)


@pytest.mark.rest
def test_gaussian_widths():
    t = np.array([1, 9])
    lower, upper = intervals.gaussian(np.array([0.0, 2.0]), t, 0.25, 1e-3)
    radius = [math.sqrt(0.5 * (math.log(11.001e3) + 1.1 * math.log(count)) / count) for count in t]
    np.testing.assert_allclose(upper, np.array([0.0, 2.0]) + radius)
    np.testing.assert_allclose(lower, np.array([0.0, 2.0]) - radius)


@pytest.mark.rest
def test_the_exploration_of_all_looks_sums_to_less_than_its_share():
    looks = np.arange(1, 1_000_001)
    head = float(np.exp(-intervals.level(looks, 0.3)).sum())
    tail = 0.3 / 11.001 * 1_000_000**-0.1 / 0.1
    assert head + tail < 0.3


@pytest.mark.rest
def test_only_a_tolerance_makes_all_pairs_count():
    assert intervals.sides(1000, 3, 0.0) == 6000
    assert intervals.sides(1000, 3, 0.01) == 999_000


@pytest.mark.rest
@pytest.mark.parametrize(
    ("change", "name"), [({"kind": "bayes"}, "ci"), ({"delta": 0.0}, "delta"), ({"delta": 1.0}, "delta"),
                         ({"c_alpha": 0.0}, "c_alpha"), ({"delta": np.nan}, "delta")]
)  # fmt: skip
def test_bad_parameters_are_named(change, name):
    options = {"kind": "kl", "delta": 0.1, "n": 5, "k": 2, "epsilon": 0.0, "c_alpha": 0.1} | change
    with pytest.raises(InvalidParameter, match=name):
        intervals.interval(options.pop("kind"), **options)
