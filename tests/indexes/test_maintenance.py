"""When work falls due, when it rests, and what the index serves meanwhile."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from app.indexes.index_limits import IndexLimits
from app.indexes.live import IndexOptions, Maintenance
from shortlist.index import hnsw
from shortlist.index.cancellation import Cancellation
from tests.indexes.brute_force import filled, limit, maintain

pytestmark = pytest.mark.rest

HNSW = IndexOptions(kind="hnsw", ef_construction=40)
RESTLESS = IndexLimits(work_rest=0.0, at_rest_s=3_600.0)  # however long a busy machine takes


def of_one_length(count, dim, seed=0):
    features = np.random.default_rng(seed).standard_normal((count, dim))
    return features / np.linalg.norm(features, axis=1)[:, None]


@pytest.fixture
def index():
    index = filled(of_one_length(2_000, 8), HNSW, limits=RESTLESS)
    assert maintain(index) == ["plan"]
    return index


def add(index, first, count, seed=1):
    features = of_one_length(count, 8, seed)
    index.upsert([str(row) for row in range(first, first + count)], features, range(first, first + count))


def measured(index, **figures):
    """The same plan as if other times had been measured."""
    index.content.plan = dataclasses.replace(index.content.plan, **figures)
    index._snapshot = None  # private: limits changed below a view that is cached


def most_are_dead(index):
    """As if nine tenths of the arms that a search comes across were dead."""
    index.content.structure.degradation.load = 0.9 * index.content.plan.ef_search
    index._snapshot = None  # private: limits changed below a view that is cached


def test_a_catalogue_settles_a_while_after_its_last_change(index):
    assert index.settles_at == np.inf  # queries can make work on a graph due
    scanned = filled(of_one_length(20, 8))
    changes = [
        lambda: add(scanned, 50, 1),
        lambda: scanned.describe(["50"], [(["new"], {})]),
        lambda: scanned.remove(["50"]),
    ]
    for change in changes:
        before = scanned.settles_at = -1.0
        change()
        assert before < scanned.written_at + scanned.limits.at_rest_s <= scanned.settles_at < np.inf


def test_fresh_arms_are_taken_over_when_to_scan_them_takes_as_long_as_a_search(index):
    measured(index, scan_us=1_000.0, expected_us=40.0)
    add(index, 2_000, 79)
    assert index.begin_maintenance() is None
    add(index, 2_079, 2)
    job = index.begin_maintenance()
    assert job.growing is index.snapshot().structure
    job.run()
    index.finish(job)
    assert (index.status().fresh, index.status().arms_in_graph) == (0, 2_081)


def test_what_came_since_is_taken_over_once_nothing_is_written_any_more(index):
    """What an import leaves outside of the index does not stay there for good; a handful may."""
    measured(index, scan_us=1_000.0, expected_us=40.0)
    add(index, 2_000, 20)
    assert index.begin_maintenance() is None
    limit(index, at_rest_s=-1.0)
    assert maintain(index) == ["plan"]
    assert index.status().fresh == 0
    measured(index, scan_us=1_000.0, expected_us=40.0)
    add(index, 2_020, 15)
    assert index.begin_maintenance() is None


def test_dead_arms_fall_due_by_how_often_they_are_found(index):
    graph = index.snapshot().structure
    often = graph.rows[np.argsort(-graph.degradation.appearances)]
    rarely = often[::-1]
    index.remove([str(row) for row in rarely[:100]])
    assert index.begin_maintenance() is None
    quiet = index.snapshot().expected_us
    index.remove([str(row) for row in often[:600]])
    found = index.snapshot()
    assert (
        found.expected_us > quiet or found.is_scanned
    )  # where so much is lost that nobody knows how good it is
    assert maintain(index)[-1] == "plan"
    assert index.status().dead in {0, 700}


def test_a_catalogue_that_became_small_loses_its_graph():
    index = filled(of_one_length(2_000, 8), HNSW, limits=RESTLESS)
    maintain(index)
    index._options = IndexOptions(kind="auto")  # private: a kind is chosen once, when the index is made
    measured(index, scan_us=1_000.0, expected_us=40.0)
    assert index.status().arms_in_graph == 2_000
    assert index.snapshot().search(np.ones(8), 3).exact, "at once"
    assert maintain(index) == ["plan"]
    assert index.status().arms_in_graph == 0
    assert index.begin_maintenance() is None


def test_a_graph_that_is_not_to_be_added_to_is_built_anew_for_what_came(index, monkeypatch):
    monkeypatch.setattr(hnsw.HnswGraph, "can_grow", False)
    measured(index, scan_us=1_000.0, expected_us=40.0)
    add(index, 2_000, 79)
    assert index.begin_maintenance() is None
    add(index, 2_079, 2)
    job = index.begin_maintenance()
    assert job.growing is None
    job.run()
    index.finish(job)
    assert index.status().fresh == 0


def test_many_changes_fall_due_though_the_size_stays():
    limits = dataclasses.replace(RESTLESS, small_numbers=1)
    index = filled(of_one_length(1_000, 8), IndexOptions(kind="exact"), limits=limits)
    assert maintain(index) == ["plan"]
    for round_ in range(5):
        assert index.begin_maintenance() is None
        index.upsert([str(row) for row in range(101)], of_one_length(101, 8), [5_000 + round_] * 101)
    assert maintain(index) == ["plan"]


def test_work_rests_as_long_as_it_took_unless_only_a_scan_is_left(index):
    index.rest_until = float("inf")
    measured(index, scan_us=1_000.0, expected_us=40.0)
    add(index, 2_000, 100)
    assert index.begin_maintenance() is None
    measured(index, scan_us=1_000.0, expected_us=800.0)
    most_are_dead(index)
    assert index.begin_maintenance() is not None


@pytest.mark.parametrize(("came", "rests"), [(1_000, True), (1_600, False)])
def test_the_rest_is_short_where_the_next_plan_is_due_already(index, came, rests):
    limit(index, work_rest=1e9, short_rest=0.0)
    add(index, 2_000, 1_100)
    job = index.begin_maintenance()
    add(index, 3_100, came)
    job.run()
    index.finish(job)
    measured(index, scan_us=1_000.0, expected_us=40.0)
    add(index, 20_000, 400)
    assert (index.begin_maintenance() is None) == rests


def test_auto_never_serves_a_graph_that_has_become_slower_than_a_scan(index):
    limit(index, small_numbers=1)
    index._options = IndexOptions(kind="auto")  # private: a kind is chosen once, when the index is made
    measured(index, scan_us=1_000.0, expected_us=800.0)
    assert index.snapshot().kind == "hnsw"
    most_are_dead(index)
    assert index.snapshot().kind == "exact"
    assert index.status().kind == "exact"
    assert index.status().recall_at_1 == 1.0
    assert index.snapshot().search(np.ones(8), 1).exact


def test_a_cancelled_build_stops_early_and_changes_nothing(index):
    add(index, 2_000, 1_500)
    before = index.snapshot().structure
    job = index.begin_maintenance()
    job.cancel()
    job.run()
    index.finish(job)
    assert index.snapshot().structure is before
    assert index.status().state == "ready"


def test_all_work_takes_turns_and_what_is_long_gives_way(index, monkeypatch):
    calls = []
    for name in ("turn", "give_way"):
        method = getattr(Cancellation, name)

        def noted(job, name=name, method=method):
            calls.append((type(job).__name__, name))
            return method(job)

        monkeypatch.setattr(Cancellation, name, noted)
    index.remove([str(row) for row in range(100)])
    add(index, 2_000, 1_500)
    for job in (index.begin_measurement(), index.begin_maintenance()):
        calls.clear()
        job.run()
        kind = type(job).__name__
        assert calls[0] == (kind, "turn")
        assert calls.count((kind, "turn")) == 1
        assert ((kind, "give_way") in calls) == isinstance(job, Maintenance)


def test_status_counts(index):
    status = index.status()
    assert (status.kind, status.state, status.size, status.fresh, status.dead) == (
        "hnsw",
        "ready",
        2_000,
        0,
        0,
    )
    assert status.memory_bytes > 2_000 * 8 * 12
    assert status.recall_at_1 >= 0.8
    assert status.ratio_min <= status.ratio_mean <= 1.0
    add(index, 2_000, 3)
    index.remove(["0", "1"])
    assert (index.status().size, index.status().fresh, index.status().dead) == (2_001, 3, 2)
