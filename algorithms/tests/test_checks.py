"""The checks that all algorithms share: what they let through, what they refuse, and what they say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shortlist import checks
from shortlist.errors import InvalidParameter, InvalidShape, NonFinite
from shortlist.guarantee import exactly


@pytest.mark.parametrize("expected", [(2, 3), (None, 3), (2, None), (None, None)])
def test_a_shape_that_fits_passes(expected):
    checks.shape("x", np.zeros((2, 3)), expected)


@pytest.mark.parametrize(
    ("expected", "wanted"),
    [((2, 4), "2, 4"), ((3, 3), "3, 3"), ((None, 4), "*, 4"), ((None,), "*"), ((2, 3, None), "2, 3, *")],
)
def test_a_shape_that_does_not_fit_is_named(expected, wanted):
    with pytest.raises(InvalidShape) as raised:
        checks.shape("x", np.zeros((2, 3)), expected)
    assert (raised.value.argument, str(raised.value)) == ("x", f"x must have shape ({wanted}), not (2, 3)")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_named(bad):
    checks.finite("x", np.zeros(3))
    checks.finite("x", np.zeros(0))
    with pytest.raises(NonFinite) as raised:
        checks.finite("x", np.array([0.0, bad]))
    assert (raised.value.argument, str(raised.value)) == ("x", "x must be finite")


BOUNDS = {"above": 1.0, "below": 3.0, "least": 1.5, "most": 2.5}


@pytest.mark.parametrize(
    ("names", "good", "bad", "text"),
    [
        (["above"], (1.0001, 1e300), (1.0, -5.0), "> 1"),
        (["below"], (2.9999, -1e300), (3.0, 5.0), "< 3"),
        (["least"], (1.5, 1e300), (1.4999, -1e300), ">= 1.5"),
        (["most"], (2.5, -1e300), (2.5001, 1e300), "<= 2.5"),
        (["above", "below"], (2.0,), (1.0, 3.0), "> 1 and < 3"),
        (["least", "most"], (1.5, 2.5), (1.4, 2.6), ">= 1.5 and <= 2.5"),
        (["above", "most"], (1.1, 2.5), (1.0, 2.6), "> 1 and <= 2.5"),
        ([], (0.0, -1e300), (), "finite"),
    ],
)
def test_a_value_outside_of_its_range_is_named(names, good, bad, text):
    bounds = {name: BOUNDS[name] for name in names}
    for value in good:
        checks.in_range("x", value, **bounds)
    for value in (*bad, math.nan, math.inf, -math.inf):
        with pytest.raises(InvalidParameter) as raised:
            checks.in_range("x", value, **bounds)
        assert (raised.value.argument, str(raised.value)) == ("x", f"x must be {text}")


def test_an_exact_answer_is_off_by_nothing_and_never_fails():
    found = exactly("why")
    assert (found.kind, found.epsilon, found.delta, found.assumes) == ("exact", 0.0, 0.0, None)
    assert found.reason == "why"


@pytest.mark.parametrize("bad", [0.0, 5e-324, 0.999e-100, 1.0, -0.05, math.nan])
def test_the_probability_of_failure_is_not_too_small_to_be_shared(bad):
    for value in (1e-100, 0.05, 1.0 - 2.0**-53):
        checks.delta(value)
    with pytest.raises(InvalidParameter) as raised:
        checks.delta(bad)
    assert (raised.value.argument, str(raised.value)) == ("delta", "delta must be < 1 and >= 1e-100")
