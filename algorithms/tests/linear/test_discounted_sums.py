"""Ridge sums are a vector space: what is added can be taken out, and what is scaled weighs less."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.errors import InvalidParameter, InvalidShape
from shortlist.linear import ridge_sums
from shortlist.linear.discounted_sums import minus, plus, scaled, weight

DIM = 4


def sums_of(rows, values):
    return ridge_sums.add(ridge_sums.empty(DIM), rows, values, np.ones(len(values), dtype=bool))


def some(seed, n):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, DIM)), rng.standard_normal(n)


def value(sums):
    """The sums themselves, without their error terms: gram and moment."""
    return sums.total - sums.error


def assert_close(found, expected):
    np.testing.assert_allclose(value(found), value(expected), rtol=1e-13, atol=1e-13)
    squares = expected.squares - expected.squares_error
    assert found.squares - found.squares_error == pytest.approx(squares, rel=1e-13, abs=1e-13)
    assert (found.observations, found.weight) == (expected.observations, expected.weight)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 30))
def test_what_was_added_can_be_taken_out(seed, n, m):
    (X, r), (Y, s) = some(seed, n), some(seed + 1, m)
    a, b, both = sums_of(X, r), sums_of(Y, s), sums_of(np.vstack((X, Y)), np.concatenate((r, s)))
    assert_close(plus(a, b), both)
    assert_close(minus(both, b), a)


@pytest.mark.rest
def test_what_is_left_of_a_large_learner_is_exact():
    """Compensated: taking 10^8 out of 10^8 + 1 leaves 1, where plain sums keep seven digits."""
    small, large = sums_of(*some(1, 3)), sums_of(*(1e4 * part for part in some(2, 50)))
    left, right = minus(plus(small, large), large), small
    np.testing.assert_allclose(value(left), value(right), rtol=1e-12)
    plain = (small.total + large.total) - large.total
    assert np.abs(plain - small.total).max() > 1e3 * np.abs(value(left) - small.total).max()


def test_scaling_is_that_of_the_weighted_sums():
    X, r = some(3, 20)
    half = scaled(sums_of(X, r), 0.5)
    first, halves = np.ones(20, dtype=bool), np.full(20, 0.5)
    assert_close(half, ridge_sums.add(ridge_sums.empty(DIM), X, r, first, (np.ones(20), halves)))
    assert half.weight == 10.0
    assert scaled(half, 1.0) is half
    assert not scaled(half, 0.0).gram.any()


def test_a_weight_halves_with_every_half_life():
    assert [weight(ms, 2.0) for ms in (0, 2_000, 4_000, -5)] == [1.0, 0.5, 0.25, 1.0]
    assert weight(2**62, 1.0) == 0.0


@pytest.mark.rest
def test_arguments_are_checked():
    a = ridge_sums.empty(3)
    with pytest.raises(InvalidShape):
        plus(a, ridge_sums.empty(4))
    for call in (lambda: scaled(a, -1), lambda: weight(1, 0.0)):
        with pytest.raises(InvalidParameter):
            call()
