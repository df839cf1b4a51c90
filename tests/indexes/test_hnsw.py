"""The graph: what it finds, what it must never return, and when it asks for a scan instead."""

from __future__ import annotations

import numpy as np
import pytest

from app.indexes.live import IndexOptions
from shortlist.index import hnsw
from shortlist.index.exact import scan
from shortlist.index.hnsw import HnswGraph
from shortlist.index.table import longest_first
from shortlist.types import NO_ROWS
from tests.indexes.brute_force import filled, maintain

pytestmark = pytest.mark.rest


def view_of(features):
    return filled(features).snapshot().table


def built(view, rows=None, *, m=8, ef_construction=40, ef=64, shortlist=10, threads=1):
    rows = longest_first(view, view.live_rows if rows is None else rows)
    graph = HnswGraph.build(
        view, rows, m=m, ef_construction=ef_construction, seed=1, threads=threads, check=lambda: None
    )
    graph.tuned(ef, shortlist=shortlist, most=graph.arms)
    return graph


def gaussian(count, dim, seed=0):
    return np.random.default_rng(seed).standard_normal((count, dim))


def of_one_length(count, dim):
    """Arms that are all in the graph: none is too short to win."""
    features = gaussian(count, dim)
    return features / np.linalg.norm(features, axis=1)[:, None]


def test_the_dead_are_neither_returned_nor_do_they_crowd_out_the_living():
    features = of_one_length(1_000, 8)
    features[:90] *= 1.1
    index = filled(features, IndexOptions(kind="hnsw", ef_search=64, ef_construction=40))
    maintain(index)
    longest = np.arange(90)
    index.remove([str(row) for row in longest])
    snapshot = index.snapshot()
    assert snapshot.kind == "hnsw"
    hits = 0
    for query in gaussian(100, 8, seed=4):
        found = snapshot.search(query, 10)
        assert not found.exact
        assert len(set(found.rows.tolist())) == 10
        assert not set(found.rows.tolist()) & set(longest.tolist())
        hits += found.rows[0] == snapshot.search_exact(query, 1).rows[0]
    assert hits >= 95


def test_who_dies_while_the_graph_is_built_is_marked_when_it_serves():
    index = filled(of_one_length(300, 4), IndexOptions(kind="hnsw"))
    job = index.begin_maintenance()
    index.remove(["7", "8"])
    index.upsert(["9"], np.ones((1, 4)), [1_000])
    job.run()
    index.finish(job)
    graph = index.snapshot().structure
    assert (graph.degradation.dead, index.status().fresh) == (3, 1)
    found = {label for query in gaussian(40, 4, seed=5) for label in graph.nearest(query, 200).tolist()}
    assert not found & {graph.rows.tolist().index(row) for row in (7, 8, 9)}


@pytest.mark.parametrize("excluded", [1, 9, 60])
def test_the_excluded_are_replaced_by_the_next_best(excluded):
    view = view_of(gaussian(1_000, 6))
    graph = built(view, ef=500)
    for query in gaussian(20, 6, seed=5):
        best = graph.search(view, query, excluded + 10).rows
        exclude = best[:excluded]
        found = graph.search(view, query, 5, exclude)
        assert found.rows.tolist() == best[excluded : excluded + 5].tolist()


def test_unreachable_arms_make_it_ask_for_a_scan():
    """What hnswlib calls "Cannot return the results in a contiguous 2D array": the caller scans instead."""
    view = view_of(gaussian(50, 4))
    graph = built(view)
    query = np.ones(4)
    assert graph.nearest(query, 51) is None
    graph.tombstone(np.arange(45))
    assert graph.nearest(query, 10) is None
    index = filled(of_one_length(50, 4), IndexOptions(kind="hnsw", shortlist=40))
    maintain(index)
    graph = index.snapshot().structure
    for label in range(40):
        graph.native.mark_deleted(label)  # behind the index's back: as if they could not be reached
    found = index.snapshot().search(query, 20)
    assert found.exact
    assert found.rows.tolist() == index.snapshot().search_exact(query, 20).rows.tolist()


def test_more_than_it_holds_makes_it_ask_for_a_scan():
    view = view_of(gaussian(100, 4))
    core = view.live_rows[:30]
    graph = built(view, core)
    query = np.ones(4)
    assert graph.search(view, query, 31) is None
    assert graph.search(view, query, 30, core[:5]) is None
    assert len(graph.search(view, query, 25, core[:5]).rows) == 25
    graph.tuned(64, shortlist=10, most=20)
    assert graph.search(view, query, 11) is None
    assert graph.search(view, query, 1, np.arange(11)) is None


def test_the_load_of_a_dead_arm_is_how_often_it_is_found():
    view = view_of(gaussian(500, 4))
    graph = built(view, ef=16)
    probes = gaussian(200, 4, seed=8)
    graph.weigh(probes)
    found = [graph.rows[graph.nearest(query, 16)] for query in probes]
    graph.tombstone(found[0])
    expected = np.mean([np.isin(rows, found[0]).sum() for rows in found])
    assert graph.degradation.load == pytest.approx(expected, rel=1e-5)


def test_a_compaction_moves_the_graph_along():
    features = gaussian(400, 5)
    index = filled(features)
    graph = built(index.snapshot().table)
    index.remove([str(row) for row in range(0, 400, 2)])
    before = index.snapshot().table
    graph.tombstone(before.dead)
    places = np.full(400, -1)
    places[before.live_rows] = np.arange(200)
    moved = graph.moved(places, covered=200)
    after = filled(features[1::2]).snapshot().table
    for query in gaussian(30, 5, seed=6):
        found = moved.search(after, query, 5, NO_ROWS)
        assert (2 * found.rows + 1).tolist() == graph.search(before, query, 5).rows.tolist()


@pytest.mark.parametrize("scale", [1.0, 3e-9, 7e11])
def test_the_longest_arms_are_never_missed_because_the_head_is_scanned(monkeypatch, scale):
    index = filled(gaussian(8_000, 16) * scale)
    view = index.snapshot().table
    graph = built(view, ef=1)
    queries = gaussian(300, 16, seed=8)
    winners = [scan(view, query, 1).rows.item() for query in queries]

    def missed(rows):
        found = [graph.search(view, query, 1).rows.item() for query in queries]
        return [row for row, wanted in zip(found, winners, strict=True) if wanted in rows and row != wanted]

    longest = np.argsort(-view.norms)[:500].tolist()
    assert len(missed(longest)) > 20, "the graph alone misses some of them"
    graph.with_head(view, numbers=500 * 16)
    counts, ranked = [], hnsw.ranked

    def counted(rows, *arguments, **options):
        counts.append(len(rows))
        return ranked(rows, *arguments, **options)

    monkeypatch.setattr(hnsw, "ranked", counted)
    assert missed(longest) == []
    assert 1.0 < np.mean(counts) < 1.8, "the head's best is scored again only if it could be the best"
    index.remove([str(row) for row in longest[:50]])
    later = index.snapshot().table
    for query in queries:
        found = graph.search(later, query, 5)
        assert found is None or (
            len(set(found.rows.tolist())) == 5 and not set(found.rows.tolist()) & set(longest[:50])
        )
    graph.tombstone(np.array(longest[:50]))
    for query in queries[:50]:
        best = [row for row in scan(later, query, 5).rows.tolist() if row in longest]
        assert set(best) <= set(graph.search(later, query, 5).rows.tolist())


@pytest.mark.parametrize("k", [1, 3])
def test_more_deaths_than_the_reserve_are_searched_where_nobody_stands_in(k):
    index = filled(gaussian(500, 5))
    graph = built(index.snapshot().table)
    graph.with_reserve(index.snapshot().table, 5, NO_ROWS)
    longest = np.argsort(-index.snapshot().table.norms)[:8]
    index.remove([str(row) for row in longest.tolist()])
    graph.tombstone(longest)
    assert graph.degradation.missing > 0
    found = graph.search(index.snapshot().table, gaussian(1, 5, seed=6)[0], k)
    assert len(found.rows) == k
    assert not set(found.rows.tolist()) & set(longest.tolist())


@pytest.mark.parametrize(
    ("name", "k", "scored_least", "scored_most"),
    [
        ("gaussian", 1, 1.0, 1.1),
        ("gaussian", 4, 4.0, 4.1),
        ("in pairs", 1, 1.8, 2.1),
        ("in pairs", 3, 3.5, 4.1),
        ("a giant that no query asks for", 1, 2.0, 20.0),
        ("a giant that no query asks for", 4, 5.0, 20.0),
    ],
)
def test_nothing_that_could_be_the_best_is_left_unscored(monkeypatch, name, k, scored_least, scored_most):
    """The answer is that of scoring all that the graph proposes, of which a few are enough mostly."""
    features = gaussian(1_000, 7)
    if name == "in pairs":
        features = np.repeat(features[:500], 2, axis=0)
    elif name.startswith("a giant"):
        features[0] = 1e5 * np.eye(7)[6]
    view = view_of(features)
    graph, scored, ranked = built(view, shortlist=20), [], hnsw.ranked

    def counted(rows, *arguments, **options):
        scored.append(len(rows))
        return ranked(rows, *arguments, **options)

    monkeypatch.setattr(hnsw, "ranked", counted)
    for query in gaussian(50, 7, seed=5) * (np.arange(7) < 6):
        labels = graph.nearest(query, 20)
        if labels is None:  # equal arms may be cut off from each other
            continue
        wanted = ranked(graph.rows[labels], k, view.features, query)
        found = graph.search(view, query, k)
        assert found.rows.tolist() == wanted.rows.tolist()
        assert found.scores.tolist() == wanted.scores.tolist()
    assert len(scored) > 25
    assert scored_least <= np.mean(scored) <= scored_most
