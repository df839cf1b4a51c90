"""What is planned with: no more than there is, and a scan where that is quicker."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.algorithms.mips import bounded_me, racing
from app.algorithms.mips.prices import BLOCKED, LARGE, Prices, beside, least_sample

PRICES = st.builds(Prices, st.floats(1.0, 5.0), st.floats(1.0, 5.0))


@given(n=st.integers(1, 10**7), dim=st.integers(1, 10**6))
def test_the_least_sample_is_a_part_of_what_there_is(n, dim):
    assert 1.0 <= least_sample(n, dim) <= max(1.0, dim / 4.0)
    if n * dim < LARGE:
        assert least_sample(n, dim) == 1.0
        assert beside(n, dim) == 0.0


@given(prices=PRICES, n=st.integers(1, 10**6), dim=st.integers(1, 10**6), data=st.data())
def test_finishing_takes_no_longer_than_reading_on_or_reading_whole_arms(*, prices, n, dim, data):
    left, t = data.draw(st.integers(0, n)), data.draw(st.integers(0, dim))
    time = prices.finishing(left, t, n, dim)
    assert time <= n * (dim - t)
    assert time <= prices.picked * left * (dim - t) * (1 + 1e-12)
    assert time <= prices.whole * left * dim
    assert prices.finishing(left, dim, n, dim) == 0.0


@pytest.mark.parametrize(
    ("n", "dim", "few"),
    [
        (1_000, 128, True),
        (1_000, 256, False),
        (10_000, 2_048, False),
        (100_000, 256, True),
        (100_000, 2_048, False),
    ],
)
def test_many_arms_of_few_coordinates_are_not_raced(n, dim, few):
    """Measured at 100,000 x 256: 2.4 times as long as a scan."""
    assert racing.few_coordinates(SimpleNamespace(size=n, dim=dim)) is few


@pytest.mark.parametrize(
    ("n", "dim", "pays"), [(100_000, 256, False), (100_000, 1_024, True), (10_000, 4_096, True)]
)
def test_a_plan_counts_what_a_query_costs_beside_its_reads(n, dim, pays):
    """Measured at 100,000 x 256: 1.9 times as long as a scan, with a plan that read six tenths."""
    rewards = SimpleNamespace(size=n, dim=dim, prices=BLOCKED)
    steps = bounded_me.sample_once(n, dim, k=5, epsilon=0.2, delta=0.05, spread=1.0, prices=BLOCKED)
    assert bounded_me.work(steps, n, dim, BLOCKED) < 0.75
    assert bounded_me.saves(steps, rewards) is pays
