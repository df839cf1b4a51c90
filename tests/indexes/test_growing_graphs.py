"""Graphs that are added to: a copy has all arms by their right names, and the graph before is as it was."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.indexes.index_limits import IndexLimits
from app.indexes.live import IndexOptions, LiveIndex
from planned_tables import measure
from shortlist.index import graph_file
from shortlist.index.exact import scan
from shortlist.index.hnsw import HnswGraph
from shortlist.index.index import Build
from shortlist.index.probes import solve
from shortlist.index.table import longest_first
from tests.indexes.brute_force import filled, limit, maintain

pytestmark = pytest.mark.rest

HNSW = IndexOptions(kind="hnsw", m=8, ef_construction=40)
BUILD = Build(seed=1, threads=1, check=lambda: None)


def gaussian(count, dim, seed=0):
    return np.random.default_rng(seed).standard_normal((count, dim))


def ids(first, last):
    return [str(row) for row in range(first, last)]


def built(view):
    rows = longest_first(view, view.live_rows)
    graph = HnswGraph.build(view, rows, m=8, ef_construction=40, seed=1, threads=1, check=lambda: None)
    return tuned(graph)


def grown(graph, view):
    made = graph.grown(view, longest_first(view, view.live_rows), BUILD)
    return None if made is None else tuned(made)


def tuned(graph):
    graph.tuned(400, shortlist=30, most=graph.arms)
    return graph


def upsert(index, features, first, last):
    index.upsert(ids(first, last), features[first:last], range(first, last))


@pytest.mark.rest
@given(
    dim=st.integers(1, 20),
    steps=st.lists(st.integers(1, 60), min_size=1, max_size=4),
    deaths=st.sampled_from([0, 1, 7]),
    exponent=st.integers(-200, 200),
    seed=st.integers(0, 99),
)
def test_every_arm_is_found_under_its_name(dim, steps, deaths, exponent, seed):
    """Graphs of up to 340 arms, searched with ef 400: what is reached is what is there."""
    ends = 100 + np.cumsum([0, *steps])
    rng = np.random.default_rng(seed)
    features = np.ldexp(gaussian(ends[-1], dim, seed), exponent)
    features[0] *= 100.0  # so that none is much longer than those before
    index = filled(features[: ends[0]])
    graph = built(index.snapshot().table)
    for first, last in pairwise(ends):
        upsert(index, features, first, last)
        gone = rng.integers(1, last, deaths)
        index.remove([str(row) for row in gone])
        graph.tombstone(gone)
        graph = grown(graph, index.snapshot().table)
        view = index.snapshot().table
        alive = graph.rows[: view.live]
        assert (np.diff(view.norms[alive]) <= 0.0).all()
        assert sorted(alive) == sorted(view.live_rows)
        assert graph.degradation.dead == graph.arms - view.live
        for query in gaussian(5, dim, seed):
            assert graph.search(view, query, 1).rows == scan(view, query, 1).rows
        near = graph.nearest(gaussian(1, dim, seed)[0], min(view.live, 50))
        assert view.is_alive(graph.rows[near]).all()


@pytest.mark.rest
def test_the_graph_before_is_as_it_was():
    features = gaussian(3_000, 8)
    index = filled(features[:2_000])
    view = index.snapshot().table
    graph = built(view)
    queries = gaussian(50, 8, seed=3)
    before = [graph.search(view, query, 5) for query in queries]
    upsert(index, features, 2_000, 3_000)
    other = grown(graph, index.snapshot().table)
    other.tombstone(np.arange(100))
    for query, found in zip(queries, before, strict=True):
        assert np.array_equal(graph.search(view, query, 5).rows, found.rows)
    assert (graph.arms, other.arms) == (2_000, 3_000)


@pytest.mark.slow
def test_a_graph_that_grew_tenfold_finds_nearly_what_one_that_is_built_finds():
    """The false alarm: 500 probes at a recall of about .97, so .04 is more than three standard errors."""
    features, size = gaussian(20_000, 16), 2_000
    index = filled(features[:size])
    graph = built(index.snapshot().table)
    while size < len(features):
        size, before = min(int(size * 1.3), len(features)), size
        upsert(index, features, before, size)
        graph = grown(graph, index.snapshot().table)
    view = index.snapshot().table
    probes = solve(view, gaussian(500, 16, seed=4))
    recalls = []
    for each in (graph, built(view)):
        each.tuned(64, shortlist=30, most=each.arms)
        recalls.append(measure(lambda query, by=each: by.search(view, query, 1), probes).recall_at_1)
    assert recalls[0] >= recalls[1] - 0.04


@pytest.mark.rest
def test_an_arm_that_died_while_the_graph_was_copied_may_die_again():
    """The mark in the graph is copied, and the death is told of once more."""
    features = gaussian(1_200, 8)
    index = filled(features[:1_000])
    graph = built(index.snapshot().table)
    upsert(index, features, 1_000, 1_200)
    view = index.snapshot().table
    graph.tombstone(np.array([5, 6]))
    other = grown(graph, view)
    other.tombstone(np.array([5, 6, 7]))
    assert other.degradation.dead == 3
    assert not {5, 6, 7} & set(other.rows[other.nearest(np.ones(8), 500)].tolist())


@pytest.mark.rest
@pytest.mark.parametrize(("times", "fits"), [(1.0, True), (1e3, False)])
def test_arms_that_are_much_longer_do_not_fit(times, fits):
    features = gaussian(1_100, 8)
    features[0] *= 2.0
    features[1_000:] *= times
    index = filled(features[:1_000])
    graph = built(index.snapshot().table)
    upsert(index, features, 1_000, 1_100)
    assert (grown(graph, index.snapshot().table) is not None) == fits


@pytest.mark.rest
@pytest.mark.parametrize(("needed", "fits"), [(600, True), (300, False)])
def test_a_graph_that_has_mostly_what_is_not_needed_is_not_added_to(needed, fits):
    features = gaussian(1_100, 8)
    index = filled(features[:1_000])
    graph = built(index.snapshot().table)
    upsert(index, features, 1_000, 1_100)
    view = index.snapshot().table
    rows = longest_first(view, np.append(np.arange(needed), np.arange(1_000, 1_100)))
    made = graph.grown(view, rows, BUILD)
    assert (made is not None) == fits
    assert made is None or made.arms == 1_100


@pytest.mark.rest
def test_its_file_gives_it_back(tmp_path):
    features = gaussian(1_300, 8)
    index = filled(features[:1_000])
    graph = built(index.snapshot().table)
    dead = np.arange(20)
    index.remove(ids(0, 20))
    graph.tombstone(dead)
    upsert(index, features, 1_000, 1_300)
    view = index.snapshot().table
    other = grown(graph, view)
    shape = {"m": 8, "ef_construction": 40}
    graph_file.write(tmp_path / "graph", other, view)
    read = tuned(graph_file.read(tmp_path / "graph", view, **shape))
    assert (read.arms, read.degradation.dead) == (1_300, 20)
    for query in gaussian(20, 8, seed=2):
        assert read.search(view, query, 3).rows.tolist() == other.search(view, query, 3).rows.tolist()


RESTLESS = IndexLimits(work_rest=0.0, short_rest=0.0, at_rest_s=3_600.0, newer_share=0.0)


@pytest.mark.rest
def test_a_catalogue_that_grows_is_added_to_and_built_at_rest():
    features = gaussian(6_000, 8)
    index = filled(features[:2_000], HNSW, limits=RESTLESS)
    maintain(index)
    graph = index.snapshot().structure
    assert not graph.is_interim
    for first in range(2_000, 6_000, 500):
        upsert(index, features, first, first + 500)
        maintain(index)
        assert index.snapshot().structure.is_interim
        assert index.status().fresh == 0
    assert index.snapshot().structure.arms < 6_000
    limit(index, at_rest_s=-1.0)
    maintain(index)
    assert not index.snapshot().structure.is_interim
    assert index.begin_maintenance() is None


@pytest.mark.rest
def test_after_deaths_of_the_longest_it_is_built_anew_at_once():
    features = gaussian(6_000, 8)
    index = filled(features[:4_000], HNSW, limits=RESTLESS)
    maintain(index)
    upsert(index, features, 4_000, 5_000)
    maintain(index)
    assert index.snapshot().structure.is_interim
    longest = np.argsort(-np.linalg.norm(features[:5_000], axis=1))[:40]
    index.remove([str(row) for row in longest])
    maintain(index)
    assert not index.snapshot().structure.is_interim
    assert index.snapshot().structure.degradation.reserve == 99


@pytest.mark.rest
def test_what_is_kept_between_runs_is_the_last_graph_that_was_built(tmp_path):
    features = gaussian(4_000, 8)
    index = LiveIndex(8, HNSW, cache=tmp_path / "graph", limits=RESTLESS)
    upsert(index, features, 0, 2_000)
    maintain(index)
    kept = (tmp_path / "graph").read_bytes()
    upsert(index, features, 2_000, 3_000)
    maintain(index)
    assert index.snapshot().structure.is_interim
    assert (tmp_path / "graph").read_bytes() == kept


def test_arms_that_a_graph_keeps_are_no_substitutes_too():
    """Each death is counted once: a graph of which no arm is left knows that."""
    index = filled(gaussian(100, 4), HNSW)
    view = index.snapshot().table
    kept = longest_first(view, view.live_rows)[60:]  # the core has them no longer
    made = tuned(built(view).grown(view, longest_first(view, view.live_rows)[:60], BUILD))
    made.with_reserve(view, 5, kept)
    made.tombstone(view.live_rows)
    assert made.degradation.dead == made.arms == 100
