"""What is kept of filters while their catalogue changes."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace

import numpy as np
import pytest

from app.catalogues.catalogue import Catalogue
from app.filtering import filter_plan, filter_worker
from app.filtering.filter_plan import FilterPlan, graph_number
from app.filtering.filtered_snapshots import LOOK_EVERY, FilteredSnapshots
from app.filtering.known_filter import PLAN_AFTER, FilterStatus
from app.filtering.limits import FilterLimits
from app.filtering.strategies import CatalogueGraph
from app.filters.filter import Filter, parse
from app.indexes.live import IndexOptions, LiveIndex
from app.records.records import CatalogueRecord

DIM = 4
ANY_SIZE = FilterLimits(small_numbers=-1, quick_numbers=0)
"""Filters that match a few arms are planned as others are."""
SLOW_COPIES = FilterLimits(small_numbers=-1, least_speedup=0.0)
"""A copy of the arms serves, however slow it is."""


def views_with(limits: FilterLimits) -> FilteredSnapshots:
    return FilteredSnapshots(capacity_bytes=1 << 24, limits=limits)


def upsert(catalogue: Catalogue, first: int, last: int) -> None:
    ids = [str(arm) for arm in range(first, last)]
    features = np.random.default_rng(first).standard_normal((len(ids), DIM))
    catalogue.index.upsert(ids, features, range(first, last))
    catalogue.index.describe(ids, [((), {"odd": arm % 2 == 1}) for arm in range(first, last)])


def of_arms(count: int) -> Catalogue:
    record = CatalogueRecord(DIM, asdict(IndexOptions()))
    catalogue = Catalogue("c", "0" * 16, record, LiveIndex(DIM))
    upsert(catalogue, 0, count)
    return catalogue


def ask(views: FilteredSnapshots, catalogue: Catalogue, wanted: Filter, times: int = 1) -> FilterStatus:
    """Ask this often, wait for what is begun then, and show the filter."""

    async def asked() -> None:
        for _ in range(times):
            (await views.of(catalogue, wanted)).search(np.ones(DIM), 1)
        working = asyncio.all_tasks() - {asyncio.current_task()}
        if working:
            await asyncio.wait(working)

    asyncio.run(asked())
    return next(status for status in views.in_use(catalogue, 10) if status.filter == wanted.document)


def compact(catalogue: Catalogue) -> None:
    limits = catalogue.index.limits
    catalogue.index.limits = replace(limits, least_dead=0, dead_share=0.0)
    job = catalogue.index.begin_maintenance()
    catalogue.index.limits = limits
    table = catalogue.index.snapshot().table.number
    job.run()
    catalogue.index.finish(job)
    assert catalogue.index.snapshot().table.number != table


@pytest.mark.parametrize("compacted", [False, True])
def test_what_is_told_of_a_graph_falls_when_the_best_arms_of_its_probes_die(compacted, monkeypatch) -> None:
    """Until it was measured again; where most of them died, every arm that matches is compared."""
    catalogue, views = graph_of_odd(monkeypatch)
    renewed = []
    monkeypatch.setattr(filter_worker, "renew", lambda plan, *given, **rest: renewed.append(plan) or plan)
    odd = parse({"odd": True})
    status = ask(views, catalogue, odd, 8)
    assert (status.strategy, status.recall_at_1, status.ratio_mean) == ("graph", 1.0, 1.0)
    assert not renewed
    catalogue.index.remove(["1", "3"])
    if compacted:
        compact(catalogue)
    status = ask(views, catalogue, odd)
    assert (status.strategy, status.recall_at_1, status.ratio_mean) == ("graph", 0.8, 0.8)
    status = ask(views, catalogue, odd, LOOK_EVERY)
    assert (status.strategy, status.recall_at_1, status.ratio_mean) == ("graph", 0.8, 0.8)
    assert len(renewed) == 1
    catalogue.index.remove(["5", "7", "9"])
    ask(views, catalogue, odd)
    assert ask(views, catalogue, odd).strategy == "exact"
    assert ask(views, catalogue, odd).recall_at_1 == 1.0


def test_the_best_arms_of_probes_are_followed_through_one_compaction_and_not_through_two() -> None:
    catalogue = of_arms(100)
    best = filter_plan.Winners(catalogue.index.snapshot().table.number, (np.array([20, 30, 40]),))
    found = []
    for gone in (["0", "30"], ["1", "40"]):
        catalogue.index.remove(gone)
        compact(catalogue)
        snapshot = catalogue.index.snapshot()
        found.append((best.followed(snapshot.table), snapshot.rows_of(["20", "40"]).tolist()))
    (once, (arm20, arm40)), (twice, (later20,)) = found
    assert once.groups[0].tolist() == [arm20, -1, arm40]
    assert once.followed(snapshot.table).groups[0].tolist() == [later20, -1, -1]
    assert twice.groups[0].tolist() == [-1, -1, -1]


def test_what_was_planned_serves_the_next_search() -> None:
    catalogue, views, odd = of_arms(1_000), views_with(SLOW_COPIES), parse({"odd": True})
    ask(views, catalogue, odd, PLAN_AFTER)
    assert not asyncio.run(views.of(catalogue, odd)).is_scanned


def graph_of_odd(monkeypatch, quick_numbers: int = 0) -> tuple[Catalogue, FilteredSnapshots]:
    """Plans say that the graph of 2,000 arms serves; the best of its ten probes are arms 1, 3, ... 19."""
    options = IndexOptions(kind="hnsw")
    catalogue = Catalogue("c", "0" * 16, CatalogueRecord(DIM, asdict(options)), LiveIndex(DIM, options))
    upsert(catalogue, 0, 2_000)
    maintained(catalogue)

    def by_graph(snapshot, eligible, options, **rest):
        strategy = CatalogueGraph(snapshot, eligible, 200, most_asked=1.0)
        best = filter_plan.Winners(snapshot.table.number, (eligible.rows[:10],))
        return FilterPlan(strategy, eligible.count, graph_number(snapshot), 1.0, 5.0, winners=best)

    monkeypatch.setattr(filter_worker, "plan_filter", by_graph)
    return catalogue, views_with(replace(ANY_SIZE, quick_numbers=quick_numbers))


def maintained(catalogue: Catalogue) -> None:
    job = catalogue.index.begin_maintenance()
    assert job is not None
    job.run()
    catalogue.index.finish(job)
    assert catalogue.index.snapshot().kind == "hnsw"
