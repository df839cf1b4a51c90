"""What is kept of filters while their catalogue changes."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import asdict

import numpy as np
from waiting import wait_until

from app.filters.filter import parse
from app.indexes import filter_plan
from app.indexes.hnsw import HnswGraph, arm_bytes
from app.indexes.live import IndexOptions, LiveIndex
from app.services.catalogues import filtered_views
from app.services.catalogues.catalogues import Catalogue
from app.services.catalogues.filtered_views import PLAN_AFTER, FilteredViews
from app.services.formats.records import CatalogueRecord

DIM = 4


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


def test_long_filters_count_for_what_they_take_and_are_not_shown() -> None:
    catalogue, views = of_arms(10), FilteredViews(capacity_bytes=1 << 20)
    for name in "abc":
        asyncio.run(views.of(catalogue, parse({name: {"$in": [f"{i:08000}" for i in range(50)]}})))
    assert 1 << 20 < views.bytes < 2 << 20  # the newest alone
    asyncio.run(views.of(catalogue, parse({"odd": True})))
    assert [status.filter for status in views.in_use(catalogue, 10)] == [{"odd": True}]


def test_a_graph_that_there_is_no_memory_for_is_not_built(monkeypatch) -> None:
    """Building one of 500,000 arms takes minutes, in every plan."""
    monkeypatch.setattr(filtered_views, "LEAST_PLANNED", 0)
    monkeypatch.setattr(filter_plan, "QUICK_NUMBERS", 0)
    built: list[int] = []
    original = HnswGraph.build

    def build(view, rows, **options):
        built.append(len(rows))
        return original(view, rows, **options)

    monkeypatch.setattr(HnswGraph, "build", build)
    for capacity, expected in ((2 * 250 * arm_bytes(DIM, 16), []), (1 << 24, [500])):
        asyncio.run(asked_often(of_arms(1_000), FilteredViews(capacity_bytes=capacity)))
        assert built == expected


async def asked_often(catalogue: Catalogue, views: FilteredViews) -> None:
    for _ in range(filtered_views.GRAPH_AFTER):
        await views.of(catalogue, parse({"odd": True}))
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})


def test_a_plan_that_waits_for_its_turn_is_of_one_moment(monkeypatch) -> None:
    """Arms that came while another filter was planned are in the snapshot as well as in the rows."""
    asyncio.run(plan_two(monkeypatch))


async def plan_two(monkeypatch) -> None:
    monkeypatch.setattr(filtered_views, "LEAST_PLANNED", 0)
    begun, go_on = threading.Event(), threading.Event()
    original, planned = filtered_views.plan_filter, []

    def slow(snapshot, eligible, options, **rest):
        begun.set()
        assert go_on.wait(30)
        planned.append(eligible.is_of(snapshot.view, snapshot.attributes))
        return original(snapshot, eligible, options, **rest)

    monkeypatch.setattr(filtered_views, "plan_filter", slow)
    catalogue = of_arms(100)
    views = FilteredViews(capacity_bytes=1 << 20)
    filters = [parse({"odd": odd}) for odd in (True, False)]
    for wanted in filters:
        for _ in range(PLAN_AFTER):
            await views.of(catalogue, wanted)
    await asyncio.to_thread(wait_until, begun.is_set, what="the first filter is planned")
    upsert(catalogue, 100, 300)
    for wanted in filters:
        assert (await views.of(catalogue, wanted)).size == 150
    go_on.set()
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})
    assert planned == [True, True]
    assert {status.reason for status in views.in_use(catalogue, 2)} != {"not measured yet"}
