"""Means and their intervals by key: against tests of Student and Welch and a regression, edges, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from shortlist.errors import InvalidParameter, InvalidShape, NonFinite
from shortlist.evaluation import clustered_t_sequence as sequence
from shortlist.evaluation.clustered_t_sequence import LARGEST, MIN_KEYS, Looks, Summary

RNG = np.random.default_rng(1)
COUNTS = RNG.integers(1, 9, 80).astype(float)
SUMS = RNG.binomial(COUNTS.astype(int), RNG.beta(2, 8, 80)).astype(float)


def test_keys_with_one_decision_each_are_a_plain_sample():
    """Then the interval is Student's."""
    values = np.random.default_rng(2).normal(size=50)
    found = sequence.summary(np.ones(50), values)
    low, high = sequence.look(Looks(), found).interval or (math.nan, math.nan)
    level = 1 - sequence.alpha_of(1, 0.05)
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(level)
    assert (low, high) == pytest.approx(expected)


@pytest.mark.rest
def test_a_difference_is_that_of_welch():
    values, others = np.random.default_rng(3).normal(size=(2, 60)) * [[1.0], [3.0]]
    groups = [sequence.summary(np.ones(len(each)), each) for each in (values, others[:45])]
    found = sequence.look(Looks(), *groups).interval
    welch = stats.ttest_ind(values, others[:45], equal_var=False)
    assert found == pytest.approx(welch.confidence_interval(1 - sequence.alpha_of(1, 0.05)))


def test_the_variance_is_that_of_a_regression_with_clusters():
    """Of every decision on a constant, with the sandwich that sums residuals by key."""
    key = np.repeat(np.arange(80), COUNTS.astype(int))
    rewards = np.concatenate(
        [np.arange(count) < clicks for count, clicks in zip(COUNTS, SUMS, strict=True)]
    ).astype(float)
    residuals = np.bincount(key, rewards - rewards.mean())
    sandwich = np.square(residuals).sum() / len(rewards) ** 2 * 80 / 79
    found = sequence.summary(COUNTS, SUMS)
    assert found.mean == pytest.approx(rewards.mean())
    assert found.variance == pytest.approx(sandwich)
    assert found.largest == pytest.approx(np.square(residuals).max() / np.square(residuals).sum())


@pytest.mark.rest
def test_all_levels_sum_to_the_whole():
    looks = np.arange(1, 200_000)
    spent = sum(sequence.alpha_of(int(look), 0.05) for look in looks)
    assert 0.05 * (1 - 1 / 200_000) < spent < 0.05


@pytest.mark.rest
def test_a_look_is_due_when_decisions_have_doubled():
    assert [count for count in range(-2, 70) if sequence.is_look(count)] == [1, 2, 4, 8, 16, 32, 64]


@pytest.mark.rest
def test_each_interval_is_wider_than_the_one_before_but_for_what_was_learned():
    group, past, widths = Summary(1_000, 0.5, 1e-4, 0.01), Looks(), []
    for _ in range(12):
        past = sequence.look(past, group)
        low, high = past.interval or (math.nan, math.nan)
        widths.append((high - low) / 2 / 1e-2)
    assert widths == sorted(widths)
    assert past.given == 12
    assert widths[0] == pytest.approx(stats.t.isf(0.025 * 6 / math.pi**2, 999))
    assert widths[-1] == pytest.approx(stats.t.isf(0.025 * 6 / math.pi**2 / 144, 999))


@pytest.mark.parametrize(
    ("group", "why"),
    [
        (Summary(), "few"),
        (Summary(MIN_KEYS - 1, 0.5, 0.1, 0.1), "few"),
        (Summary(MIN_KEYS, 0.5, 0.0, 0.0), "alike"),
        (Summary(MIN_KEYS, 0.5, 0.1, LARGEST + 1e-9), "uneven"),
        (Summary(MIN_KEYS, 0.5, 0.1, LARGEST), None),
    ],
)
def test_there_is_no_interval_where_it_could_not_hold(group: Summary, why: str | None):
    good = Summary(100, 0.5, 0.1, 0.1)
    assert group.missing == why
    before = Looks(3, (0.0, 1.0))
    for found in (
        sequence.look(before, group),
        sequence.look(before, good, group),
        sequence.look(before, group, good),
    ):
        assert (found.interval is None, found.given) == (why is not None, 3 if why else 4)


@pytest.mark.rest
def test_bad_input_is_named():
    ones = np.ones(40)
    for counts, sums, error in (
        (ones, ones[:3], InvalidShape),
        (ones[:, None], ones, InvalidShape),
        (ones, ones * np.nan, NonFinite),
        (ones * 0.5, ones, InvalidParameter),
        (ones * np.inf, ones, InvalidParameter),
    ):
        with pytest.raises(error, match=r"counts|sums"):
            sequence.summary(counts, sums)
    for level in (0.0, 1.0, math.nan):
        with pytest.raises(InvalidParameter, match="level"):
            sequence.look(Looks(), Summary(), level=level)
