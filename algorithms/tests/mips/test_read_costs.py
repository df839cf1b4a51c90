"""Plans are made from costs that are passed in: no more than there is, and a scan where that costs less."""

from __future__ import annotations

from dataclasses import replace
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

MEASURED = ReadCosts(3.5, 3.0, 950_000.0, 60.0, 200.0, 250_000.0, 2_000_000.0, 2.0**24)
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


@given(costs=COSTS, n=st.integers(1, 10**7), dim=st.integers(1, 10**6))
def test_the_least_sample_is_a_part_of_what_there_is(costs, n, dim):
    assert 1.0 <= costs.least_sample(n, dim) <= max(1.0, dim / 4.0)
    if n * dim < costs.large:
        assert costs.least_sample(n, dim) == 1.0
        assert costs.overhead(n, dim) == costs.checking(n, dim) == 0.0


@given(costs=COSTS, n=st.integers(1, 10**6), dim=st.integers(1, 10**6), data=st.data())
def test_finishing_costs_no_more_than_reading_on_or_reading_whole_arms(*, costs, n, dim, data):
    left, t = data.draw(st.integers(0, n)), data.draw(st.integers(0, dim))
    cost = costs.finishing(left, t, n, dim)
    assert cost <= n * (dim - t)
    assert cost <= costs.picked * left * (dim - t) * (1 + 1e-12)
    assert cost <= costs.whole * left * dim
    assert costs.finishing(left, dim, n, dim) == 0.0


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
    assert racing.few_coordinates(SimpleNamespace(size=n, dim=dim, costs=MEASURED)) is few


def test_how_long_a_scan_takes_decides_whether_arms_are_raced():
    """On a machine where overhead costs a tenth, the same arms are raced."""
    cheap = replace(MEASURED, query=95_000.0, coordinate=6.0, arm=20.0)
    assert racing.few_coordinates(SimpleNamespace(size=100_000, dim=256, costs=MEASURED))
    assert not racing.few_coordinates(SimpleNamespace(size=100_000, dim=256, costs=cheap))
    assert not racing.few_coordinates(SimpleNamespace(size=100_000, dim=256, costs=READS_ALONE))


@pytest.mark.parametrize(
    ("n", "dim", "pays"), [(100_000, 256, False), (100_000, 1_024, True), (10_000, 4_096, True)]
)
def test_a_plan_counts_the_overhead_of_a_query(n, dim, pays):
    """Measured at 100,000 x 256: 1.9 times as long as a scan, with a plan that read six tenths."""
    rewards = SimpleNamespace(size=n, dim=dim, costs=MEASURED)
    steps = bounded_me.sample_once(n, dim, k=5, epsilon=0.2, delta=0.05, spread=1.0, costs=MEASURED)
    assert bounded_me.work(steps, n, dim, MEASURED) < 0.75
    assert bounded_me.saves(steps, rewards) is pays


def test_the_dearer_finishing_is_the_fewer_arms_are_kept():
    kept = []
    for cost in (1.0, 3.0, 9.0):
        costs = ReadCosts(picked=cost, whole=cost)
        plan = bounded_me.sample_once(10_000, 16_384, k=5, epsilon=0.05, delta=0.05, spread=1.0, costs=costs)
        kept.append(plan[0].kept)
    assert kept[0] > kept[1] > kept[2]


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


def test_a_race_checks_after_fixed_shares_well_beyond_the_least_sample():
    """64ths, then 3/8, 1/2, 3/4; from 1.5 times the first check on."""
    shares = [64, 128, 256, 512, 1_024, 1_536, 2_048, 3_072]
    assert racing.schedule(plan_of(10, 4_096)) == [1.0, *shares]
    costs = ReadCosts(query=10 * 128 / 1.5 / 2.4)
    least = costs.least_sample(10, 4_096)
    assert racing.schedule(plan_of(10, 4_096, costs)) == pytest.approx([least, *shares[1:]])
    costs = ReadCosts(query=10 * 128.1 / 1.5 / 2.4)
    assert racing.schedule(plan_of(10, 4_096, costs))[1:] == shares[2:]
    assert racing.schedule(plan_of(10, 4_096, rounded=lambda t: 4_096 if t > 2_000 else t))[-1] == 1_536


def test_the_overhead_of_a_race_is_at_most_a_sixth_of_a_scan():
    for query, few in ((0.1599, False), (0.1601, True)):
        costs = ReadCosts(query=query * 100 * 1_000)
        assert racing.few_coordinates(plan_of(100, 1_000, costs)) is few


def test_the_work_of_rounds_is_what_is_read_of_whom():
    costs, n, dim = ReadCosts(picked=2.0, whole=3.0), 100, 1_000
    steps = [bounded_me.Round(100, 30), bounded_me.Round(400, 10), bounded_me.Round(1_000, 5)]
    read = 100 * 100 + 2 * 30 * 300 + min(2 * 10 * 600, 3 * 10 * 1_000)
    assert bounded_me.work(steps, n, dim, costs) == pytest.approx(read / (n * dim))
    assert bounded_me.work([], n, dim, costs) == 1.0


def test_a_plan_is_followed_that_saves_a_twentieth():
    for t, saves in ((899, True), (901, False)):
        steps = [bounded_me.Round(t, 50), bounded_me.Round(1_000, 5)]
        assert bounded_me.saves(steps, plan_of(100, 1_000)) is saves
    steps = [bounded_me.Round(500, 5), bounded_me.Round(1_000, 5)]
    left = 0.95 - bounded_me.work(steps, 100, 1_000, READS_ALONE)
    for share, saves in ((0.999, True), (1.001, False)):
        assert bounded_me.saves(steps, plan_of(100, 1_000, ReadCosts(query=share * left * 1e5))) is saves


def test_one_sample_keeps_as_many_arms_as_cost_a_fifth_more_than_the_cheapest_plan():
    """All plans by the formula of the round: K + f kept, f the n - K halved again and again."""
    n, dim, k, epsilon, delta = 1_000, 20_000, 3, 0.1, 0.05
    for costs in (READS_ALONE, ReadCosts(picked=3.0, whole=2.0), ReadCosts(query=1e6)):
        plans = []
        for halved in range(10, 0, -1):
            kept = k + ((n - k) >> halved)
            u = 2 / epsilon**2 * np.log((k + (n - k) / (kept - k + 1)) / delta)
            t = max(np.ceil(min(u + 1, u + u / dim) / (1 + u / dim)), costs.least_sample(n, dim))
            finishing = min(min(n, kept * costs.picked) * (dim - t), kept * costs.whole * dim)
            plans.append((n * t + finishing, kept, t))
        cheapest = min(plans)[0]
        _, kept, t = [each for each in plans if each[0] <= 1.2 * cheapest][-1]
        found = bounded_me.sample_once(n, dim, k=k, epsilon=epsilon, delta=delta, spread=1.0, costs=costs)
        assert [tuple(step) for step in found] == [(t, kept), (dim, k)]


def test_a_race_ends_when_the_rest_is_read_at_the_cost_of_a_decision():
    """And of no more than a 64th of a scan."""
    for decision, left, few in ((640.0, 1, True), (639.0, 1, False), (1e9, 15, True), (1e9, 16, False)):
        partial = PartialSums(plan_of(1_000, 640, ReadCosts(decision=decision)))
        partial.places = np.arange(left)
        assert partial.few_are_left() is few
