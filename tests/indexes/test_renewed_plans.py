"""Plans of filters that are renewed, measured again and given up."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import settings
from test_filtered_search import (
    DIM,
    Shop,
    brute,
    built,
    numbered,
    options,
    own_graph,
    planned,
    searched,
    shop,
)

from app.filtering.filter_plan import FilterPlan, renew
from app.filtering.filtered_snapshot import without_rows
from app.filtering.strategies import CatalogueGraph, OwnBlocks, OwnCopy, OwnGraph, SearchStrategy
from app.filters.filter import parse
from app.indexes.eligible_rows import EligibleRows, eligible_rows
from app.indexes.filtered_search import mask
from app.indexes.live import IndexOptions, LiveIndex
from app.indexes.snapshot import Snapshot
from shortlist.index.hnsw import HnswGraph
from shortlist.index.table import TableSnapshot
from shortlist.types import NO_ROWS, Rows, Vector

pytestmark = pytest.mark.rest


def test_a_new_filter_of_few_arms_takes_no_memory_for_the_others():
    """A byte for each arm would be 60,000."""
    snapshot = numbered(60_000)
    filters = [parse({"lot": {"$lt": bound}}) for bound in (10, 11)]
    eligible_rows(filters[0], snapshot.table, snapshot.attributes)
    gc.collect()
    tracemalloc.start()
    try:
        found = eligible_rows(filters[1], snapshot.table, snapshot.attributes)
        assert found.rows.tolist() == list(range(11))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 30_000


def test_a_scan_of_some_rows_takes_no_memory_for_the_features():
    """A product with ``np.dot`` copies the features of a table that has spare rows: 240,000 bytes."""
    snapshot = numbered(20_000)
    eligible = eligible_rows(parse({"lot": {"$gte": 10_000}}), snapshot.table, snapshot.attributes)
    query = np.ones(DIM)
    mask(snapshot.table, eligible, query, 2, NO_ROWS)  # what is kept for a thread
    tracemalloc.start()
    try:
        mask(snapshot.table, eligible, query, 2, NO_ROWS)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 120_000


@pytest.mark.parametrize("k", [1, 3])
def test_a_catalogue_that_is_scanned_is_scanned_once_without_some_rows(k, monkeypatch):
    """To ask it for more arms than are wanted, and again where too few are left, takes longer."""
    snapshot, rng = numbered(500, dead=range(0, 500, 50)), np.random.default_rng(3)
    scans: list[int] = []
    monkeypatch.setattr("app.indexes.snapshot.scan", lambda *_, **__: scans.append(1))
    for share in (0.02, 0.2, 0.8):
        gone = rng.random(500) < share
        left = without_rows(snapshot, gone)
        living = np.flatnonzero(~gone & (np.arange(500) % 50 > 0))
        for query in rng.normal(size=(30, DIM)):
            exclude = np.array(brute(snapshot, living, query, 2)[:1])
            for struck in (NO_ROWS, exclude):
                rows = np.setdiff1d(living, struck)
                assert left.search(query, k, struck).rows.tolist() == brute(snapshot, rows, query, k)
    assert not scans


@pytest.mark.slow
class TestShopForLong(Shop.TestCase):
    settings = settings(max_examples=100, stateful_step_count=30)


def renewed(
    plan: FilterPlan, snapshot: Snapshot, eligible: EligibleRows, recent: Sequence[Vector] = ()
) -> FilterPlan:
    rng = np.random.default_rng(3)
    return renew(plan, snapshot, eligible, target_recall=0.95, recent=recent, rng=rng)


def served_by(strategy: SearchStrategy, eligible: EligibleRows) -> FilterPlan:
    return FilterPlan(strategy, eligible.count, None, 1.0, 5.0)


def test_without_memory_for_a_copy_there_is_none():
    _, snapshot = shop(4_000)
    _, plan = planned(snapshot, parse({"even": True}), options(copies=0))
    assert not isinstance(plan.strategy, OwnCopy | OwnBlocks)  # type: ignore[attr-defined]


def test_a_graph_that_finds_too_few_leaves_the_search_to_an_exact_one(monkeypatch: pytest.MonkeyPatch):
    _, snapshot = shop(2_000)
    eligible = eligible_rows(parse({"even": True}), snapshot.table, snapshot.attributes)
    asked: list[int] = []

    def too_few(graph: HnswGraph, query: Vector, count: int) -> Sequence[int] | None:
        asked.append(count)
        odd = np.flatnonzero(~eligible.mask[graph.rows])
        return odd[:count]

    monkeypatch.setattr(HnswGraph, "nearest", too_few)
    view = searched(CatalogueGraph(snapshot, eligible, 10), snapshot, eligible)
    query = np.random.default_rng(1).normal(size=8)
    found = view.search(query, 2)
    assert asked == [20]
    assert found.rows.tolist() == brute(snapshot, eligible.rows, query, 2)
    assert found.exact


@pytest.mark.parametrize("kind", ["copy", "blocks", "own_graph"])
def test_what_was_built_before_a_change_keeps_to_the_filter_after_it(kind: str):
    index, snapshot = shop(300)
    wanted = parse({"even": True})
    before = eligible_rows(wanted, snapshot.table, snapshot.attributes)
    strategy: SearchStrategy = (
        OwnBlocks.of(snapshot.table, before) if kind == "blocks" else OwnCopy.of(snapshot.table, before)
    )
    if kind == "own_graph":
        strategy = own_graph(built(before.rows, snapshot), before)
    query = np.random.default_rng(4).normal(size=8)
    order = [snapshot.id_of(row) for row in brute(snapshot, snapshot.table.live_rows, query, 300)]
    even = [name for name in order if int(name[1:]) % 2 == 0]
    odd = next(name for name in order if int(name[1:]) % 2)
    index.describe(even[:2], [([], {"even": False})] * 2)
    index.remove(even[2:3])
    index.describe([odd], [([], {"even": True})])
    snapshot = index.snapshot()
    eligible = eligible_rows(wanted, snapshot.table, snapshot.attributes, before)
    view = searched(strategy.followed(snapshot, eligible), snapshot, eligible)
    found = [view.id_of(row) for row in view.search(query, 4).rows.tolist()]
    expected = [name for name in order if name in {odd, *even[3:]}]
    assert found == expected[:4]
    out = snapshot.rows_of(expected[:1])
    assert [view.id_of(row) for row in view.search(query, 4, out).rows.tolist()] == expected[1:5]


def test_blocks_by_norm_are_not_tried_where_all_norms_are_equal(monkeypatch: pytest.MonkeyPatch):
    tried: list[int] = []
    original = OwnBlocks.of

    def noted(view: TableSnapshot, eligible: EligibleRows) -> OwnBlocks:
        tried.append(eligible.count)
        return original(view, eligible)

    monkeypatch.setattr(OwnBlocks, "of", noted)
    for is_unit in (True, False):
        index = LiveIndex(8, IndexOptions(kind="exact"))
        features = np.random.default_rng(3).normal(size=(600, 8))
        if is_unit:
            features /= np.linalg.norm(features, axis=1, keepdims=True)
        index.upsert([f"a{number}" for number in range(600)], features, range(600))
        planned(index.snapshot(), parse({}), options())
        assert tried == ([] if is_unit else [600])


def test_what_is_renewed_is_of_the_arms_of_now_and_measured_on_them():
    index, snapshot = shop(600)
    wanted = parse({"even": True})
    before = eligible_rows(wanted, snapshot.table, snapshot.attributes)
    plan = served_by(own_graph(built(before.rows, snapshot), before), before)
    index.remove([f"a{number}" for number in range(0, 300, 2)])
    snapshot = index.snapshot()
    eligible = eligible_rows(wanted, snapshot.table, snapshot.attributes, before)
    again = renewed(plan, snapshot, eligible)
    assert isinstance(again.strategy, OwnGraph)
    assert (again.strategy.staleness, again.recall_at_1, again.is_refuted) == (0.0, 1.0, False)
    assert again.us != plan.us


def test_a_graph_that_falls_short_serves_no_longer(monkeypatch: pytest.MonkeyPatch):
    _, snapshot = shop(2_000)
    eligible = eligible_rows(parse({"even": True}), snapshot.table, snapshot.attributes)
    plan = served_by(CatalogueGraph(snapshot, eligible, 200, most_asked=1.0), eligible)
    assert not renewed(plan, snapshot, eligible).is_refuted
    monkeypatch.setattr(HnswGraph, "nearest", lambda graph, query, count: np.arange(graph.arms)[-count:])
    refuted = renewed(plan, snapshot, eligible)
    assert refuted.is_refuted
    assert (refuted.strategy, refuted.recall_at_1) == (None, 1.0)
    assert "recall" in refuted.reason


def test_a_graph_is_measured_where_it_is_asked(monkeypatch: pytest.MonkeyPatch):
    """It misses one in eight of the queries that look one strategy, and none of all others."""
    _, snapshot = shop(2_000)
    eligible = eligible_rows(parse({"even": True}), snapshot.table, snapshot.attributes)
    plan = served_by(CatalogueGraph(snapshot, eligible, 200, most_asked=1.0), eligible)
    recent = np.random.default_rng(1).normal(size=(100, 8)) + np.eye(8)[0] * 20
    nearest, asked = HnswGraph.nearest, 0

    def misses(graph: HnswGraph, query: Vector, count: int) -> Rows | None:
        nonlocal asked
        is_one_way = bool(query[0] > 0.9 * np.linalg.norm(query))
        asked += is_one_way
        found = nearest(graph, query, count)
        if found is None or not is_one_way or asked % 8 != 1:
            return found
        return np.delete(found, eligible.mask[graph.rows[found]].argmax())

    assert not renewed(plan, snapshot, eligible, list(recent)).is_refuted
    monkeypatch.setattr(HnswGraph, "nearest", misses)
    assert renewed(plan, snapshot, eligible, list(recent)).is_refuted


def test_copies_of_a_plan_are_made_anew_without_measuring(monkeypatch: pytest.MonkeyPatch):
    _, snapshot = shop(300)
    eligible = eligible_rows(parse({"even": True}), snapshot.table, snapshot.attributes)
    monkeypatch.setattr("app.filtering.filter_plan.compare", None)
    again = renewed(served_by(OwnCopy.of(snapshot.table, eligible), eligible), snapshot, eligible)
    assert isinstance(again.strategy, OwnCopy)
