"""Exact draws: their distribution, their stated probabilities, and numbers at the edge of float64.

Every chi-square is rejected beyond its 1e-7 quantile, at seeds that are fixed.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from shortlist.errors import InvalidArgument
from shortlist.sampling.factors import Factors, RandomOrder
from shortlist.sampling.gumbel_max import from_weights, gumbel_max, top_k

WEIGHTS = np.log([0.05, 0.4, 0.15, 0.3, 0.1]) + 700.0
P = np.exp(WEIGHTS - 700.0)
ALARM = 1e-7


def chi_square(counts, expected):
    return stats.chisquare(counts, expected * sum(counts) / np.sum(expected)).pvalue


def test_single_draws_and_many_follow_p():
    rng = np.random.default_rng(3)
    single = [int(from_weights(WEIGHTS, draws=1, rng=rng)[0]) for _ in range(20_000)]
    many = from_weights(WEIGHTS, draws=20_000, rng=rng)
    for rows in (single, many):
        assert chi_square(np.bincount(rows, minlength=5), P) > ALARM


@pytest.mark.rest
def test_the_chi_square_sees_noise_of_another_scale():
    rng = np.random.default_rng(3)
    rows = (WEIGHTS + 1.2 * rng.gumbel(size=(20_000, 5))).argmax(axis=1)
    assert chi_square(np.bincount(rows, minlength=5), P) < ALARM


def plackett_luce(order):
    left, probability = P.sum(), 1.0
    for row in order:
        probability *= P[row] / left
        left -= P[row]
    return probability


def test_ordered_lists_follow_plackett_and_luce_and_say_so():
    rng, runs = np.random.default_rng(5), 8_000
    lists = list(permutations(range(5), 2))
    counts = dict.fromkeys(lists, 0)
    for _ in range(runs):
        rows, logs = top_k(WEIGHTS, 2, rng=rng)
        counts[tuple(rows.tolist())] += 1
        assert np.exp(logs.sum()) == pytest.approx(plackett_luce(rows), rel=1e-9)
    assert chi_square([counts[order] for order in lists], np.array(list(map(plackett_luce, lists)))) > ALARM


@settings(max_examples=60)
@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=8), st.integers(1, 10), st.integers(0, 99))
def test_probabilities_stay_probabilities(weights, k, seed):
    rows, logs = top_k(np.array(weights), k, rng=np.random.default_rng(seed))
    assert len(set(rows.tolist())) == len(rows) == min(k, len(weights))
    assert not np.isnan(logs).any()
    assert (logs <= 0.0).all()
    if k >= len(weights):
        assert logs[-1] == 0.0


@pytest.mark.rest
def test_a_share_is_not_lost_beside_one_that_was_chosen_before():
    rows, logs = top_k(np.array([5_000.0, 0.0, -1.0]), 2, rng=np.random.default_rng(0))
    assert rows[0] == 0
    assert np.exp(logs[1]) == pytest.approx({1: 1, 2: np.exp(-1)}[int(rows[1])] / (1 + np.exp(-1)))


@pytest.mark.rest
def test_the_sums_are_those_of_the_matrix_and_counted():
    rng = np.random.default_rng(1)
    matrix, prior = rng.standard_normal((7, 1000)), rng.standard_normal(7)
    assert np.allclose(Factors.of(matrix).sums(), matrix.sum(axis=1), rtol=0, atol=1e-10)
    found = gumbel_max(Factors.of(matrix), rng=np.random.default_rng(2), log_prior=prior)
    gumbels = np.random.default_rng(2).gumbel(size=7)
    assert found.rows.tolist() == [(matrix.sum(axis=1) + prior + gumbels).argmax()]
    assert (found.reads, found.exhaustive_reads, found.raced) == (7000, 7000, 0)


@settings(max_examples=50)
@given(st.integers(1, 300), st.lists(st.integers(0, 300), max_size=6), st.integers(0, 99))
def test_a_random_order_is_a_permutation_however_it_is_taken(size, stops, seed):
    order, taken, start = RandomOrder(size, np.random.default_rng(seed)), [], 0
    for stop in sorted({*(min(stop, size) for stop in stops), size}):
        taken.extend(order.take(start, stop).tolist())
        start = stop
    assert sorted(taken) == list(range(size))


@pytest.mark.rest
def test_bad_arguments_are_named():
    good = Factors.of(np.zeros((2, 3)))
    rng = np.random.default_rng(0)
    for broken in (
        lambda: Factors.of(np.array([[0.0, -np.inf]])),
        lambda: Factors.of(np.zeros(3)),
        lambda: gumbel_max(good, rng=rng, draws=0),
        lambda: gumbel_max(good, rng=rng, log_prior=np.zeros(3)),
        lambda: gumbel_max(good, rng=rng, log_prior=np.array([0.0, np.nan])),
        lambda: gumbel_max(Factors.of(np.zeros((0, 3))), rng=rng),
        lambda: top_k(np.zeros(2), 0, rng=rng),
        lambda: top_k(np.array([0.0, np.nan]), 1, rng=rng),
    ):
        with pytest.raises(InvalidArgument) as raised:
            broken()
        assert raised.value.argument
