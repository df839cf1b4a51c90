"""Plans of filters through changes of the catalogue."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import asdict, replace

import numpy as np
import pytest
from test_filtered_snapshots import (
    ANY_SIZE,
    DIM,
    SLOW_COPIES,
    ask,
    compact,
    graph_of_odd,
    maintained,
    of_arms,
    upsert,
    views_with,
)

from app.catalogues.catalogue import Catalogue
from app.filtering import filter_plan, filter_worker, known_filter
from app.filtering.filter_plan import FilterPlan, graph_number
from app.filtering.filtered_snapshots import FilteredSnapshots
from app.filtering.known_filter import PLAN_AFTER
from app.filtering.limits import FilterLimits
from app.filtering.strategies import CatalogueGraph, OwnCopy, OwnGraph
from app.filters.filter import parse
from app.indexes.live import IndexOptions, LiveIndex
from app.records.records import CatalogueRecord
from shortlist.index.hnsw import HnswGraph, arm_bytes
from shortlist.types import NO_ROWS
from waiting import wait_until_sync

pytestmark = pytest.mark.rest


def test_long_filters_count_for_what_they_take_and_are_not_shown() -> None:
    catalogue, views = of_arms(10), FilteredSnapshots(capacity_bytes=1 << 20)
    for name in "abc":
        asyncio.run(views.of(catalogue, parse({name: {"$in": [f"{i:08000}" for i in range(50)]}})))
    assert 1 << 20 < views.bytes < 2 << 20  # the newest alone
    asyncio.run(views.of(catalogue, parse({"odd": True})))
    assert [status.filter for status in views.in_use(catalogue, 10)] == [{"odd": True}]


def test_a_graph_that_there_is_no_memory_for_is_not_built(monkeypatch) -> None:
    """Building one of 500,000 arms takes minutes, in every plan."""
    built: list[int] = []
    original = HnswGraph.build

    def build(view, rows, **options):
        built.append(len(rows))
        return original(view, rows, **options)

    monkeypatch.setattr(HnswGraph, "build", build)
    for capacity, expected in ((2 * 250 * arm_bytes(DIM, 16), []), (1 << 24, [500])):
        catalogue, views = of_arms(1_000), FilteredSnapshots(capacity_bytes=capacity, limits=ANY_SIZE)
        asyncio.run(asked_often(catalogue, views))
        assert built == expected
        (status,) = views.in_use(catalogue, 1)
        assert (filter_plan.NO_MEMORY in status.reason) == (not expected)


async def asked_often(catalogue: Catalogue, views: FilteredSnapshots) -> None:
    for _ in range(known_filter.GRAPH_AFTER):
        await views.of(catalogue, parse({"odd": True}))
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})


def test_a_plan_that_waits_for_its_turn_is_of_one_moment(monkeypatch) -> None:
    """Arms that came while another filter was planned are in the snapshot as well as in the rows."""
    asyncio.run(plan_two(monkeypatch))


async def plan_two(monkeypatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    original, planned = filter_worker.plan_filter, []

    def slow(snapshot, eligible, options, **rest):
        begun.set()
        assert go_on.wait(30)
        planned.append(eligible.is_of(snapshot.table, snapshot.attributes))
        return original(snapshot, eligible, options, **rest)

    monkeypatch.setattr(filter_worker, "plan_filter", slow)
    catalogue = of_arms(100)
    views = FilteredSnapshots(capacity_bytes=1 << 20, limits=ANY_SIZE)
    filters = [parse({"odd": odd}) for odd in (True, False)]
    for wanted in filters:
        for _ in range(PLAN_AFTER):
            await views.of(catalogue, wanted)
    await asyncio.to_thread(wait_until_sync, begun.is_set, what="the first filter is planned")
    upsert(catalogue, 100, 300)
    for wanted in filters:
        assert (await views.of(catalogue, wanted)).size == 150
    go_on.set()
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})
    assert planned == [True, True]
    assert {status.reason for status in views.in_use(catalogue, 2)} != {"not measured yet"}


def test_few_arms_are_copied_when_they_are_asked_for_the_second_time() -> None:
    catalogue, views, odd = of_arms(100), FilteredSnapshots(capacity_bytes=1 << 20), parse({"odd": True})
    assert ask(views, catalogue, odd).strategy == "exact"
    status = ask(views, catalogue, odd)
    assert (status.strategy, status.reason, status.recall_at_1) == ("copy", known_filter.SMALL, 1.0)


@pytest.mark.parametrize("small", [True, False])
def test_a_copy_goes_on_when_the_table_is_compacted(small, monkeypatch) -> None:
    catalogue, odd = of_arms(1_000), parse({"odd": True})
    views = views_with(FilterLimits() if small else SLOW_COPIES)
    assert ask(views, catalogue, odd, 8).strategy in {"copy", "blocks"}
    catalogue.index.remove([str(arm) for arm in range(400)])
    upsert(catalogue, 1_000, 1_100)
    with monkeypatch.context() as patch:
        patch.setattr(filter_worker, "plan_filter", None)
        patch.setattr(filter_worker, "renew", None)
        compact(catalogue)
        ask(views, catalogue, odd)
    status = ask(views, catalogue, odd)
    assert status.strategy in {"copy", "blocks"}
    assert status.eligible == 350
    view = asyncio.run(views.of(catalogue, odd))
    for query in np.random.default_rng(1).standard_normal((20, DIM)):
        assert view.search(query, 3).rows.tolist() == view.search_exact(query, 3).rows.tolist()


def test_what_is_stale_is_made_anew_without_another_plan(monkeypatch) -> None:
    catalogue, views, odd = of_arms(1_000), views_with(SLOW_COPIES), parse({"odd": True})
    ask(views, catalogue, odd, 8)
    renewed = []
    original = filter_worker.renew

    def renew(plan, snapshot, eligible, **rest):
        renewed.append((plan.strategy.staleness, eligible.count))
        return original(plan, snapshot, eligible, **rest)

    monkeypatch.setattr(filter_worker, "renew", renew)
    monkeypatch.setattr(filter_worker, "plan_filter", None)
    upsert(catalogue, 0, 400)  # of the same revisions: nothing is new
    catalogue.index.remove([str(arm) for arm in range(400)])
    upsert(catalogue, 1_000, 1_400)
    ask(views, catalogue, odd, 8)
    ((staleness, count),) = renewed
    assert staleness > known_filter.STALE
    assert count == 500
    ask(views, catalogue, odd, 8)
    assert len(renewed) == 1


def test_the_recall_of_a_graph_is_measured_again_when_another_graph_serves(monkeypatch) -> None:
    options = IndexOptions(kind="hnsw")
    index = LiveIndex(DIM, options, threads=1)
    catalogue = Catalogue("c", "0" * 16, CatalogueRecord(DIM, asdict(options)), index)
    upsert(catalogue, 0, 2_000)
    maintained(catalogue)
    views, odd = views_with(replace(ANY_SIZE, renewal_rest=0.0)), parse({"odd": True})

    def by_graph(snapshot, eligible, options, **rest):
        strategy = CatalogueGraph(snapshot, eligible, 200, most_asked=1.0)
        return FilterPlan(strategy, eligible.count, graph_number(snapshot), 1.0, 5.0, recall_at_1=0.5)

    monkeypatch.setattr(filter_worker, "plan_filter", by_graph)
    status = ask(views, catalogue, odd, 8)
    status = ask(views, catalogue, odd, 8)
    assert (status.strategy, status.recall_at_1) == ("graph", 0.5)
    upsert(catalogue, 2_000, 2_200)
    index.rest_until = 0.0
    index.limits = replace(index.limits, changed_share=0.0)
    maintained(catalogue)
    ask(views, catalogue, odd, 8)
    status = ask(views, catalogue, odd)
    assert status.strategy == "graph"
    assert status.recall_at_1 >= 0.95  # measured now, not taken over
    monkeypatch.setattr(HnswGraph, "nearest", lambda graph, query, count: np.arange(graph.arms)[-count:])
    index.rest_until = 0.0
    upsert(catalogue, 2_200, 2_300)
    maintained(catalogue)
    ask(views, catalogue, odd, 8)
    assert ask(views, catalogue, odd).strategy == "exact"


def test_a_filter_that_lets_in_few_arms_by_now_is_searched_exactly(monkeypatch) -> None:
    catalogue, views = graph_of_odd(monkeypatch, quick_numbers=999 * DIM)
    odd = parse({"odd": True})
    assert ask(views, catalogue, odd, 8).strategy == "graph"
    monkeypatch.setattr(known_filter.KnownFilter, "due", lambda *_: None)
    catalogue.index.remove(["999"])
    ask(views, catalogue, odd)
    assert ask(views, catalogue, odd).strategy == "exact"


def test_a_copy_serves_while_a_graph_of_its_own_is_degraded(monkeypatch) -> None:
    """With so many later arms it takes as long as a scan of all that are let in; the table is not scanned."""
    catalogue, views, odd = of_arms(1_000), views_with(ANY_SIZE), parse({"odd": True})
    planned_own_graph(monkeypatch, us=2.0, exact_us=10.0)
    ask(views, catalogue, odd, 8)
    assert ask(views, catalogue, odd).strategy == "own_graph"
    monkeypatch.setattr(filter_worker, "renew", None)  # nothing is made again
    monkeypatch.setattr(known_filter.KnownFilter, "due", lambda *_: None)
    for last, strategy in ((1_600, "own_graph"), (2_000, "copy")):  # .6 and 1.0 of the graph's 500 arms
        upsert(catalogue, 1_000, last)
        status = ask(views, catalogue, odd)
        assert (status.strategy, status.expected_us) == (strategy, {"own_graph": 2.0, "copy": 10.0}[strategy])
    view = asyncio.run(views.of(catalogue, odd))
    assert view.kind == "exact"
    for query in np.random.default_rng(1).standard_normal((20, DIM)):
        found = view.search(query, 3)
        assert found.exact
        assert found.rows.tolist() == view.search_exact(query, 3).rows.tolist()


def test_a_copy_serves_while_the_graph_of_the_catalogue_lacks_most_arms(monkeypatch) -> None:
    """Half of the arms came since it was built: scanning them takes longer than comparing all of the copy."""
    options = IndexOptions(kind="hnsw")
    catalogue = Catalogue("c", "0" * 16, CatalogueRecord(DIM, asdict(options)), LiveIndex(DIM, options))
    upsert(catalogue, 0, 1_000)
    maintained(catalogue)
    views, odd = views_with(replace(ANY_SIZE, renewal_rest=0.0)), parse({"odd": True})

    def by_graph(snapshot, eligible, options, **rest):
        strategy = CatalogueGraph(snapshot, eligible, 200, most_asked=1.0)
        fallback = OwnCopy.of(snapshot.table, eligible)
        return FilterPlan(strategy, eligible.count, graph_number(snapshot), 5.0, 10.0, fallback=fallback)

    monkeypatch.setattr(filter_worker, "plan_filter", by_graph)
    ask(views, catalogue, odd, 8)
    monkeypatch.setattr(filter_worker, "renew", None)
    monkeypatch.setattr(known_filter.KnownFilter, "due", lambda *_: None)
    for last, strategy in ((1_200, "graph"), (2_000, "copy")):
        upsert(catalogue, 1_000, last)
        assert ask(views, catalogue, odd).strategy == strategy
    view = asyncio.run(views.of(catalogue, odd))
    assert view.search(np.ones(DIM), 3).rows.tolist() == view.search_exact(np.ones(DIM), 3).rows.tolist()


def test_a_copy_serves_when_the_graph_of_a_filter_is_refuted(monkeypatch) -> None:
    catalogue, views, odd = of_arms(1_000), views_with(ANY_SIZE), parse({"odd": True})
    planned_own_graph(monkeypatch, us=2.0, exact_us=10.0)
    ask(views, catalogue, odd, 8)

    def refuted(plan, snapshot, eligible, **rest):
        return replace(plan, strategy=None, us=plan.exact_us, is_refuted=True)

    monkeypatch.setattr(filter_worker, "renew", refuted)
    upsert(catalogue, 1_000, 1_600)
    # private: the time of the next plan is not shown
    next(iter(views._filters._held.values()))[0].plan_from = float("inf")
    ask(views, catalogue, odd, 8)
    status = ask(views, catalogue, odd)
    assert (status.strategy, status.eligible, status.expected_us) == ("copy", 800, 10.0)


def test_a_stale_fallback_copy_is_made_anew_before_the_graph(monkeypatch) -> None:
    """Else every search goes on scanning what was let in once."""
    catalogue, views, odd = of_arms(1_000), views_with(ANY_SIZE), parse({"odd": True})
    planned_own_graph(monkeypatch, us=2.0, exact_us=10.0)
    ask(views, catalogue, odd, 8)
    monkeypatch.setattr(filter_worker, "renew", None)
    catalogue.index.remove([str(arm) for arm in range(500)])
    known = next(iter(views._filters._held.values()))[0]  # private: the time of the next plan is not shown
    known.renew_from = float("inf")
    known.plan_from = float("inf")
    ask(views, catalogue, odd, 4)
    status = ask(views, catalogue, odd)
    assert (status.strategy, status.eligible) == ("own_graph", 250)
    assert (known.fallback.staleness, known.strategy.staleness) == (0.0, 0.5)
    view = asyncio.run(views.of(catalogue, odd))
    for query in np.random.default_rng(1).standard_normal((20, DIM)):
        found = known.fallback.search(view.all_arms, query, 3, NO_ROWS)
        assert found.rows.tolist() == view.search_exact(query, 3).rows.tolist()


def planned_own_graph(monkeypatch, us: float, exact_us: float) -> None:
    """Every plan is a graph of the arms that match, which was compared with a copy of them."""
    shape = {"m": 8, "ef_construction": 50, "seed": 1, "threads": 1}

    def plan_filter(snapshot, eligible, options, **rest):
        graph = HnswGraph.build(snapshot.table, eligible.rows, check=lambda: None, **shape)
        strategy = OwnGraph(graph, eligible, ask=30, make=options.make)
        fallback = OwnCopy.of(snapshot.table, eligible)
        number = graph_number(snapshot)
        return FilterPlan(strategy, eligible.count, number, us, exact_us, fallback=fallback)

    monkeypatch.setattr(filter_worker, "plan_filter", plan_filter)
