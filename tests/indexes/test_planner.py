"""What the planner decides, on catalogues where the right decision is known, and by its written rule."""

from __future__ import annotations

import numpy as np
import pytest

from app.indexes import planner
from app.indexes.hnsw import HnswGraph
from app.indexes.live import IndexOptions
from app.indexes.planner import GraphOptions, choose_ef, core, plan
from app.indexes.probes import Quality, make_queries, measure, solve
from app.indexes.snapshot import Snapshot
from tests.indexes.brute_force import filled, maintain


def gaussian(count, dim, seed=0):
    return np.random.default_rng(seed).standard_normal((count, dim))


def view_of(features):
    return filled(features).snapshot().view


def quality(recall, ratio, us):
    return Quality(recall, ratio, ratio_min=0.5, us=us)


GOOD, FAIR, POOR = (0.995, 0.9999), (0.96, 0.9985), (0.85, 0.992)


@pytest.mark.parametrize(
    ("measured", "ef", "why"),
    [
        ({32: (*FAIR, 40), 64: (*GOOD, 60), 96: (*GOOD, 80)}, 64, "the smallest that is good"),
        (
            {32: (*FAIR, 40), 64: (*FAIR, 60), 96: (*GOOD, 180)},
            64,
            "the largest within the budget that is fair",
        ),
        ({32: (*POOR, 40), 64: (*POOR, 90), 96: (*FAIR, 180)}, 96, "fair, and within our patience"),
        ({32: (*POOR, 40), 64: (*POOR, 90), 96: (*FAIR, 600)}, 64, "the largest within the budget"),
        ({32: (*POOR, 400)}, 32, "whatever there is"),
    ],
)
def test_ef_by_the_written_rule(measured, ef, why):
    qualities = {key: quality(*value) for key, value in measured.items()}
    assert choose_ef(qualities, budget_us=100.0, patience_us=500.0) == ef, why


def decide(view, *, wanted=False, make=None, ef_search=None):
    graph = GraphOptions(wanted=wanted, ef_search=ef_search, shortlist=10, make=make or no_graph)
    return plan(view, graph, recent=(), rng=np.random.default_rng(1))


def no_graph(rows):
    pytest.fail("a graph was built")


def build(view, *, spoilt=False):
    def make(rows):
        kept = rows[:: 40 if spoilt else 1]
        return HnswGraph.build(view, kept, m=8, ef_construction=40, seed=0, threads=1, check=lambda: None)

    return make


def slow_scan(monkeypatch, us):
    """Scans that seem to take ``us``: what a catalogue a hundred times as large would show."""
    original = planner.typical_us
    monkeypatch.setattr(
        planner,
        "typical_us",
        lambda s, queries: us if len(queries) == planner._TIMED else original(s, queries),
    )


def test_a_small_catalogue_is_scanned_and_no_graph_is_built():
    decided, structure = decide(view_of(gaussian(300, 8)))
    assert (decided.kind, structure, decided.recall_at_1) == ("exact", None, 1.0)


def test_an_exact_index_is_only_timed():
    view = view_of(gaussian(300, 8))
    decided, structure = plan(view, None, recent=(), rng=np.random.default_rng(1))
    assert (decided.kind, structure) == ("exact", None)
    assert decided.expected_us > 0


def test_norms_that_differ_are_pruned(monkeypatch):
    slow_scan(monkeypatch, 2_000.0)
    directions = gaussian(20_000, 16)
    norms = np.random.default_rng(1).lognormal(0.0, 1.0, (20_000, 1))
    view = view_of(directions / np.linalg.norm(directions, axis=1)[:, None] * norms)
    monkeypatch.setattr(planner, "SMALL_US", 1_000.0)
    decided, structure = decide(view)
    assert decided.kind == structure.kind == "norm_pruned"
    assert (decided.recall_at_1, decided.ratio_min) == (1.0, 1.0)


def test_equal_norms_are_not_pruned_but_searched_by_a_graph(monkeypatch):
    slow_scan(monkeypatch, 20_000.0)
    directions = gaussian(3_000, 8)
    view = view_of(directions / np.linalg.norm(directions, axis=1)[:, None])
    decided, structure = decide(view, make=build(view))
    assert decided.kind == structure.kind == "hnsw"
    assert decided.recall_at_1 >= 0.95
    assert structure.arms == 3_000


def test_a_graph_that_is_not_much_faster_does_not_serve(monkeypatch):
    slow_scan(monkeypatch, 101.0)
    monkeypatch.setattr(planner, "_MUCH_FASTER", 1_000.0)
    directions = gaussian(1_000, 8)
    view = view_of(directions / np.linalg.norm(directions, axis=1)[:, None])
    decided, structure = decide(view, make=build(view))
    assert (decided.kind, structure) == ("exact", None)
    assert decided.reason.startswith("a graph was tried")


def test_below_the_floor_the_index_serves_exactly():
    """A graph that lost 39 of 40 arms: its recall is measured, and it does not serve."""
    view = view_of(gaussian(2_000, 8))
    decided, structure = decide(view, wanted=True, make=build(view, spoilt=True))
    assert (decided.kind, structure, decided.recall_at_1) == ("exact", None, 1.0)
    assert "below the floor" in decided.reason


def test_below_the_floor_a_live_index_says_so_and_scans(monkeypatch):
    monkeypatch.setattr(planner, "FLOOR", (1.1, 1.1))
    index = filled(gaussian(500, 8), IndexOptions(kind="hnsw"))
    maintain(index)
    status = index.status()
    assert (status.kind, status.recall_at_1, status.arms_in_graph) == ("exact", 1.0, 0)
    assert "below the floor" in status.reason
    assert index.snapshot().search(np.ones(8), 3).exact


def test_the_owner_overrules_the_measurement():
    assert decided_kind("hnsw") == "hnsw"
    assert decided_kind("exact") == decided_kind("auto") == "exact"
    index = filled(gaussian(500, 8), IndexOptions(kind="hnsw", ef_search=77))
    maintain(index)
    assert index.status().ef_search == 77


def decided_kind(kind):
    index = filled(gaussian(500, 8), IndexOptions(kind=kind))
    maintain(index)
    return index.snapshot().kind


def test_norms_that_overflow_are_never_given_to_a_graph():
    view = view_of(gaussian(200, 4) * 1e160)
    decided, structure = decide(view, wanted=True)
    assert (decided.kind, structure) == ("exact", None)


def test_the_core_holds_the_arms_that_win_on_probes_it_was_not_chosen_by():
    view = view_of(gaussian(20_000, 8))
    rows, reserve, substitutes = core(view, make_queries(8, 400, [], np.random.default_rng(1)))
    assert len(rows) < 12_000
    assert (reserve, len(substitutes)) == (1_000, 6_000)
    assert view.norms[rows].min() >= view.norms[substitutes].max()
    unseen = make_queries(8, 1_000, [], np.random.default_rng(2))
    assert held(view, rows, unseen, dead=0) > 0.99
    assert held(view, rows, unseen, dead=reserve) > 0.98
    assert held(view, rows, unseen, dead=10 * reserve) < 0.98
    assert held(view, np.append(rows, substitutes), unseen, dead=7 * reserve) > 0.95


def held(view, rows, queries, *, dead):
    """Share of the winners in ``rows`` after the death of the longest arms."""
    shorter_than = np.sort(view.norms)[-dead] if dead else np.inf
    return np.isin(solve(view, queries, shorter_than=shorter_than).winners, rows).mean()


def test_the_core_holds_short_arms_when_those_win():
    """All arms in one half space and queries against it: the shortest arm is the best."""
    features = np.abs(gaussian(2_000, 3)) + 0.1
    view = view_of(features)
    queries = -np.abs(gaussian(400, 3, seed=5))
    rows, reserve, substitutes = core(view, queries)
    assert (len(rows), reserve, len(substitutes)) == (2_000, 0, 0)
    assert (solve(view, queries).best < 0).all()


def test_probes_know_the_best_arm():
    features = gaussian(9_000, 5)
    index = filled(features)
    index.remove([str(row) for row in range(0, 9_000, 3)])
    view = index.snapshot().view
    probes = solve(view, gaussian(50, 5, seed=2))
    scores = features @ probes.queries.T
    scores[::3] = -np.inf
    assert probes.winners.tolist() == scores.argmax(axis=0).tolist()
    np.testing.assert_allclose(probes.best, scores.max(axis=0), rtol=1e-12)


def test_quality_counts_misses_and_what_they_cost():
    features = np.array([[3.0, 0.0], [1.0, 0.0], [0.0, -2.0], [0.0, -1.0]])
    view = view_of(features)
    probes = solve(view, np.array([[1.0, 0.0], [-1.0, 0.0], [-1.0, 0.5]]))
    assert probes.best.tolist() == [3.0, 0.0, -0.5]
    second = measure(lambda query: second_best(view, query), probes)
    assert second.recall_at_1 == pytest.approx(1 / 3)  # two arms tie for the second query
    assert second.ratio_min == pytest.approx(0.0)
    assert second.ratio_mean == pytest.approx((1 / 3 + 1.0 + 0.0) / 3)
    assert second.us > 0


def second_best(view, query):
    found = Snapshot(view, None, 0.0, []).search(query, 2)
    return type(found)(found.rows[1:], found.scores[1:], exact=False)


def test_real_queries_are_among_the_probes_once_there_are_enough():
    rng = np.random.default_rng(0)
    real = [np.array([1.0, 0.0]) * rng.uniform(1, 9) for _ in range(100)]
    few = make_queries(2, 50, real[:10], rng)
    many = make_queries(2, 50, [*real, np.zeros(2), np.ones(3)], rng)
    assert (few[:, 1] != 0).all()
    assert (many[:, 1] == 0).sum() == 25
    np.testing.assert_allclose(np.linalg.norm(many[many[:, 1] == 0], axis=1), np.sqrt(2))


def test_searches_feed_the_probes_of_the_next_plan():
    index = filled(gaussian(500, 8), IndexOptions(kind="hnsw"))
    for query in gaussian(300, 8, seed=3):
        index.snapshot().search(query, 1)
    job = index.begin_maintenance()
    assert len(job._recent) == 256


@pytest.mark.parametrize("compacted", [False, True])
def test_arms_that_were_left_out_stand_in_for_the_longest_when_those_die(compacted):
    features = gaussian(20_000, 8)
    index = filled(features, IndexOptions(kind="hnsw"))
    maintain(index)
    longest = np.argsort(-np.linalg.norm(features, axis=1))
    index.remove([str(row) for row in longest[:3_200]])
    if compacted:
        index.remove([str(row) for row in longest[-2_000:]])
        job = index.begin_maintenance()
        job.run()
        assert job.table is not None
        index.finish_maintenance(job)
    index.remove([str(longest[3_300])])
    assert index.status().kind == "hnsw"
    assert index._structure.missing > 2_000
    assert winners_found(index, features) > 0.95
    index._structure.missing = 0  # without them, winners are missed
    assert winners_found(index, features) < 0.95


def winners_found(index, features):
    snapshot = index.snapshot()
    queries = gaussian(300, features.shape[1], seed=9)
    found = [snapshot.search(q, 1).rows[0] == snapshot.search_exact(q, 1).rows[0] for q in queries]
    return np.mean(found)


def test_a_graph_that_lost_its_longest_arms_does_not_serve_until_it_is_built_again():
    features = gaussian(20_000, 8)
    index = filled(features, IndexOptions(kind="hnsw"))
    maintain(index)
    assert index.status().kind == "hnsw"
    longest = np.argsort(-np.linalg.norm(features, axis=1))
    index.remove([str(row) for row in longest[:8_000]])
    assert index.status().kind == "exact"
    maintain(index)
    assert index.status().kind == "hnsw"
    assert index.status().recall_at_1 > 0.9


@pytest.mark.parametrize(("recall", "kind"), [(0.96, "hnsw"), (0.90, "exact")])
def test_a_graph_that_finds_less_must_be_far_faster(monkeypatch, recall, kind):
    slow_scan(monkeypatch, 400.0)
    monkeypatch.setattr(planner, "measure", lambda search, probes: Quality(recall, 0.9985, 0.9, us=90.0))
    directions = gaussian(500, 8)
    view = view_of(directions / np.linalg.norm(directions, axis=1)[:, None])
    assert decide(view, make=build(view))[0].kind == kind
