"""What searches find, and what is told of it, after the arms died that most queries were answered with."""

from __future__ import annotations

import numpy as np
import pytest

from app.indexes.index_limits import IndexLimits
from app.indexes.live import IndexOptions
from planned_tables import measure
from shortlist.index import hnsw, planner
from shortlist.index.probes import Quality, Trial
from shortlist.index.quality import Degradation
from tests.indexes.brute_force import filled, limit, maintain, measure_anew

ARMS, DIM = 8_000, 32
POOR = IndexOptions(kind="hnsw", ef_search=16, shortlist=5, m=6, ef_construction=30)
"""A graph that finds little beyond its head: the worst of those that a planner would take."""
QUERIES = 400
LUCK = 4.0 * 0.025  # four standard errors of a recall of .8 or more on so few of each group of probes


def lognormal(count=ARMS, dim=DIM, sigma=0.25, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((count, dim))
    return features * (rng.lognormal(0.0, sigma, (count, 1)) / np.linalg.norm(features, axis=1)[:, None])


def longest(features):
    return np.argsort(-np.linalg.norm(features, axis=1))


def drawn(seed=9, count=QUERIES, dim=DIM):
    return np.random.default_rng(seed).standard_normal((count, dim))


def narrow(tastes=20, seed=9):
    """What users with rewards ask: each near one direction, again and again."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((tastes, 1, DIM))
    return (centres + 0.1 * rng.standard_normal((tastes, QUERIES // tastes, DIM))).reshape(-1, DIM)


def recall(index, queries, k=1):
    snapshot = index.snapshot()
    found = [
        np.isin(snapshot.search_exact(query, k).rows, snapshot.search(query, k).rows) for query in queries
    ]
    return float(np.mean(found))


def remove(index, arms):
    index.remove([str(arm) for arm in arms])


RESTLESS = IndexLimits(work_rest=0.0, measuring_rest=0.0, much_lost=0.0)


@pytest.fixture
def poor_graph():
    """An index with a graph, and the arms in it, longest first."""
    features = lognormal()
    index = filled(features, POOR, seed=1, threads=1, limits=RESTLESS)
    job = index.begin_maintenance()
    job.run()
    index.finish(job)
    assert index.status().recall_at_1 > 0.97
    return index, features


@pytest.mark.parametrize(
    "queries",
    [pytest.param(drawn(), id="drawn"), pytest.param(narrow(), id="narrow", marks=pytest.mark.slow)],
)
def test_never_is_more_told_than_is_found_while_the_longest_die(poor_graph, queries):
    """Of drawn and of narrow queries. False alarm: below 1e-3, by four standard errors."""
    index, features = poor_graph
    order, at = longest(features), 0
    for until in (20, 40, 80, 160, 240, 400, 640):
        remove(index, order[at:until])
        at = until
        for _ in range(2):
            assert index.status().recall_at_1 <= recall(index, queries) + LUCK
            if (job := index.begin_measurement()) is not None:
                job.run()
                index.finish(job)
        assert index.status().state == "ready"


@pytest.mark.rest
@pytest.mark.parametrize("k", [10, 100])
def test_never_is_more_told_of_lists_than_is_found_though_the_best_of_each_lives(poor_graph, k):
    """A taste loses its second to thirtieth arm. False alarm: below 1e-3, by four standard errors."""
    index, features = poor_graph
    graph, taste = index.snapshot().structure, drawn(seed=3)[0]
    graph.tuned(16, shortlist=5, most=10_000)
    graph.tuned_for_lists(16)
    queries = taste + 0.05 * drawn(seed=4, count=100)
    for query in queries:
        index.snapshot().search(query, 1)
    remove(index, graph.rows[-20:])
    measure_anew(index)
    graph.tuned_for_lists(16)
    remove(index, np.argsort(-(features @ taste))[1:30])
    for is_measured in (False, True):
        if is_measured:
            measure_anew(index)
        status, found = index.status(), recall(index, queries, k)
        assert status.kind == "hnsw"
        assert (status.recall_at_10 if k == 10 else status.recall_at_100) <= found + LUCK
        assert found == 1.0 or k == 100, "what nobody knows, or is too little, is scanned"


@pytest.mark.rest
def test_all_arms_are_scanned_until_the_recall_is_known_again_where_most_winners_died(poor_graph):
    index, features = poor_graph
    remove(index, longest(features)[:300])
    status = index.status()
    assert (status.kind, status.recall_at_1) == ("exact", 1.0)
    assert index.snapshot().search(drawn()[0], 1).exact
    measure_anew(index)
    status = index.status()
    assert status.kind == "hnsw"
    assert status.recall_at_1 < 0.95
    assert index.begin_maintenance() is not None, "the graph found more when it was planned"


def test_lists_are_scanned_where_the_graph_has_too_few_of_their_arms(poor_graph):
    """More of the ten best are outside of the graph than of the best, whom the substitutes stand in for."""
    index, features = poor_graph
    graph = index.snapshot().structure
    graph.tuned(16, shortlist=5, most=10_000)
    graph.tuned_for_lists(16)
    remove(index, longest(features)[:240])
    measure_anew(index)
    assert index.status().kind == "hnsw"
    assert index.status().recall_at_10 == recall(index, drawn(count=50), 10) == 1.0
    graph.tuned_for_lists(16)
    assert recall(index, drawn(count=50), 10) < 0.9, "else nothing was wrong with them"


@pytest.mark.rest
def test_a_little_is_lost_at_once_and_the_rest_is_measured(poor_graph):
    index, features = poor_graph
    before = index.status()
    remove(index, longest(features)[:20])
    lost = index.status()
    assert lost.kind == "hnsw"
    assert lost.recall_at_1 < before.recall_at_1 - 0.02
    assert lost.recall_at_10 < before.recall_at_10
    assert lost.ratio_min == 0.0
    measure_anew(index)
    assert index.status().recall_at_1 > lost.recall_at_1
    assert index.status().ratio_min > 0.5
    assert index.begin_measurement() is None, "nothing died since"


@pytest.mark.rest
def test_the_end_of_one_taste_is_noticed(poor_graph):
    """The thirty best arms of one direction: few of the drawn probes were answered with them."""
    index, features = poor_graph
    taste = drawn(seed=3)[0]
    near, told = taste + 0.05 * drawn(seed=4), index.status().recall_at_1
    remove(index, np.argsort(-(features @ taste))[:30])
    found = recall(index, near)
    assert found < told - 0.1, "else there is nothing to notice"
    assert index.status().recall_at_1 < told
    measure_anew(index)
    assert index.status().recall_at_1 <= recall(index, near) + LUCK
    job = index.begin_maintenance()
    assert not job.compaction
    job.run()
    index.finish(job)
    assert index.status().recall_at_1 - LUCK <= recall(index, near) > found


@pytest.mark.rest
def test_the_end_of_a_taste_is_noticed_when_its_users_come_back(poor_graph):
    """Nobody asked for it when the recall was measured."""
    index, features = poor_graph
    limit(index, same_rest=0.0)
    taste = drawn(seed=3)[0]
    remove(index, np.argsort(-(features @ taste))[:30])
    measure_anew(index)
    told = index.status().recall_at_1
    assert index.begin_measurement() is None
    near = taste + 0.05 * drawn(seed=4)
    found = recall(index, near)
    measure_anew(index)
    status = index.status()
    assert found < told - 0.1
    assert status.kind == "exact" or status.recall_at_1 <= found + LUCK


@pytest.mark.rest
def test_the_head_is_always_of_the_longest_that_live(poor_graph, monkeypatch):
    """They are found by every search, as ever. The graph of ef 1 alone misses many of them."""
    index, features = poor_graph
    graph = index.snapshot().structure
    graph.tuned(1, shortlist=1, most=graph.arms)
    order = longest(features)
    for at in range(0, 900, 45):
        remove(index, order[at : at + 45])
        view = index.snapshot().table
        kept = set(order[at + 45 :][: int(0.9 * hnsw.HEAD_NUMBERS / DIM)].tolist())
        for query in drawn(seed=at, count=40):
            best = int(index.snapshot().search_exact(query, 1).rows[0])
            assert best not in kept or graph.search(view, query, 1).rows.tolist() == [best]
    copies = []
    monkeypatch.setattr(hnsw.ExactOverlay, "labelled", lambda *given: copies.append(given))
    for arm in order[900:930]:
        remove(index, [arm])
        index.snapshot()
    assert not copies, "a sixteenth of it may be dead: not each death is a copy"


@pytest.mark.rest
def test_queries_that_were_served_count_for_themselves(poor_graph):
    index, features = poor_graph
    remove(index, longest(features)[:240])
    measure_anew(index)
    taste = next(each for each in narrow(40).reshape(40, -1, DIM) if recall(index, each) < 1.0)
    found = recall(index, np.tile(taste, (30, 1)))
    remove(index, longest(features)[-100:])
    limit(index, same_rest=0.0)
    measure_anew(index)
    status = index.status()
    assert status.kind == "exact" or status.recall_at_1 <= found + LUCK


# Catalogues that shrink


@pytest.mark.rest
def test_a_catalogue_that_shrinks_is_searched_exactly_at_once(monkeypatch):
    monkeypatch.setattr(planner, "compare", timed)
    index = filled(lognormal(16_000), limits=RESTLESS, threads=1)
    maintain(index)
    assert index.status().kind == "hnsw"
    memory = index.status().memory_bytes
    remove(index, range(376))
    assert len(index) * DIM < IndexLimits().small_numbers
    for k in (1, 10, 100):
        assert recall(index, drawn(count=30), k) == 1.0
    assert (index.status().kind, index.status().recall_at_1) == ("exact", 1.0)
    remove(index, range(376, 15_997))
    maintain(index)
    assert index.status().memory_bytes < memory / 4, "what it was searched by is let go"
    assert index.snapshot().search(drawn()[0], 5).exact
    assert index.begin_maintenance() is None


def timed(search, exact, probes):
    """A graph that seems to be fast."""
    del exact
    return Trial(measure(search, probes), us=10.0, exact_us=1_000.0)


def test_arms_that_die_while_a_graph_is_built_are_counted():
    """Of their queries nobody knows what the graph finds now: no recall is told of them."""
    features = np.random.default_rng(0).standard_normal((2_000, 8))
    index = filled(features, IndexOptions(kind="hnsw", m=8, ef_construction=40), threads=1)
    job = index.begin_maintenance()
    job.run()
    longest = np.argsort(-np.linalg.norm(features, axis=1))[:5]
    index.remove([str(row) for row in longest])
    index.finish(job)
    status = index.status()
    assert status.kind == "hnsw"
    assert status.recall_at_1 < job.plan.recall_at_1 - 0.02


def test_what_is_lost_is_lost_by_the_worst_group_and_a_copy_counts_apart():
    counted = Degradation(8)
    quality = Quality(recall_at_1=1.0, ratio_mean=1.0, ratio_min=1.0, recall_error=0.0)
    counted.answered(quality, np.arange(4), np.array([0, 0, 1, 1], dtype=np.int8))
    apart = counted.copied()
    apart.tombstone(np.array([0]))
    assert (apart.lost, apart.dead, apart.quality.recall_at_1) == (0.5, 1, 0.5)
    counted.tombstone(np.array([2, 3]))
    assert (counted.lost, counted.dead) == (1.0, 2)
    assert counted.gone.tolist() == [each in (2, 3) for each in range(8)]
