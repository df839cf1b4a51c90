"""Which way of searching serves, and what each reads, on small tables with the times written down.

Nothing is drawn and nothing is timed here. Exact answers: test_exact_searches.py, test_filtered_search.py.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from app.filtering import filter_plan
from app.filtering import strategies as search_strategies
from app.filtering.filter_plan import FilterPlan, PlanOptions, plan_filter, renew
from app.filtering.limits import FilterLimits
from app.filtering.strategies import CatalogueGraph, OwnBlocks, OwnCopy, OwnGraph
from app.filters.filter import parse
from app.indexes import filtered_search
from app.indexes.eligible_rows import eligible_rows
from app.indexes.live import IndexOptions, LiveIndex
from shortlist.index import norm_pruned, planner
from shortlist.index.exact import ExactOverlay
from shortlist.index.hnsw import HnswGraph
from shortlist.index.index import Build
from shortlist.index.norm_pruned import NormBlocks
from shortlist.index.planner import core, plan, reserve_of
from shortlist.index.probes import Quality, Trial, solve
from shortlist.index.quality import LADDER, Degradation
from shortlist.types import NO_ROWS
from tests.indexes.brute_force import filled, scores_of

pytestmark = pytest.mark.rest

COUNT, DIM = 40, 3
QUERIES = np.array(
    [[1.0, 0.0, 0.0], [-0.3, 2.0, 0.7], [0.0, 0.0, 0.0], [1e-30, -1e-30, 0.0], [0.2, 0.1, -9.0]]
)


def features_of(count=COUNT, dim=DIM):
    """Lengths between 0.2 and 4 in no order, and rows that differ by less than float32 can hold."""
    made = np.sin(np.arange(count * dim) * 1.7).reshape(count, dim)
    made *= (0.2 + np.arange(count) * 17 % count / 10)[:, None]
    made[7] = made[3]
    made[11] = made[5] * (1 + 1e-9)
    return made


def best_of(features, rows, query, k):
    score = dict(zip(rows, scores_of(features[list(rows)], query), strict=True))
    return sorted(rows, key=lambda row: (-score[row], row))[:k]


def table_view():
    return filled(features_of()).snapshot().table


def test_how_blocks_are_cut_and_what_they_take():
    assert list(norm_pruned.block_bounds(0)) == [0]
    assert list(norm_pruned.block_bounds(1_024)) == [0, 1_024]
    assert list(norm_pruned.block_bounds(9_000)) == [0, 1_024, 3_072, 7_168, 9_000]
    ends = list(norm_pruned.block_bounds(300_000))
    assert ends[6:] == [64_512, 130_048, 195_584, 261_120, 300_000]
    made = NormBlocks(table_view())
    size = sum(block.nbytes for *_, block in made._blocks)  # private: their bytes, counted by hand
    assert made.memory_bytes == 8 * COUNT + 4 * COUNT + size
    state = made.degradation
    assert (state.slowdown, state.missing, state.load_share, state.reserve_used) == (1.0, 0, 0.0, 0.0)
    assert not state.is_degraded


def test_blocks_are_read_until_the_bound_says_so_and_no_further(monkeypatch):
    """One arm a block: rows of length 4, 3, ... along one direction, and a query along it."""
    features = np.array([[1.0, 0.0], [0.0, 4.0], [3.0, 0.0], [2.5, 0.0], [2.0, 0.0], [0.0, 3.0]])
    made = NormBlocks(filled(features).snapshot().table, first=1, largest=1)
    read = []
    dot = np.dot
    monkeypatch.setattr(norm_pruned.np, "dot", lambda a, b, out: read.append(len(a)) or dot(a, b, out=out))
    assert made.search(filled(features).snapshot().table, np.array([2.0, 0.0]), 1).rows.tolist() == [2]
    # 4, 3 and 3 are read; 2.5 * 2 is below what was found, 3 * 2.
    assert len(read) == 3
    read.clear()
    assert made.search(filled(features).snapshot().table, np.array([2.0, 0.0]), 2).rows.tolist() == [2, 3]
    assert len(read) == 4


def test_an_overlay_holds_its_arms_by_length():
    view = table_view()
    overlay = ExactOverlay.copied(view, np.array([4, 9, 20, 31]))
    rows = overlay.rows.tolist()
    assert sorted(rows) == [4, 9, 20, 31]
    assert (np.diff(view.norms[rows]) <= 0).all()
    assert len(ExactOverlay.empty()) == ExactOverlay.empty().memory_bytes == 0
    assert overlay.memory_bytes == 4 * (8 + 8) + 4 * DIM * 4
    query = np.array([1.0, -1.0, 0.5])
    gone = np.zeros(4, dtype=bool)
    everything = overlay.best(query, 0.0, 9, gone, any_gone=False)
    assert sorted(everything.tolist()) == sorted(rows)
    best = best_of(view.features, rows, query, 1)
    gone[rows.index(best[0])] = True
    assert best[0] not in overlay.best(query, 0.0, 1, gone, any_gone=True).tolist()
    assert overlay.best(query, 0.0, 1, gone, any_gone=False).tolist() == best
    assert set(overlay.best(query, 0.0, 9, gone[:2], any_gone=False).tolist()) == set(rows[:2])
    position = np.arange(COUNT) - 4
    position[20] = -1
    moved = overlay.moved(position)
    assert moved.rows.tolist() == [-1 if row == 20 else row - 4 for row in rows]
    assert moved.moved(np.arange(COUNT)).rows.tolist() == moved.rows.tolist(), "what is gone stays so"


# Filters


def shop(count=COUNT, kind="exact", **options):
    index = LiveIndex(DIM, IndexOptions(kind=kind), threads=1, seed=5, **options)
    ids = [f"a{number}" for number in range(count)]
    index.upsert(ids, features_of(count), range(count))
    index.describe(ids, [([], {"number": number}) for number in range(count)])
    return index


def let_in(snapshot, document, before=None):
    return eligible_rows(parse(document), snapshot.table, snapshot.attributes, before)


def test_rows_are_gathered_piece_by_piece():
    """Of so many numbers each that a piece has eight rows, and the last one five."""
    features = np.random.default_rng(0).standard_normal((60, 4_096))
    view, rows = filled(features).snapshot().table, np.arange(1, 60, 2)[:29]
    for query in features[:4]:
        found = filtered_search.gather(view, rows, query, 3)
        assert found.rows.tolist() == best_of(view.features, rows.tolist(), query, 3)


@pytest.mark.parametrize("count", [32_767, 32_768, 70_000])
def test_scores_are_struck_out_piece_by_piece(count):
    scores, let_in = np.arange(count, dtype=np.float32), np.arange(count) % 3 > 0
    expected = np.where(let_in, scores, -np.inf)
    filtered_search.strike_out(scores, let_in)
    assert scores.tolist() == expected.tolist()


@pytest.mark.parametrize(("count", "gathered"), [(5, True), (6, False)])
def test_few_arms_are_gathered(count, gathered, monkeypatch):
    """A gathered row takes as long as seven: five of 40 are few, six are not."""
    asked = []
    monkeypatch.setattr(filtered_search, "gather", lambda *_: asked.append("gather"))
    monkeypatch.setattr(filtered_search, "mask", lambda *_: asked.append("mask"))
    snapshot = shop().snapshot()
    eligible = let_in(snapshot, {"number": {"$lt": count}})
    filtered_search.search_exactly(snapshot.table, eligible, QUERIES[0], 1, NO_ROWS)
    assert asked == ["gather" if gathered else "mask"]
    assert filtered_search.exact_reads(snapshot.table, eligible) == min(7 * count, 40) * DIM


def test_room_for_scores_is_kept_up_to_a_size():
    few = filtered_search.reused_scores(100, np.dtype(np.float32))
    assert np.shares_memory(few, filtered_search.reused_scores(50, np.dtype(np.float32)))
    assert not np.shares_memory(few, filtered_search.reused_scores(100, np.dtype(np.float64)))
    most = filtered_search.reused_scores(262_144, np.dtype(np.float32))
    assert np.shares_memory(most, filtered_search.reused_scores(262_144, np.dtype(np.float32)))
    more = filtered_search.reused_scores(262_145, np.dtype(np.float32))
    assert not np.shares_memory(more, filtered_search.reused_scores(262_145, np.dtype(np.float32)))


def built(snapshot, rows):
    graph = HnswGraph.build(
        snapshot.table, rows, m=4, ef_construction=20, seed=1, threads=1, check=lambda: None
    )
    graph.tuned(len(rows), shortlist=1, most=graph.arms)
    return graph


def made(kind, snapshot, eligible):
    if kind == "own_graph":
        graph = built(snapshot, eligible.rows)
        return OwnGraph(graph, eligible, ask=graph.arms, make=built)
    return {"copy": OwnCopy.of, "blocks": OwnBlocks.of}[kind](snapshot.table, eligible)


@pytest.mark.parametrize("kind", ["copy", "blocks", "own_graph"])
def test_a_way_counts_what_came_and_went(kind):
    """Ten arms match; then three come and two go, of which one dies; then all of it once more."""
    index, wanted = shop(), {"number": {"$lt": 10}}
    before = index.snapshot()
    eligible = let_in(before, wanted)
    strategy = made(kind, before, eligible)
    assert strategy.staleness == 0.0
    memory = strategy.memory_bytes
    index.describe(["a20", "a21", "a22"], [([], {"number": 1})] * 3)
    index.describe(["a2"], [([], {"number": 99})])
    index.remove(["a5"])
    after = index.snapshot()
    now = let_in(after, wanted, eligible)
    followed = strategy.followed(after, now)
    rows = [0, 1, 3, 4, 6, 7, 8, 9, 20, 21, 22]
    assert now.rows.tolist() == rows
    assert followed.staleness == pytest.approx({"copy": 2 / 11, "blocks": 5 / 10, "own_graph": 5 / 10}[kind])
    assert followed.memory_bytes > memory
    for query in QUERIES[[0, 1, 4]]:
        for exclude in (NO_ROWS, np.array([3, 21])):
            left = sorted(set(rows) - set(exclude.tolist()))
            for k in (1, 3, len(left)):
                found = followed.search(after, query, k, exclude)
                assert found.rows.tolist() == best_of(after.table.features, left, query, k)
                assert found.exact == (kind != "own_graph")
            none = followed.search(after, query, len(left) + 1, exclude)
            assert (none is None) == (kind == "own_graph")
    again = followed.renewed(after, now)
    assert again.staleness == 0.0
    assert again.search(after, QUERIES[1], 3, NO_ROWS).rows.tolist() == best_of(
        after.table.features, rows, QUERIES[1], 3
    )
    index.describe(["a20"], [([], {"number": 99})])
    later = index.snapshot()
    last = let_in(later, wanted, now)
    twice = followed.followed(later, last)
    assert twice.staleness == pytest.approx({"copy": 3 / 10, "blocks": 6 / 10, "own_graph": 5 / 10}[kind])
    found = twice.search(later, QUERIES[1], 3, NO_ROWS).rows.tolist()
    assert found == best_of(later.table.features, last.rows.tolist(), QUERIES[1], 3)


def test_a_way_that_holds_nothing_finds_nothing():
    index = shop()
    snapshot = index.snapshot()
    eligible = let_in(snapshot, {"number": {"$lt": 0}})
    for kind in ("copy", "blocks"):
        strategy = made(kind, snapshot, eligible)
        assert strategy.staleness == 0.0
        assert len(strategy.search(snapshot, QUERIES[0], 2, NO_ROWS).rows) == 0
        index.describe(["a1"], [([], {"number": -1})])
        later = index.snapshot()
        followed = strategy.followed(later, let_in(later, {"number": {"$lt": 0}}, eligible))
        assert followed.search(later, QUERIES[0], 2, NO_ROWS).rows.tolist() == [1]
        assert followed.staleness == (1.0 if kind == "blocks" else 0.0)
        index.describe(["a1"], [([], {"number": 1})])


@pytest.mark.parametrize("kind", ["copy", "blocks"])
def test_of_arms_that_came_later_the_best_that_is_not_excluded_is_found(kind):
    index, wanted = shop(), {"number": {"$lt": 0}}
    eligible = let_in(index.snapshot(), wanted)
    strategy = made(kind, index.snapshot(), eligible)
    index.describe(["a1", "a2", "a3"], [([], {"number": -1})] * 3)
    later = index.snapshot()
    followed = strategy.followed(later, let_in(later, wanted, eligible))
    best = best_of(later.table.features, [1, 2, 3], QUERIES[1], 3)
    for excluded in (1, 2):
        found = followed.search(later, QUERIES[1], 1, np.array(best[:excluded]))
        assert found.rows.tolist() == best[excluded : excluded + 1]


class Graph(HnswGraph):
    """A graph that finds what it is told to, for as many as it is asked for."""

    def __init__(self, rows, covered, *, dead=0, memory=100):
        self._told, self.covered, self.memory, self.asked = np.array(rows), covered, memory, []
        self.degradation = Degradation(len(rows))
        self.degradation.dead = dead
        self.efs = []

    @property
    def rows(self):
        return self._told

    @property
    def arms(self):
        return len(self._told)

    @property
    def memory_bytes(self):
        return self.memory

    def nearest(self, query, count):
        self.asked.append(count)
        return np.arange(count)

    def tuned(self, ef, *, shortlist, most):
        self.efs.append((ef, shortlist, most))


def with_graph(graph, count=COUNT, view=None):
    snapshot = shop(count).snapshot()
    return SimpleNamespace(
        table=view or snapshot.table, attributes=snapshot.attributes, structure=graph, proposing=graph
    )


def test_a_catalogue_graph_is_asked_for_so_many_arms_and_keeps_those_let_in():
    graph = Graph(np.arange(40)[::-1], 40)
    snapshot = with_graph(graph)
    eligible = let_in(snapshot, {"number": {"$gte": 30}})
    strategy = CatalogueGraph(snapshot, eligible, 6, most_asked=0.5)
    query = QUERIES[1]
    assert strategy.search(snapshot, query, 2, NO_ROWS).rows.tolist() == best_of(
        snapshot.table.features, range(30, 40), query, 2
    )
    assert graph.asked == [12]
    assert strategy.search(snapshot, query, 1, np.array([39, 38])).rows.tolist() == best_of(
        snapshot.table.features, range(32, 38), query, 1
    )
    assert graph.asked == [12, 8], "as many more as are excluded"
    assert strategy.search(snapshot, query, 4, NO_ROWS) is None, "24 of 40 are more than half"
    half = CatalogueGraph(snapshot, eligible, 20, most_asked=0.5)
    assert half.search(snapshot, query, 1, NO_ROWS) is not None
    assert not strategy.search(snapshot, query, 1, NO_ROWS).exact
    assert strategy.staleness == 0.0
    gone = Graph([-1, 0, 30, 31], 40, dead=1)
    snapshot = with_graph(gone)
    found = CatalogueGraph(snapshot, eligible, 6, most_asked=9.0).search(snapshot, query, 1, NO_ROWS)
    assert gone.asked == [3], "three of four arms are alive"
    assert found.rows.tolist() == [30]
    assert CatalogueGraph(snapshot, eligible, 6, most_asked=9.0).search(snapshot, query, 2, NO_ROWS) is None
    dead = with_graph(Graph([1], 40, dead=1))
    assert CatalogueGraph(dead, eligible, 6, most_asked=9.0).search(dead, query, 1, NO_ROWS) is None
    none = with_graph(None)
    assert CatalogueGraph(none, eligible, 6, most_asked=9.0).search(none, query, 1, NO_ROWS) is None


@pytest.mark.parametrize(("fresh", "gathered"), [(3, True), (4, False)])
def test_fresh_rows_of_a_catalogue_graph_are_looked_through(fresh, gathered, monkeypatch):
    """28 rows came after the graph. Three that are let in are gathered; four cost as much as all."""
    seen = []
    original = search_strategies.contenders

    def noted(view, rows, query, k):
        seen.append(rows.tolist())
        return original(view, rows, query, k)

    monkeypatch.setattr(search_strategies, "contenders", noted)
    snapshot = with_graph(Graph(np.arange(12), 12))
    eligible = let_in(snapshot, {"number": {"$gte": 40 - fresh}})
    own = list(range(40 - fresh, 40))
    strategy = CatalogueGraph(snapshot, eligible, 3, most_asked=9.0)
    assert strategy.staleness == pytest.approx(min(7 * fresh, 28) / fresh)
    for query in QUERIES[[0, 1, 4]]:
        for k, exclude in ((1, NO_ROWS), (2, NO_ROWS), (1, np.array([39, 38]))):
            left = [row for row in own if row not in exclude]
            found = strategy.search(snapshot, query, k, exclude)
            assert found.rows.tolist() == best_of(snapshot.table.features, left, query, k)
    assert seen == ([own] * 9 if gathered else [])


def test_a_way_of_another_precision_or_table_cannot_follow():
    index = shop()
    snapshot = index.snapshot()
    eligible = let_in(snapshot, {"number": {"$lt": 10}})
    other = shop().snapshot()
    for kind in ("copy", "blocks", "own_graph"):
        assert made(kind, snapshot, eligible).followed(other, let_in(other, {"number": {"$lt": 10}})) is None
    copy = made("copy", snapshot, eligible)
    index.upsert(["long"], np.full((1, DIM), 1e30), [99])
    later = index.snapshot()
    assert later.table.working.dtype == np.float64
    assert copy.followed(later, let_in(later, {"number": {"$lt": 10}}, eligible)) is None


# What serves a filter


class Times:
    """What ``filter_plan`` measures, as it is told: the time of each strategy, and what graphs find."""

    def __init__(self, monkeypatch, *, gather=80.0, mask=100.0, quality=(1.0, 1.0), **strategies):
        self.us = {"gather": gather, "mask": mask, **strategies}
        self.quality, self.asked, self.timed = quality, [], []
        for name in ("typical_us", "time_alternately", "compare"):
            monkeypatch.setattr(filter_plan, name, getattr(self, name))
        for name in ("gather", "mask"):
            monkeypatch.setattr(filter_plan, name, self.named(name))

    def named(self, name):
        return lambda *given: (name, given[3])

    def of(self, search):
        strategy = search.__closure__ and {
            name: cell.cell_contents
            for name, cell in zip(search.__code__.co_freevars, search.__closure__, strict=True)
        }.get("strategy")
        if strategy is None:
            return min(self.us["gather"], self.us["mask"])
        self.asked.append(getattr(strategy, "_ask", getattr(strategy, "ask", None)))
        found = self.us[strategy.name]
        return found(self.asked[-1]) if callable(found) else found

    def typical_us(self, search, queries):
        name, k = search(queries[0])
        assert k == 1
        self.timed.append((name, len(queries)))
        return self.us[name]

    def time_alternately(self, search, exact, queries):
        self.timed.append(("strategies", len(queries)))
        return [], self.of(search), self.of(exact)

    def compare(self, search, exact, probes):
        assert len(probes.queries) == len(probes.groups) == 400
        us = self.of(search)
        ask = self.asked[-1]
        recall, ratio = self.quality(ask) if callable(self.quality) else self.quality
        return Trial(Quality(recall, ratio, ratio, 0.0), us, self.of(exact))


def planned(snapshot, document, *, copy_bytes=10**9, graph_bytes=0, make=lambda *_: None, **given):
    """Where there is a graph, few numbers are not quick enough unless ``limits`` are given."""
    eligible = let_in(snapshot, document)
    if snapshot.structure is not None:
        given = {"limits": FilterLimits(quick_numbers=0), **given}
    options = PlanOptions(copy_bytes, graph_bytes, make, 0.99, **given)
    return eligible, plan_filter(snapshot, eligible, options, recent=[], rng=np.random.default_rng(0))


ALL = {"number": {"$lt": COUNT}}


def test_the_faster_exact_way_is_what_needs_nothing_made(monkeypatch):
    for gather, mask in ((80.0, 100.0), (100.0, 70.0)):
        times = Times(monkeypatch, gather=gather, mask=mask, copy=1e9, blocks=1e9)
        eligible, plan = planned(shop().snapshot(), ALL)
        assert plan == FilterPlan(None, 40, None, min(gather, mask), min(gather, mask))
        assert (plan.recall_at_1, plan.ratio_mean, plan.wants_graph, plan.is_refuted) == (
            1.0,
            1.0,
            False,
            False,
        )
        assert [name for name, _ in times.timed] == ["gather", "mask", "strategies", "strategies"]
        assert [count for _, count in times.timed] == [30, 30, 100, 100]
        assert eligible.count == 40


def test_a_filter_that_lets_nothing_in_needs_no_plan():
    _, plan = planned(shop().snapshot(), {"number": {"$lt": 0}})
    assert plan == FilterPlan(None, 0, None, 0.0, 0.0)


@pytest.mark.parametrize(
    ("copy", "blocks", "strategy", "us"),
    [
        (64.0, 64.0, "copy", 64.0),  # 80 / 1.25 is enough, and no blocks that are not faster than it
        (64.1, 64.1, None, 80.0),
        (64.1, 64.0, "blocks", 64.0),
        (50.0, 40.0, "blocks", 40.0),
        (50.0, 40.1, "copy", 50.0),
    ],
)
def test_a_copy_is_kept_where_it_is_clearly_faster(monkeypatch, copy, blocks, strategy, us):
    Times(monkeypatch, copy=copy, blocks=blocks)
    _, plan = planned(shop().snapshot(), ALL)
    assert (plan.strategy and plan.strategy.name) == strategy
    assert (plan.us, plan.exact_us, plan.count) == (us, us, 40)
    assert plan.fallback is None
    if strategy:
        assert plan.reason.endswith(f"{80.0 / us:.1f} times as fast as without one")
        assert ("by norm" in plan.reason) == (strategy == "blocks")


@pytest.mark.parametrize(("room", "kept"), [(40 * DIM * 4, True), (40 * DIM * 4 - 1, False), (0, False)])
def test_a_copy_takes_no_more_memory_than_it_may(monkeypatch, room, kept):
    Times(monkeypatch, copy=1.0, blocks=1.0)
    _, plan = planned(shop().snapshot(), ALL, copy_bytes=room)
    assert (plan.strategy is not None) == kept


@pytest.mark.parametrize(
    ("shortest", "tried"), [(1.0, False), (1.0 - 9e-7, False), (1.0 - 2e-6, True), (0.5, True)]
)
def test_blocks_are_tried_where_lengths_differ(monkeypatch, shortest, tried):
    times = Times(monkeypatch, copy=1e9, blocks=1e9)
    index = LiveIndex(DIM, IndexOptions(kind="exact"), threads=1)
    index.upsert(["a", "b"], np.array([[3.0, 0.0, 0.0], [0.0, 3.0 * shortest, 0.0]]), [1, 2])
    index.describe(["a", "b"], [([], {"number": 1})] * 2)
    planned(index.snapshot(), ALL)
    assert times.timed.count(("strategies", 100)) == (2 if tried else 1)


def graph_snapshot():
    """A catalogue graph over 4,000 arms, of which forty can be let in."""
    snapshot = shop().snapshot()
    graph = Graph(np.arange(4_000) % COUNT, COUNT)
    graph.number = 17
    return SimpleNamespace(
        table=snapshot.table, attributes=snapshot.attributes, structure=graph, proposing=graph
    )


@pytest.mark.parametrize(("numbers", "tried"), [(20 * DIM, False), (20 * DIM - 1, True)])
def test_few_numbers_are_quick_enough_without_a_graph(monkeypatch, numbers, tried):
    times = Times(monkeypatch, copy=1e9, blocks=1e9, graph=1.0)
    _, plan = planned(graph_snapshot(), {"number": {"$lt": 20}}, limits=FilterLimits(quick_numbers=numbers))
    assert (plan.strategy is not None) == bool(times.asked and times.asked[-1]) == tried
    assert plan.graph == 17
    assert FilterLimits().quick_numbers == 500_000


def test_the_catalogue_graph_is_asked_for_more_and_more_until_it_reaches_the_target(monkeypatch):
    """From 30 arms for each share that is let in, twice as many each time; here to recall .99, ratio .998."""

    def quality(ask):
        return (0.98, 1.0) if ask < 100 else (0.999, 0.9979) if ask < 200 else (0.99, 0.998)

    times = Times(monkeypatch, copy=40.0, blocks=1e9, graph=lambda ask: 5.0 + ask / 100, quality=quality)
    _, plan = planned(graph_snapshot(), {"number": {"$lt": 20}})
    assert [ask for ask in times.asked if ask] == [60, 120]  # 240 are more than a twentieth of 4,000
    assert plan.strategy.name == "copy"
    assert plan.wants_graph
    times.asked.clear()
    limits = FilterLimits(quick_numbers=0, most_asked=0.06)
    _, plan = planned(graph_snapshot(), {"number": {"$lt": 20}}, limits=limits)
    assert [ask for ask in times.asked if ask] == [60, 120, 240]
    assert (plan.strategy.name, plan.fallback.name) == ("graph", "copy")
    assert (plan.us, plan.exact_us, plan.recall_at_1, plan.ratio_mean) == (7.4, 40.0, 0.99, 0.998)
    assert plan.reason == "the graph is asked for 240 arms, 5.4 times as fast as an exact search"
    assert (plan.graph, plan.wants_graph) == (17, False)


def test_a_graph_may_be_asked_for_just_a_twentieth(monkeypatch):
    times = Times(monkeypatch, copy=40.0, blocks=1e9, graph=1.0, quality=lambda ask: (float(ask == 200), 1.0))
    _, plan = planned(graph_snapshot(), {"number": {"$lt": 20}}, asked=25)
    assert [ask for ask in times.asked if ask] == [50, 100, 200]
    assert plan.strategy.name == "graph"


@pytest.mark.parametrize(("us", "strategy"), [(32.0, "graph"), (32.1, "copy")])
def test_a_graph_that_is_not_clearly_faster_is_not_asked_further(monkeypatch, us, strategy):
    quality = [(0.5, 0.5), (1.0, 1.0)]
    times = Times(monkeypatch, copy=40.0, blocks=1e9, graph=us, quality=lambda _: quality.pop(0))
    _, plan = planned(graph_snapshot(), {"number": {"$lt": 20}})
    assert plan.strategy.name == strategy
    assert len([ask for ask in times.asked if ask]) == (2 if strategy == "graph" else 1)


@pytest.mark.parametrize(("room", "memory", "served"), [(100, 100, True), (99, 100, False), (0, 100, False)])
def test_a_graph_of_its_own_takes_no_more_memory_than_it_may(monkeypatch, room, memory, served):
    times = Times(monkeypatch, copy=40.0, blocks=1e9, graph=1e9, own_graph=2.0)
    own = Graph(np.arange(20), COUNT, memory=memory)
    eligible, plan = planned(graph_snapshot(), {"number": {"$lt": 20}}, graph_bytes=room, make=lambda *_: own)
    assert plan.strategy.name == ("own_graph" if served else "copy")
    assert plan.wants_graph == (room == 0)
    if served:
        assert own.efs == [(32, 30, 20)]
        assert plan.fallback.name == "copy"
        assert plan.reason == "a graph of its own at ef 32, 20.0 times as fast as an exact search"
        assert times.asked[-2] == 30
    assert eligible.count == 20


def test_a_graph_of_its_own_climbs_until_it_reaches_the_target_or_is_too_slow(monkeypatch):
    own = Graph(np.arange(20), COUNT)
    quality = [(0.9, 0.9), (0.98, 0.9995), (0.99, 0.998)]
    Times(monkeypatch, copy=40.0, blocks=1e9, graph=1e9, own_graph=2.0, quality=lambda _: quality.pop(0))
    snapshot, document = graph_snapshot(), {"number": {"$lt": 20}}
    given = {"graph_bytes": 10**9, "make": lambda *_: own}
    quality.insert(0, (1.0, 1.0))  # that of the catalogue's, which is too slow
    assert planned(snapshot, document, **given)[1].strategy.name == "own_graph"
    assert [ef for ef, *_ in own.efs] == [32, 40, 48]
    for us, efs in ((32.0, len(LADDER[::2])), (32.1, 1)):
        own.efs.clear()
        Times(monkeypatch, copy=40.0, blocks=1e9, graph=1e9, own_graph=us, quality=(0.9, 0.9))
        assert planned(snapshot, document, **given)[1].strategy.name == "copy"
        assert len(own.efs) == efs
    assert planned(snapshot, document, graph_bytes=10**9)[1].strategy.name == "copy", "no graph could be made"


def test_what_is_renewed_is_measured_if_it_is_a_graph(monkeypatch):
    snapshot = graph_snapshot()
    eligible = let_in(snapshot, {"number": {"$lt": 20}})
    rng, strategy = np.random.default_rng(0), CatalogueGraph(snapshot, eligible, 60)
    plan = FilterPlan(strategy, 20, 3, 7.0, 50.0, 0.992, 0.9993)
    Times(monkeypatch, copy=1.0, graph=9.0, quality=(0.97, 0.9985))
    again = renew(plan, snapshot, eligible, target_recall=0.95, recent=[], rng=rng)
    assert (again.us, again.exact_us, again.recall_at_1, again.ratio_mean) == (9.0, 50.0, 0.97, 0.9985)
    assert (again.graph, again.is_refuted, again.strategy.name) == (17, False, "graph")
    Times(monkeypatch, graph=9.0, quality=(0.94, 0.9985))
    worse = renew(plan, snapshot, eligible, target_recall=0.95, recent=[], rng=rng)
    assert (worse.strategy, worse.us, worse.exact_us, worse.is_refuted) == (None, 80.0, 50.0, True)
    assert (worse.recall_at_1, worse.ratio_mean) == (1.0, 1.0)
    assert worse.reason == "a graph had recall 0.940, mean ratio 0.9985 by now"
    copy = FilterPlan(OwnCopy.of(snapshot.table, eligible), 20, 3, 7.0, 50.0)
    assert renew(copy, snapshot, eligible, target_recall=0.95, recent=[], rng=rng).graph == 17
    nothing = let_in(snapshot, {"number": {"$lt": 0}})
    for gone, left in ((copy, nothing), (FilterPlan(None, 20, 3, 7.0, 50.0), eligible)):
        lost = renew(gone, snapshot, left, target_recall=0.95, recent=[], rng=rng)
        assert (lost.strategy, lost.is_refuted, lost.us, lost.recall_at_1, lost.ratio_mean) == (
            None,
            True,
            50.0,
            1.0,
            1.0,
        )
    unmade = OwnGraph(Graph(np.arange(20), COUNT), eligible, ask=30, make=lambda *_: None)
    stale = FilterPlan(unmade, 20, 3, 7.0, 50.0)
    assert renew(stale, snapshot, eligible, target_recall=0.95, recent=[], rng=rng).is_refuted


def test_a_graph_of_its_own_is_made_anew_as_it_was():
    snapshot = shop().snapshot()
    eligible = let_in(snapshot, {"number": {"$lt": 20}})
    first, second = built(snapshot, eligible.rows), Graph(np.arange(20), COUNT)
    strategy = OwnGraph(first, eligible, ask=7, make=lambda *_: second).renewed(snapshot, eligible)
    assert second.efs == [(first.degradation.ef, 7, 20)]
    assert strategy.search(snapshot, QUERIES[0], 2, NO_ROWS) is not None
    assert strategy.search(snapshot, QUERIES[0], 5, NO_ROWS) is not None
    assert second.asked == [7, 10], "twice as many as are wanted, if that is more"


# What serves a catalogue


@pytest.mark.parametrize(("live", "reserve", "count"), [(19, 1, 1), (250, 5, 3), (299, 5, 3)])
def test_the_core_and_its_substitutes_are_counted_on_arms_of_known_lengths(live, reserve, count):
    """Arms along one direction: the longest wins each query along it. The reserve is a fiftieth, at least
    one; the winner is then the longest of the others, and a quarter more is added; fifteen substitutes each.
    """
    lengths = np.arange(live, 0, -1.0)
    view = filled(np.vstack((lengths, np.zeros(live))).T).snapshot().table
    winner = reserve + 1
    expected = int(1.25 * winner)
    chosen = core(view, solve(view, np.tile([[1.0, 0.0]], (60, 1)), reserve=reserve_of(view)))
    assert (chosen.reserve, chosen.cut) == (reserve, live)
    assert sorted(chosen.rows.tolist()) == list(range(expected))
    standing = min(expected + 15 * reserve, live - 1)
    assert sorted(chosen.substitutes.tolist()) == list(range(expected, standing))
    assert count <= expected


def test_where_most_arms_can_win_all_are_taken():
    """Three quarters of them is most."""
    features = np.vstack((np.ones(8), np.linspace(1.0, 0.0, 8))).T
    view = filled(features).snapshot().table
    chosen = core(view, solve(view, np.tile([[0.0, -1.0]], (60, 1)), reserve=reserve_of(view)))
    assert (len(chosen.rows), chosen.reserve, len(chosen.substitutes)) == (8, 0, 0)


@pytest.mark.parametrize(
    ("us", "scan_us", "kind"),
    [(30.0, 33.0, "norm_pruned"), (30.0, 32.9, "exact"), (20.0, 22.0, "norm_pruned")],
)
def test_blocks_serve_that_are_a_tenth_faster(monkeypatch, us, scan_us, kind):
    """One arm is ten times as long as the others: of every search one arm is read, and the rest is not."""
    monkeypatch.setattr(planner, "time_alternately", lambda search, exact, queries: ([], us, scan_us))
    features = np.vstack((10 * np.eye(2), -10 * np.eye(2), features_of(96, 2) / 10))
    no_graph = planner.Candidate("hnsw", lambda task: (task.exact.plan, task.exact.blocks))
    build = Build(seed=0, threads=1, check=lambda: None)
    view, rng = filled(features).snapshot().table, np.random.default_rng(1)
    decided, structure = plan(
        view, IndexOptions(), build, recent=(), rng=rng, candidates=[no_graph], small_numbers=40
    )
    assert decided.kind == kind
    assert (structure is None) == (kind == "exact")
    assert decided.size == 100
    if kind == "norm_pruned":
        assert (decided.expected_us, decided.scan_us) == (us, scan_us)
        assert decided.reason == "pruning by norm reads 4%"
