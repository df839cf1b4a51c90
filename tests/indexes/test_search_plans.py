"""Which structure serves a catalogue, and what exact searches read, on small tables.

Nothing is drawn and nothing is timed here. Exact answers: test_exact_searches.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from app.filters.filter import parse
from app.indexes import filtered_search
from app.indexes.eligible_rows import eligible_rows
from app.indexes.live import IndexOptions, LiveIndex
from shortlist.index import norm_pruned, planner
from shortlist.index.exact import ExactOverlay
from shortlist.index.index import Build
from shortlist.index.norm_pruned import NormBlocks
from shortlist.index.planner import core, plan, reserve_of
from shortlist.index.probes import solve
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
    size = sum(block.nbytes for *_, block in made._order.blocks)  # private: their bytes, counted by hand
    assert made.memory_bytes == 8 * COUNT + 4 * COUNT + size
    state = made.degradation
    assert (state.slowdown, state.missing, state.load_share, state.reserve_used) == (1.0, 0, 0.0, 0.0)
    assert not state.is_degraded


def test_blocks_are_read_until_the_bound_says_so_and_no_further(monkeypatch):
    """One arm a block: rows of length 4, 3, ... along one direction, and a query along it."""
    features = np.array([[1.0, 0.0], [0.0, 4.0], [3.0, 0.0], [2.5, 0.0], [2.0, 0.0], [0.0, 3.0]])
    made = NormBlocks(filled(features).snapshot().table, first=1, largest=1)
    read = []
    product = np.matmul
    monkeypatch.setattr(
        norm_pruned.np, "matmul", lambda a, b, out: read.append(len(a)) or product(a, b, out=out)
    )
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
    assert chosen.reserve == reserve
    assert sorted(chosen.rows.tolist()) == list(range(expected))
    standing = min(expected + 15 * reserve, live - 1)
    assert sorted(chosen.substitutes.tolist()) == list(range(expected, standing))
    assert count <= expected


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
