"""What is kept of filters, and what serves them while their catalogue changes."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

import numpy as np
import pytest

from app.catalogues.catalogue import Catalogue
from app.filtering import filtered_snapshots, known_filter
from app.filtering.filter_limits import FilterLimits
from app.filtering.filter_plan import FilterPlan, index_number
from app.filtering.filtered_snapshots import LOOK_EVERY, FilteredSnapshots
from app.filtering.known_filter import PLAN_AFTER, FilterStatus
from app.filtering.row_copy import RowCopy
from app.filters.filter import Filter, parse
from app.indexes.live import IndexOptions, LiveIndex
from app.records.records import CatalogueRecord
from shortlist.index.cancellation import Cancelled
from tests.indexes.brute_force import limit

DIM = 4
ODD = parse({"odd": True})
ANY_SIZE = FilterLimits(small_numbers=-1, quick_numbers=0, cooldown=0.0, after_failure_s=0.0)
"""Filters that match a few arms are planned as others are, and again at once."""


def views_with(limits: FilterLimits = ANY_SIZE) -> FilteredSnapshots:
    return FilteredSnapshots(capacity_bytes=1 << 24, limits=limits)


def upsert(catalogue: Catalogue, first: int, last: int) -> None:
    ids = [str(arm) for arm in range(first, last)]
    features = np.random.default_rng(first).standard_normal((len(ids), DIM))
    catalogue.index.upsert(ids, features, range(first, last))
    catalogue.index.describe(ids, [((), {"odd": arm % 2 == 1}) for arm in range(first, last)])


def of_arms(count: int, *, with_graph: bool = False) -> Catalogue:
    options = IndexOptions(kind="hnsw") if with_graph else IndexOptions()
    record = CatalogueRecord(DIM, asdict(options))
    catalogue = Catalogue("c", "0" * 16, record, LiveIndex(DIM, options, threads=1))
    upsert(catalogue, 0, count)
    if with_graph:
        maintain(catalogue)
    return catalogue


def maintain(catalogue: Catalogue, **limits: float) -> None:
    before = catalogue.index.limits
    limit(catalogue.index, **limits)
    catalogue.index.rest_until = 0.0
    job = catalogue.index.begin_maintenance()
    catalogue.index.limits = before
    job.run()
    catalogue.index.finish(job)


def compact(catalogue: Catalogue) -> None:
    table = catalogue.index.snapshot().table.number
    maintain(catalogue, least_dead=0, dead_share=0.0)
    assert catalogue.index.snapshot().table.number != table


def ask(views: FilteredSnapshots, catalogue: Catalogue, times: int = 1, wanted: Filter = ODD) -> FilterStatus:
    """Ask this often, wait for what is begun then, and show the filter."""

    async def asked() -> None:
        for _ in range(times):
            (await views.of(catalogue, wanted)).search(np.ones(DIM), 1)
        working = asyncio.all_tasks() - {asyncio.current_task()}
        if working:
            await asyncio.wait(working)

    asyncio.run(asked())
    return next(status for status in views.in_use(catalogue, 10) if status.filter == wanted.document)


def check(views: FilteredSnapshots, catalogue: Catalogue) -> None:
    """It finds what an exact search finds."""
    view = asyncio.run(views.of(catalogue, ODD))
    for query in np.random.default_rng(1).standard_normal((20, DIM)):
        assert view.search(query, 3).rows.tolist() == view.search_exact(query, 3).rows.tolist()


class Plans:
    """Plans as they are told here, one after the other, the last one again; and how many there were.

    A plan is ``(ask, us)``: an exact search takes 10 µs.
    """

    def __init__(self, monkeypatch, *plans: tuple[int, float], has_copy: bool = True) -> None:
        self.plans, self.count, self.has_copy = list(plans), 0, has_copy
        monkeypatch.setattr(filtered_snapshots, "plan_filter", self.plan)

    def plan(self, snapshot, eligible, options, **rest) -> FilterPlan:
        assert eligible.is_of(snapshot.table, snapshot.attributes)
        ask, us = self.plans[min(self.count, len(self.plans) - 1)]
        self.count += 1
        copy = RowCopy.of(snapshot.table, eligible) if self.has_copy else None
        recall = 0.97 if ask else 1.0
        return FilterPlan(eligible.count, index_number(snapshot), us, 10.0, copy, ask, recall, recall, "told")


def test_few_arms_are_copied_when_they_are_asked_for_the_second_time() -> None:
    catalogue, views = of_arms(100), views_with(FilterLimits())
    assert (ask(views, catalogue).strategy, ask(views, catalogue).strategy) == ("exact", "copy")
    assert ask(views, catalogue, 2 * PLAN_AFTER).reason == known_filter.SMALL
    catalogue.index.remove([str(arm) for arm in range(1, 61, 2)])
    ask(views, catalogue)  # most of the copy is gone: it is made again
    assert asyncio.run(views.of(catalogue, ODD)).strategy.staleness == 0.0
    check(views, catalogue)


def test_a_filter_is_planned_after_many_uses_and_its_plan_serves_the_next_search(monkeypatch) -> None:
    catalogue, views, plans = of_arms(1_000), views_with(), Plans(monkeypatch, (0, 10.0))
    status = ask(views, catalogue, PLAN_AFTER - 1)
    assert (plans.count, status.strategy, status.reason) == (0, "exact", "not measured yet")
    ask(views, catalogue)
    assert plans.count == 1
    assert not asyncio.run(views.of(catalogue, ODD)).is_scanned
    status = ask(views, catalogue, PLAN_AFTER)
    assert (plans.count, status.strategy, status.expected_us, status.reason) == (1, "copy", 10.0, "told")


def test_a_filter_is_planned_by_measuring() -> None:
    catalogue, views = of_arms(2_000, with_graph=True), views_with()
    status = ask(views, catalogue, PLAN_AFTER)
    assert status.reason != "not measured yet"
    assert status.expected_us > 0.0
    check(views, catalogue)


@pytest.mark.parametrize("by_index", [False, True])
def test_a_plan_goes_on_when_the_table_is_compacted(by_index: bool, monkeypatch) -> None:
    catalogue, views = of_arms(2_000, with_graph=by_index), views_with()
    plans = Plans(monkeypatch, (200 if by_index else 0, 5.0))
    ask(views, catalogue, PLAN_AFTER)
    catalogue.index.remove([str(arm) for arm in range(100)])
    upsert(catalogue, 2_000, 2_100)
    ask(views, catalogue)
    compact(catalogue)
    status = ask(views, catalogue)
    assert (status.strategy, status.eligible, plans.count) == ("graph" if by_index else "copy", 1_000, 1)
    if not by_index:
        check(views, catalogue)


def test_a_copy_that_cannot_follow_is_made_by_another_plan(monkeypatch) -> None:
    catalogue, views, plans = of_arms(1_000), views_with(), Plans(monkeypatch, (0, 10.0))
    ask(views, catalogue, PLAN_AFTER)
    for arm in ("1", "3"):  # two compactions, and the filter was not used between them
        catalogue.index.remove([arm])
        compact(catalogue)
    assert ask(views, catalogue).strategy == "exact"
    ask(views, catalogue, LOOK_EVERY)
    assert (ask(views, catalogue).strategy, plans.count) == ("copy", 2)
    check(views, catalogue)


@pytest.mark.parametrize(
    ("removed", "added", "is_planned"),
    [(100, 0, False), (200, 0, True), (0, 180, False), (0, 240, True), (270, 270, True)],
)
def test_a_filter_is_planned_again_when_much_has_changed(removed, added, is_planned, monkeypatch) -> None:
    """Of 500 arms that match a fifth more or less do, or a quarter of the copy went or came since."""
    catalogue, views, plans = of_arms(1_000), views_with(), Plans(monkeypatch, (0, 10.0))
    ask(views, catalogue, PLAN_AFTER)
    catalogue.index.remove([str(arm) for arm in range(removed)])
    upsert(catalogue, 1_000, 1_000 + added)
    ask(views, catalogue, LOOK_EVERY)
    assert plans.count == 1 + is_planned


def test_a_filter_is_planned_again_when_another_index_serves(monkeypatch) -> None:
    """Until then it is asked as the one before it was; a plan that finds it too slow ends that."""
    catalogue, views = of_arms(2_000, with_graph=True), views_with()
    plans = Plans(monkeypatch, (200, 5.0), (0, 10.0))
    ask(views, catalogue, PLAN_AFTER)
    status = ask(views, catalogue)
    assert (status.strategy, status.recall_at_1, status.ratio_mean) == ("graph", 0.97, 0.97)
    upsert(catalogue, 2_000, 2_200)
    maintain(catalogue, changed_share=0.0)
    assert (ask(views, catalogue).strategy, plans.count) == ("graph", 1)
    ask(views, catalogue, LOOK_EVERY)
    status = ask(views, catalogue)
    assert (status.strategy, status.recall_at_1, status.ratio_mean, plans.count) == ("copy", 1.0, 1.0, 2)


@pytest.mark.parametrize("has_copy", [False, True])
def test_every_arm_is_compared_while_the_index_lacks_most_arms(has_copy: bool, monkeypatch) -> None:
    """Half of the arms came since it was built: scanning them takes longer than comparing all that match."""
    catalogue, views = of_arms(1_000, with_graph=True), views_with()
    Plans(monkeypatch, (200, 5.0), has_copy=has_copy)
    ask(views, catalogue, PLAN_AFTER)
    monkeypatch.setattr(known_filter.KnownFilter, "is_due", lambda *_: False)
    exactly = "copy" if has_copy else "exact"
    for last, strategy in ((1_100, "graph"), (2_000, exactly)):
        upsert(catalogue, 1_000, last)
        assert ask(views, catalogue).strategy == strategy
    check(views, catalogue)
    assert asyncio.run(views.of(catalogue, ODD)).kind == "exact"


def test_a_filter_that_lets_in_few_arms_by_now_is_searched_exactly(monkeypatch) -> None:
    catalogue = of_arms(2_000, with_graph=True)
    views = views_with(FilterLimits(small_numbers=-1, quick_numbers=999 * DIM))
    Plans(monkeypatch, (200, 5.0))
    ask(views, catalogue, PLAN_AFTER)
    assert ask(views, catalogue).strategy == "graph"
    catalogue.index.remove(["999"])
    assert ask(views, catalogue).strategy == "copy"


def test_what_serves_goes_on_when_planning_fails_or_is_stopped(monkeypatch, caplog) -> None:
    catalogue, views = of_arms(1_000), views_with()
    raised = [ValueError("no"), Cancelled()]

    def fail(*_, **__):
        raise raised.pop(0)

    monkeypatch.setattr(filtered_snapshots, "plan_filter", fail)
    for left in (1, 0):
        assert ask(views, catalogue, PLAN_AFTER).strategy == "exact"
        assert len(raised) == left
    assert [record.message for record in caplog.records] == ["planning a filter of c failed"]
    check(views, catalogue)


def test_a_copy_counts_for_the_memory_that_it_takes(monkeypatch) -> None:
    catalogue, views = of_arms(1_000), views_with()
    Plans(monkeypatch, (0, 10.0))
    ask(views, catalogue, PLAN_AFTER - 1)
    before = views.bytes
    ask(views, catalogue)
    assert views.bytes >= before + 500 * DIM * 4
