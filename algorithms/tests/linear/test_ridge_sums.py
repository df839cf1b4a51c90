"""The sums of ridge regression: the same to the bit for any batching, and compensated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folds import fold
from shortlist.errors import InvalidShape, NonFinite
from shortlist.linear import ridge_sums
from shortlist.linear.discounted_sums import scaled


@settings(max_examples=60)
@given(data=st.data(), dim=st.integers(1, 6), rows=st.integers(0, 40))
def test_the_sums_are_the_same_to_the_bit_however_the_log_is_cut(data, dim, rows):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    features = rng.standard_normal((rows, dim)) * 10.0 ** rng.integers(-8, 8, (rows, 1))
    values = rng.standard_normal(rows)
    first = rng.random(rows) < 0.7
    cuts = tuple(sorted(data.draw(st.lists(st.integers(0, rows), max_size=6))))
    whole, cut = fold(features, values, first), fold(features, values, first, cuts)
    for name in ("total", "error"):
        assert getattr(whole, name).tobytes() == getattr(cut, name).tobytes(), name
    assert (whole.squares, whole.squares_error) == (cut.squares, cut.squares_error)
    assert whole.observations == cut.observations == whole.weight == cut.weight == np.count_nonzero(first)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    dim=st.integers(1, 6),
    learners=st.integers(1, 7),
    rows=st.integers(0, 60),
    block=st.sampled_from([1, 40, 1 << 14]),
)
def test_learners_that_are_added_to_together_are_as_those_added_to_alone(*, seed, dim, learners, rows, block):
    rng = np.random.default_rng(seed)
    before = [
        fold(rng.standard_normal((n, dim)), rng.standard_normal(n)) for n in rng.integers(0, 4, learners)
    ]
    owners = rng.integers(0, rng.integers(1, learners + 1), rows)
    features = rng.standard_normal((rows, dim)) * 10.0 ** rng.integers(-8, 8, (rows, 1))
    values, first = rng.standard_normal(rows), rng.random(rows) < 0.7
    parts = ridge_sums.Parts(block_terms=block)
    found = ridge_sums.add_each(before, owners, features, values, first, parts=parts)
    for owner, (sums, together) in enumerate(zip(before, found, strict=True)):
        mine = owners == owner
        alone = ridge_sums.add(sums, features[mine], values[mine], first[mine])
        assert together.total.tobytes() == alone.total.tobytes()
        assert together.error.tobytes() == alone.error.tobytes()
        assert (together.squares, together.squares_error) == (alone.squares, alone.squares_error)
        assert (together.observations, together.weight) == (alone.observations, alone.weight)


@pytest.mark.rest
def test_sums_are_compensated_by_the_rule_of_kahan():
    """Against a plain loop over the entries, to the bit."""
    rng = np.random.default_rng(4)
    features, values = rng.standard_normal((50, 3)), rng.standard_normal(50)
    first = rng.random(50) < 0.7
    total, error = np.zeros((3, 4)), np.zeros((3, 4))
    for x, r, counted in zip(features, values, first, strict=True):
        for i in range(3):
            for j, y in enumerate([*(x * counted), r]):
                term = x[i] * y - error[i, j]
                grown = total[i, j] + term
                error[i, j] = (grown - total[i, j]) - term
                total[i, j] = grown
    found = fold(features, values, first)
    lower = np.tril_indices(3)
    assert found.total.tobytes() == np.append(total[:, :3][lower], total[:, 3]).tobytes()
    assert found.error.tobytes() == np.append(error[:, :3][lower], error[:, 3]).tobytes()
    assert found.gram.tobytes() == total[:, :3].tobytes()
    assert found.moment.tobytes() == total[:, 3].tobytes()
    assert found.dim == 3


def test_a_further_reward_moves_only_the_moment():
    features = np.array([[1.0, 2.0], [1.0, 2.0]])
    sums = fold(features, np.array([1.0, 5.0]), np.array([True, False]))
    assert sums.gram.tolist() == [[1.0, 2.0], [2.0, 4.0]]
    assert sums.moment.tolist() == [6.0, 12.0]
    assert sums.observations == sums.weight == 1


@pytest.mark.rest
@pytest.mark.parametrize("dim", [1, 5, 40, 200])
def test_discounts_are_those_of_scaled_sums_to_the_bit(dim):
    """However many rows are added at once; a factor of 1 changes nothing. Rows count by their weights."""
    rng = np.random.default_rng(8)
    rows = 30
    features, values = rng.normal(size=(rows, dim)), rng.normal(size=rows)
    first, factors = rng.random(rows) < 0.7, np.where(rng.random(rows) < 0.4, 1.0, rng.random(rows))
    weights = np.where(rng.random(rows) < 0.4, 1.0, rng.random(rows))
    before = fold(features[:5], values[:5])
    at_once = ridge_sums.add(before, features, values, first, (factors, weights))
    one_by_one, counted = before, 5.0
    roots = np.sqrt(weights)
    features, values = roots[:, None] * features, roots * values
    for n in range(rows):
        row = slice(n, n + 1)
        one_by_one = ridge_sums.add(scaled(one_by_one, factors[n]), features[row], values[row], first[row])
        counted = counted * factors[n] + weights[n] * first[n]
    assert at_once.total.tobytes() == one_by_one.total.tobytes()
    assert at_once.error.tobytes() == one_by_one.error.tobytes()
    assert at_once.squares == pytest.approx(one_by_one.squares, rel=1e-14)
    assert at_once.observations == one_by_one.observations == 5 + np.count_nonzero(first)
    assert at_once.weight == counted


@pytest.mark.rest
@pytest.mark.parametrize("dim", [2, 130])
@pytest.mark.parametrize("half", [1.0, 0.5])
def test_squares_are_those_of_what_each_decision_earned_in_all(dim, half):
    """In any order of rewards: those of decision 0 are 3, -1 and 4, of decision 1 are 2 and 5."""
    earned = {}
    rows = [(0, 3.0), (1, 2.0), (0, -1.0), (1, 5.0), (0, 4.0)]
    before, first = [], []
    for decision, value in rows:
        first.append(decision not in earned)
        before.append(earned.get(decision, 0.0))
        earned[decision] = before[-1] + value
    words = np.ones((5, dim)), np.array([value for _, value in rows]), np.array(first)
    discounts = np.ones(5), np.full(5, half)
    found = ridge_sums.add(ridge_sums.empty(dim), *words, discounts, before=np.array(before))
    assert found.squares == half * (6.0**2 + 7.0**2)
    assert ridge_sums.of(*words, discounts[1], before=np.array(before)).squares == found.squares
    with pytest.raises(InvalidShape, match="before"):
        ridge_sums.add(ridge_sums.empty(dim), *words, before=np.ones(4))


@pytest.mark.rest
def test_squares_are_compensated_and_may_be_unknown():
    ones = np.ones((1_000, 1)), np.full(1_000, 1e-8), np.ones(1_000, dtype=bool)
    large = ridge_sums.add(ridge_sums.empty(1), np.ones((1, 1)), np.array([1e4]), np.array([True]))
    found = ridge_sums.add(large, *ones)
    assert found.squares - found.squares_error == pytest.approx(1e8)
    assert (found.squares - 1e8) - found.squares_error == pytest.approx(1e-13, rel=1e-6)
    unknown = ridge_sums.RidgeSums(large.total, large.error, 1, 1.0)
    assert math.isnan(ridge_sums.add(unknown, *ones).squares)
    beyond = ridge_sums.add(large, np.ones((1, 1)), np.array([1e200]), np.array([True]))
    assert not math.isfinite(beyond.squares)
    assert beyond.moment.tolist() == [1e200]


@pytest.mark.rest
@pytest.mark.parametrize("dim", [1, 5, 140])
def test_the_lower_gram_has_zeros_above_the_diagonal(dim):
    features = np.random.default_rng(dim).standard_normal((9, dim))
    sums = ridge_sums.of(features, features[:, 0], np.ones(9, dtype=np.bool_))
    np.testing.assert_allclose(sums.lower_gram(), np.tril(features.T @ features), atol=1e-12)
    bordered = sums.lower_bordered(sums.moment)
    assert bordered.flags.c_contiguous  # it is overwritten in place
    np.testing.assert_array_equal(bordered[:-1, :-1], sums.lower_gram())
    np.testing.assert_array_equal(bordered[:, -1], 0.0)
    np.testing.assert_array_equal(bordered[-1, :-1], sums.moment)


def test_the_dimension_is_read_off_the_length():
    assert [ridge_sums.empty(dim).dim for dim in range(1, 400)] == list(range(1, 400))


@pytest.mark.rest
@pytest.mark.parametrize("dim", [1, 2, 3, 7, 20, 130])
@pytest.mark.parametrize(("wide", "terms", "rows"), [(10**9, 1, 1), (1, 1, 1), (1, 8, 3), (1, 64, 16)])
def test_sums_are_those_of_matrix_products(dim, wide, terms, rows):
    """To the bit, for whole numbers, whatever the parts in which they are made and unpacked."""
    parts = ridge_sums.Parts(wide_dim=wide, terms=terms, rows=rows)
    rng = np.random.default_rng(dim)
    features = rng.integers(-9, 10, (41, dim)).astype(float)
    values, first = rng.integers(-9, 10, 41).astype(float), rng.random(41) < 0.7
    found = ridge_sums.add(ridge_sums.empty(dim), features, values, first, parts=parts)
    counted = features[first]
    assert found.gram.tolist() == (counted.T @ counted).tolist()
    assert found.lower_gram().tolist() == np.tril(counted.T @ counted).tolist()
    assert found.moment.tolist() == (features.T @ values).tolist()
    assert not found.error.any()
    assert found.observations == found.weight == len(counted)


@pytest.mark.rest
@pytest.mark.parametrize("dim", [1, 7, 130])
def test_sums_made_at_once_are_those_of_rewards_added_one_after_the_other(dim):
    rng = np.random.default_rng(dim)
    features, values, first = rng.normal(size=(40, dim)), rng.normal(size=40), rng.random(40) < 0.7
    for which in (first, np.ones(40, dtype=np.bool_), np.zeros(40, dtype=np.bool_)):
        at_once = ridge_sums.of(features, values, which)
        one_by_one = ridge_sums.add(ridge_sums.empty(dim), features, values, which)
        np.testing.assert_allclose(at_once.total, one_by_one.total, rtol=1e-9, atol=1e-11)
        assert at_once.squares == pytest.approx(one_by_one.squares)
        assert at_once.observations == one_by_one.observations == at_once.weight
    with pytest.raises(NonFinite):
        ridge_sums.of(features * 1e200, values * 1e200, first)
    with pytest.raises(InvalidShape):
        ridge_sums.of(features, values[1:], first)
