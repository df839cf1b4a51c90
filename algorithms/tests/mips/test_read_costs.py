"""Plans are made from costs that are passed in: no more than there is, and a scan where that costs less."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finite_arms import best, spread_out, suboptimality
from shortlist.mips import blocked, bounded_me, racing
from shortlist.mips.partial_sums import PartialSums
from shortlist.mips.read_costs import READS_ALONE, ReadCosts
from shortlist.mips.rewards import blocked_rewards

pytestmark = pytest.mark.rest

COSTS = st.builds(
    ReadCosts,
    picked=st.floats(1.0, 10.0),
    whole=st.floats(1.0, 10.0),
    query=st.floats(0.0, 1e7),
    coordinate=st.floats(0.0, 1e3),
    arm=st.floats(0.0, 1e3),
    decision=st.floats(0.0, 1e6),
    check=st.floats(0.0, 1e7),
    large=st.floats(0.0, 1e8),
)


@given(costs=COSTS, n=st.integers(1, 10**6), dim=st.integers(1, 10**6), data=st.data())
def test_finishing_costs_no_more_than_reading_on_or_reading_whole_arms(*, costs, n, dim, data):
    left, t = data.draw(st.integers(0, n)), data.draw(st.integers(0, dim))
    cost = costs.finishing(left, t, n, dim)
    assert cost <= n * (dim - t)
    assert cost <= costs.picked * left * (dim - t) * (1 + 1e-12)
    assert cost <= costs.whole * left * dim
    assert costs.finishing(left, dim, n, dim) == 0.0


@settings(max_examples=40)
@given(costs=COSTS, search=st.sampled_from(["bounded_me", "racing"]))
def test_whatever_reads_cost_the_promise_is_the_same(costs, search):
    """The order of the coordinates is the same in all examples, and one in which the promise holds."""
    vectors, query = spread_out(120, 4_096, seed=3)
    arms = blocked.build(vectors, rng=np.random.default_rng(4), costs=costs)
    rewards = blocked_rewards(arms, query, costs=costs)
    run = bounded_me.bounded_me if search == "bounded_me" else racing.racing
    found = run(rewards, k=3, epsilon=0.4, delta=0.05)
    assert suboptimality(vectors, query, "inner_product", found.rows) <= 0.4
    if found.guarantee.kind == "exact":
        assert found.rows.tolist() == best(vectors, query, "inner_product", 3)


def test_costs_are_those_of_their_definitions():
    costs = ReadCosts(
        picked=3.0, whole=2.0, query=100.0, coordinate=5.0, arm=7.0, decision=9.0, check=11.0, large=600.0
    )
    assert (costs.reading(10, 100), costs.reading(33, 100), costs.reading(34, 100)) == (30.0, 99.0, 100)
    assert costs.finishing(10, 20, 100, 60) == 1_200.0  # 10 arms whole: 2 * 60 each, not 3 * 40
    assert costs.finishing(10, 21, 100, 60) == 1_170.0
    assert costs.finishing(50, 55, 100, 60) == 500.0  # all arms, in a row
    assert costs.overhead(10, 60) == 100.0 + 5.0 * 60 + 7.0 * 10
    assert costs.checking(10, 60) == 11.0
    assert costs.overhead(10, 59) == costs.checking(10, 59) == 0.0
    assert costs.least_sample(100, 60) == pytest.approx(15.0)  # a quarter: 2.4 * 1,100 / 100 is more
    assert costs.least_sample(1_000, 60) == 15.0
    assert ReadCosts(query=500.0).least_sample(100, 60) == pytest.approx(12.0)
    assert ReadCosts(query=1.0).least_sample(100, 60) == 1.0


def plan_of(n, dim, costs=READS_ALONE, rounded=lambda t: t):
    return SimpleNamespace(size=n, dim=dim, costs=costs, rounded=rounded)


def test_a_plan_is_followed_that_saves_a_twentieth():
    for t, saves in ((899, True), (901, False)):
        steps = [bounded_me.Round(t, 50), bounded_me.Round(1_000, 5)]
        assert bounded_me.saves(steps, plan_of(100, 1_000)) is saves
    steps = [bounded_me.Round(500, 5), bounded_me.Round(1_000, 5)]
    left = 0.95 - bounded_me.work(steps, 100, 1_000, READS_ALONE)
    for share, saves in ((0.999, True), (1.001, False)):
        assert bounded_me.saves(steps, plan_of(100, 1_000, ReadCosts(query=share * left * 1e5))) is saves


def test_a_race_ends_when_the_rest_is_read_at_the_cost_of_a_decision():
    """And of no more than a 64th of a scan."""
    for decision, left, few in ((640.0, 1, True), (639.0, 1, False), (1e9, 15, True), (1e9, 16, False)):
        partial = PartialSums(plan_of(1_000, 640, ReadCosts(decision=decision)))
        partial.places = np.arange(left)
        assert partial.few_are_left() is few
