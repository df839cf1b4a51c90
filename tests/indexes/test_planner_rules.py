"""The rules of the planner, one by one, and the core that it chooses."""

from __future__ import annotations

import numpy as np
import pytest

from app.filters.attributes import AttributeTable
from app.indexes.snapshot import Snapshot
from planned_tables import build, decide, gaussian, of_one_length, timed_as, view_of
from shortlist.index import planner
from shortlist.index.planner import IndexOptions, core, reserve_of
from shortlist.index.probes import SERVED, Quality, Trial, compare, queries_like, solve
from tests.indexes.brute_force import filled, maintain, measure_anew

pytestmark = pytest.mark.rest


def measured_as(monkeypatch, recall, speedup):
    quality = Quality(recall, 0.9985, 0.9, recall_error=0.005)
    monkeypatch.setattr(planner, "compare", lambda *_: Trial(quality, us=10.0, exact_us=10.0 * speedup))


def lognormal(count, dim):
    norms = np.random.default_rng(1).lognormal(0.0, 1.0, (count, 1))
    return of_one_length(count, dim) * norms


def pruned_in(monkeypatch, us, scan_us):
    monkeypatch.setattr(planner, "time_alternately", lambda *_: ([], us, scan_us))


def test_norms_that_differ_are_pruned_and_few_numbers_are_read(monkeypatch):
    """Of 320,000 numbers some thousands are read: no graph is built."""
    pruned_in(monkeypatch, us=30.0, scan_us=90.0)
    decided, structure = decide(view_of(lognormal(20_000, 16)), small_numbers=200_000)
    assert decided.kind == structure.kind == "norm_pruned"
    assert (decided.recall_at_1, decided.ratio_min) == (1.0, 1.0)
    assert (decided.expected_us, decided.scan_us) == (30.0, 90.0)


def test_pruning_that_is_no_faster_is_left_alone(monkeypatch):
    pruned_in(monkeypatch, us=30.0, scan_us=32.0)
    timed_as(monkeypatch, 1.0)
    view = view_of(lognormal(2_000, 8))
    assert decide(view, make=build(view))[0].kind == "exact"


@pytest.mark.parametrize(("speedup", "kind"), [(1.2, "norm_pruned"), (1.3, "hnsw")])
def test_a_graph_competes_with_the_better_of_both_exact_searches(monkeypatch, speedup, kind):
    pruned_in(monkeypatch, us=30.0, scan_us=90.0)
    timed_as(monkeypatch, speedup)
    view = view_of(lognormal(2_000, 8))
    decided, structure = decide(view, make=build(view))
    assert decided.kind == structure.kind == kind
    if kind == "hnsw":  # the times of both are those of one moment
        assert (decided.expected_us, decided.scan_us) == (10.0, pytest.approx(3 * 13.0))


def test_equal_norms_are_not_pruned_but_searched_by_a_graph(monkeypatch):
    timed_as(monkeypatch, 3.0)
    view = view_of(of_one_length(3_000, 8))
    decided, structure = decide(view, make=build(view))
    assert decided.kind == structure.kind == "hnsw"
    assert decided.recall_at_1 >= 0.95
    assert structure.arms == 3_000


def test_a_graph_that_is_not_much_faster_does_not_serve(monkeypatch):
    timed_as(monkeypatch, 1.2)
    view = view_of(of_one_length(1_000, 8))
    decided, structure = decide(view, make=build(view))
    assert (decided.kind, structure) == ("exact", None)
    assert decided.reason.startswith("a graph was tried: 1.2 times as fast as the plain scan")


def test_the_least_ef_that_could_be_chosen_is_found_by_bisection(monkeypatch):
    """On slow hardware as on fast: what decides are ratios."""
    view = view_of(of_one_length(500, 8))
    seen = []

    def timed(search, exact, probes):
        del exact, probes
        ef = search.__closure__[0].cell_contents.degradation.ef
        seen.append(ef)
        return Trial(Quality(0.90 + ef / 1_500, 0.9999, 0.9, 0.0), us=1e6 * ef, exact_us=4e8)

    monkeypatch.setattr(planner, "compare", timed)
    decided, _ = decide(view, make=build(view))
    assert seen == [104, 68, 88, 80, 76, 72]  # larger ones would find more than is wanted, and take longer
    assert decided.ef_search == 76


def test_a_higher_target_takes_a_larger_ef(monkeypatch):
    view = view_of(of_one_length(500, 8))

    def timed(search, exact, probes):
        del exact, probes
        ef = search.__closure__[0].cell_contents.degradation.ef
        return Trial(Quality(1.0 - 2.0 / ef, 0.9999, 0.9, 0.0), us=ef, exact_us=1e6)

    monkeypatch.setattr(planner, "compare", timed)
    for target, ef in ((0.8, 32), (0.95, 40), (0.99, 208), (0.995, 448)):
        decided, _ = decide(view, make=build(view), target=target)
        assert (decided.ef_search, decided.recall_at_1) == (ef, 1.0 - 2.0 / ef)
    decided, structure = decide(view, make=build(view), target=0.999)
    assert (decided.kind, decided.recall_at_1, structure) == ("exact", 1.0, None)
    assert decided.reason.endswith("at ef 512, which does not reach 0.999 for certain")
    assert decide(view, make=build(view), target=0.999, wanted=True)[0].ef_search == 512


def test_below_the_floor_a_live_index_says_so_and_scans(monkeypatch):
    measured_as(monkeypatch, 0.7, 10.0)
    index = filled(gaussian(500, 8), IndexOptions(kind="hnsw"))
    maintain(index)
    status = index.status()
    assert (status.kind, status.recall_at_1, status.arms_in_graph) == ("exact", 1.0, 0)
    assert "does not reach 0.95" in status.reason
    assert index.snapshot().search(np.ones(8), 3).exact


def test_the_core_holds_the_arms_that_win_on_probes_it_was_not_chosen_by():
    view = view_of(gaussian(20_000, 8))
    chosen = core_of(view, gaussian(400, 8, seed=1))
    rows, reserve, substitutes = chosen.rows, chosen.reserve, chosen.substitutes
    assert len(rows) < 4_000
    assert (reserve, len(substitutes)) == (400, 6_000)
    assert view.norms[rows].min() >= view.norms[substitutes].max()
    unseen = gaussian(1_000, 8, seed=2)
    assert held(view, rows, unseen, dead=0) > 0.99
    assert held(view, rows, unseen, dead=reserve) > 0.98
    assert held(view, rows, unseen, dead=4 * reserve) < 0.98
    assert held(view, np.append(rows, substitutes), unseen, dead=12 * reserve) > 0.95


def core_of(view, queries):
    return core(view, solve(view, queries, reserve=reserve_of(view)))


def held(view, rows, queries, *, dead):
    """Share of the winners in ``rows`` after the death of the longest arms."""
    return np.isin(solve(view, queries, reserve=dead).fallback_winners, rows).mean()


@pytest.mark.parametrize("reserve", [0, 1, 700, 5_999, 6_000])
def test_heirs_win_when_the_longest_arms_are_dead(reserve):
    """By brute force, with dead arms among the others, and more rows than are scored at once."""
    features = gaussian(9_000, 5)
    index = filled(features)
    index.remove([str(row) for row in range(0, 9_000, 3)])
    view = index.snapshot().table
    probes = solve(view, gaussian(50, 5, seed=2), reserve=reserve)
    scores = features @ probes.queries.T
    scores[::3] = -np.inf
    assert probes.winners.tolist() == scores.argmax(axis=0).tolist()
    if reserve < 6_000:
        lengths = np.where(np.isin(np.arange(9_000), view.live_rows), view.norms, 0.0)
        scores[np.argsort(-lengths)[:reserve]] = -np.inf
    assert probes.fallback_winners.tolist() == scores.argmax(axis=0).tolist()


def test_the_core_holds_short_arms_when_those_win():
    """All arms in one half space and queries against it: the shortest arm is the best."""
    features = np.abs(gaussian(2_000, 3)) + 0.1
    view = view_of(features)
    queries = -np.abs(gaussian(400, 3, seed=5))
    chosen = core_of(view, queries)
    assert (len(chosen.rows), chosen.reserve, len(chosen.substitutes)) == (2_000, 0, 0)
    assert (solve(view, queries).best < 0).all()


def second_best(view, query):
    found = Snapshot(view, None, 0.0, [], AttributeTable().snapshot()).search(query, 2)
    return type(found)(found.rows[1:], found.scores[1:], exact=False)


def test_half_of_the_queries_are_like_the_recent_ones_however_few_they_are():
    rng = np.random.default_rng(0)
    real = [np.array([1.0, rng.uniform(-0.1, 0.1)]) * rng.uniform(1, 9) for _ in range(70)]
    queries, groups = queries_like(2, 400, real, rng)
    like = groups == SERVED
    assert like.sum() == 200
    cosine = queries[:, 0] / np.linalg.norm(queries, axis=1)
    assert cosine[like].min() > 0.99
    assert cosine[~like].min() < -0.5
    np.testing.assert_allclose(np.linalg.norm(queries[like], axis=1), np.sqrt(2))
    directions = {round(float(q[1] / q[0]), 9) for q in real}
    assert directions <= {round(float(q[1] / q[0]), 9) for q in queries[like]}
    assert not queries_like(2, 400, real[:9], rng)[1].any()


def test_a_search_is_as_good_as_where_it_is_worse():
    view = view_of(np.array([[3.0, 0.0], [1.0, 0.0]]))
    groups = (np.arange(80) < 20).astype(np.int8)
    probes = solve(view, np.tile([[1.0, 0.0]], (80, 1)), groups=groups)
    exact = Snapshot(view, None, 0.0, [], AttributeTable().snapshot()).search
    places = iter(range(-1, 100))  # every search is tried once before

    def search(query):
        bad = next(places) in range(5)
        return second_best(view, query) if bad else exact(query, 1)

    trial = compare(search, lambda query: exact(query, 1), probes)
    found = trial.least
    assert (found.recall_at_1, trial.quality.recall_at_1) == (0.75, 0.9375)
    assert found.ratio_mean == pytest.approx(5 / 6)


@pytest.mark.parametrize("compacted", [False, True])
def test_arms_that_were_left_out_stand_in_for_the_longest_when_those_die(compacted):
    features = gaussian(20_000, 8)
    index = filled(features, IndexOptions(kind="hnsw"))
    maintain(index)
    longest = np.argsort(-np.linalg.norm(features, axis=1))
    index.remove([str(row) for row in longest[:1_200]])
    if compacted:
        index.remove([str(row) for row in longest[-4_000:]])
        job = index.begin_maintenance()
        job.run()
        assert job.compacted is not None
        index.finish(job)
    index.remove([str(longest[1_300])])
    measure_anew(index)
    assert index.status().kind == "hnsw"
    assert index.content.structure.degradation.missing > 700
    assert winners_found(index, features) > 0.95
    index.content.structure.degradation.missing = 0  # without them, winners are missed
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


@pytest.mark.parametrize(
    ("recall", "speedup", "kind"),
    [(0.96, 1.3, "hnsw"), (0.952, 4.0, "exact"), (0.90, 4.0, "exact"), (0.90, 99.0, "exact")],
)
def test_a_graph_that_finds_less_than_the_target_does_not_serve(monkeypatch, recall, speedup, kind):
    measured_as(monkeypatch, recall, speedup)
    view = view_of(of_one_length(500, 8))
    assert decide(view, make=build(view))[0].kind == kind


@pytest.mark.parametrize(("recall", "kind"), [(0.96, "hnsw"), (0.85, "hnsw"), (0.7, "exact")])
def test_a_graph_that_was_asked_for_may_be_slow_but_not_below_the_floor(monkeypatch, recall, kind):
    measured_as(monkeypatch, recall, 0.1)
    view = view_of(of_one_length(500, 8))
    assert decide(view, wanted=True, make=build(view))[0].kind == kind
