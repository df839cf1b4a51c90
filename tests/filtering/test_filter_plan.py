"""Which search serves a filter, with the times and the recall written down: nothing is timed here."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from app.filtering import filter_plan
from app.filtering.filter_limits import FilterLimits
from app.filtering.filter_plan import FilterPlan, PlanOptions, plan_filter
from app.filters.filter import parse
from app.indexes.eligible_rows import eligible_rows
from app.indexes.live import LiveIndex
from shortlist.index.cancellation import Cancelled
from shortlist.index.probes import Quality, Trial
from told_index import ToldIndex

DIM, COUNT = 3, 40
ANY_SIZE = FilterLimits(quick_numbers=0)


@dataclass
class Times:
    """Microseconds of an exact search without a copy, of one by the copy, and of the index; its recall and
    ratio, by how many arms it was asked for.
    """

    plain: float = 80.0
    copy: float = 40.0
    index: object = 1.0
    quality: object = (1.0, 1.0)
    asked: list[int] = field(default_factory=list)
    queries: dict[str, int] = field(default_factory=dict)

    def use(self, monkeypatch) -> Times:
        for name in ("typical_us", "time_alternately", "compare"):
            monkeypatch.setattr(filter_plan, name, getattr(self, name))
        return self

    def typical_us(self, search, queries):
        assert search(queries[0]).exact
        self.queries["typical_us"] = len(queries)
        return self.plain

    def time_alternately(self, search, plain, queries):
        assert search(queries[0]).rows.tolist() == plain(queries[0]).rows.tolist()
        self.queries["time_alternately"] = len(queries)
        return [], self.copy, self.plain

    def compare(self, search, exact, probes):
        assert len(probes.queries) == len(probes.groups) == 400
        assert not search(probes.queries[0]).exact
        assert exact(probes.queries[0]).rows.tolist() == probes.winners[:1].tolist()
        ask = TOLD.asked[-1]
        self.asked.append(ask)
        recall, ratio = self.quality(ask) if callable(self.quality) else self.quality
        us = self.index(ask) if callable(self.index) else self.index
        return Trial(Quality(recall, ratio, ratio, 0.0), us, self.copy)


TOLD = ToldIndex(np.arange(4_000) % COUNT, COUNT)
"""An index of 4,000 arms, of which forty can be let in."""


def planned(document, *, index=TOLD, copy_bytes=10**9, limits=ANY_SIZE, **given) -> FilterPlan:
    live = LiveIndex(DIM)
    ids = [str(number) for number in range(COUNT)]
    features = np.sin(np.arange(COUNT * DIM) * 1.7).reshape(COUNT, DIM)
    live.upsert(ids, features, range(COUNT))
    live.describe(ids, [((), {"number": number}) for number in range(COUNT)])
    snapshot = replace(live.snapshot(), structure=index)
    eligible = eligible_rows(parse(document), snapshot.table, snapshot.attributes)
    options = PlanOptions(copy_bytes, 0.99, limits, **given)
    return plan_filter(snapshot, eligible, options, recent=[], rng=np.random.default_rng(0))


HALF = {"number": {"$lt": 20}}


def test_a_filter_that_lets_nothing_in_needs_no_plan():
    assert planned({"number": {"$lt": 0}}) == FilterPlan(0, TOLD.number, 0.0, 0.0)


@pytest.mark.parametrize(("copy", "is_kept"), [(64.0, True), (64.1, False)])  # 80 / 1.25 is enough
def test_a_copy_is_kept_where_it_is_clearly_faster(monkeypatch, copy, is_kept):
    times = Times(copy=copy).use(monkeypatch)
    plan = planned(HALF, index=None)
    assert (plan.copy is not None) == is_kept
    us = copy if is_kept else 80.0
    assert (plan.count, plan.index, plan.us, plan.exact_us, plan.ask) == (20, None, us, us, 0)
    assert (plan.recall_at_1, plan.ratio_mean) == (1.0, 1.0)
    assert plan.reason.endswith("1.2 times as fast as without one") == is_kept
    assert times.queries == {"time_alternately": 100}


@pytest.mark.parametrize(("room", "is_kept"), [(20 * DIM * 4, True), (20 * DIM * 4 - 1, False), (0, False)])
def test_a_copy_takes_no_more_memory_than_it_may(monkeypatch, room, is_kept):
    times = Times().use(monkeypatch)
    plan = planned(HALF, index=None, copy_bytes=room)
    assert (plan.copy is not None, plan.us) == (is_kept, 40.0 if is_kept else 80.0)
    assert times.queries == ({"time_alternately": 100} if is_kept else {"typical_us": 100})


@pytest.mark.parametrize(("numbers", "is_tried"), [(20 * DIM, False), (20 * DIM - 1, True)])
def test_few_numbers_are_quick_enough_without_the_index(monkeypatch, numbers, is_tried):
    times = Times().use(monkeypatch)
    plan = planned(HALF, limits=FilterLimits(quick_numbers=numbers))
    assert bool(plan.ask) == bool(times.asked) == is_tried
    assert plan.index == TOLD.number
    assert FilterLimits().quick_numbers == 500_000


def test_the_index_is_asked_for_more_and_more_until_it_reaches_the_target(monkeypatch):
    """From 30 arms for each share that is let in, twice as many each time; here to recall .99, ratio .998."""

    def quality(ask):
        return (0.98, 1.0) if ask < 100 else (0.999, 0.9979) if ask < 200 else (0.99, 0.998)

    times = Times(index=lambda ask: 5.0 + ask / 100, quality=quality).use(monkeypatch)
    plan = planned(HALF)
    assert times.asked == [60, 120]  # 240 are more than a twentieth of 4,000
    assert (plan.ask, plan.us, plan.copy is not None) == (0, 40.0, True)
    times.asked.clear()
    plan = planned(HALF, limits=replace(ANY_SIZE, most_asked=0.06))
    assert times.asked == [60, 120, 240]
    assert (plan.ask, plan.us, plan.exact_us, plan.recall_at_1, plan.ratio_mean) == (
        240,
        7.4,
        40.0,
        0.99,
        0.998,
    )
    assert plan.copy is not None  # it serves while the index lacks many arms
    assert plan.reason == "the index is asked for 240 arms, 5.4 times as fast as an exact search"


@pytest.mark.parametrize(("most", "is_tried"), [(60, True), (59, False)])
def test_an_index_of_which_too_few_arms_match_is_not_tried(monkeypatch, most, is_tried):
    times = Times().use(monkeypatch)
    assert bool(planned(HALF, limits=replace(ANY_SIZE, most_asked=most / 4_000)).ask) == is_tried
    assert times.asked == ([60] if is_tried else [])


@pytest.mark.parametrize(("us", "serves"), [(32.0, True), (32.1, False)])
def test_an_index_that_is_not_clearly_faster_is_not_asked_further(monkeypatch, us, serves):
    times = Times(index=us, quality=lambda ask: (0.5, 0.5) if ask == 60 else (1.0, 1.0)).use(monkeypatch)
    assert bool(planned(HALF).ask) == serves
    assert times.asked == ([60, 120] if serves else [60])


def test_a_plan_is_stopped_before_it_is_measured(monkeypatch):
    def check():
        raise Cancelled

    times = Times().use(monkeypatch)
    with pytest.raises(Cancelled):
        planned(HALF, check=check)
    assert not times.asked


def test_the_index_is_measured_on_queries_like_those_that_were_served(monkeypatch):
    """It misses the best arm of queries that look one way, and of no others."""
    rng, groups = np.random.default_rng(5), []

    def compare(search, exact, probes):
        groups.append(np.bincount(probes.groups).tolist())
        return Trial(Quality(0.99, 1.0, 1.0, 0.0), 1.0, 40.0, worst=Quality(0.9, 1.0, 0.9, 0.0))

    Times().use(monkeypatch)
    monkeypatch.setattr(filter_plan, "compare", compare)
    live = LiveIndex(DIM)
    live.upsert([str(row) for row in range(COUNT)], rng.normal(size=(COUNT, DIM)), range(COUNT))
    snapshot = replace(live.snapshot(), structure=TOLD)
    eligible = eligible_rows(parse({}), snapshot.table, snapshot.attributes)
    recent = rng.normal(size=(64, DIM)) + 20.0
    options = PlanOptions(10**9, 0.95, ANY_SIZE)
    plan = plan_filter(snapshot, eligible, options, recent=list(recent), rng=rng)
    assert set(map(tuple, groups)) == {(200, 200)}
    assert plan.ask == 0
