"""Plain and norm-pruned scans return exactly what sorting the scores of all eligible arms returns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from shortlist.errors import InvalidParameter, InvalidShape, NonFinite
from shortlist.index import norm_pruned
from shortlist.index.arm_index import build
from shortlist.index.exact import merged, scan
from shortlist.index.norm_pruned import NormBlocks
from shortlist.index.table import ArmTable, aligned_empty, table_of


def scores_of(features, query):
    return [float(np.add.reduce(row * query)) for row in features]


GRID = st.integers(-2, 2).map(float)
SCALES = st.sampled_from([-1000, -140, -30, 0, 0, 0, 40, 90, 300])


@st.composite
def catalogues(draw):
    """A table in which arms were added, died, were replaced and compacted; blocks built on the way."""
    dim = draw(st.integers(1, 6))
    pool = draw(st.lists(arrays(np.float64, dim, elements=GRID), min_size=1, max_size=5))
    pool = [row * 2.0 ** draw(SCALES) for row in pool]
    noise = np.random.default_rng(draw(st.integers(0, 9)))
    table, blocks, revision = ArmTable(dim), None, 0
    for _ in range(draw(st.integers(1, 6))):
        count = draw(st.integers(0, 15))
        picked = [pool[draw(st.integers(0, len(pool) - 1))] for _ in range(count)]
        features = np.array(picked).reshape(count, dim)
        if draw(st.booleans()):
            features = features * (1.0 + 1e-9 * noise.standard_normal(features.shape))
        ids = [str(revision + i) for i in range(count)]
        table.append(ids, features, np.arange(revision, revision + count))
        revision += count
        if draw(st.booleans()):
            blocks = NormBlocks(table.snapshot(), first=draw(st.sampled_from([2, 5, 1_024])))
        live = table.snapshot().live_rows
        if live.size:
            table.tombstone(
                np.unique(draw(st.lists(st.sampled_from(live.tolist()), max_size=8))).astype(np.int64)
            )
        if draw(st.integers(0, 3)) == 0:
            table, blocks = compacted(table, blocks)
    return table, blocks


def compacted(table, blocks):
    view = table.snapshot()
    smaller, places = ArmTable.compacted(view)
    if blocks is not None:
        blocks = blocks.moved(places, int(view.live_rows.searchsorted(blocks.covered)))
    return smaller, blocks


@st.composite
def problems(draw):
    table, blocks = draw(catalogues())
    view = table.snapshot()
    query = draw(arrays(np.float64, view.dim, elements=GRID)) * 2.0 ** draw(
        st.sampled_from([-400, -25, 0, 3, 200])
    )
    rows = list(range(view.rows))
    exclude = draw(st.lists(st.sampled_from(rows), unique=True)) if rows else []
    return view, blocks, query, draw(st.integers(1, 40)), np.array(exclude, dtype=np.int64)


def expected(view, query, k, exclude):
    rows = [row for row in view.live_rows.tolist() if row not in set(exclude.tolist())]
    score = dict(zip(rows, scores_of(view.features[rows], query), strict=True))
    rows.sort(key=lambda row: (-score[row], row))
    return rows[:k], [score[row] for row in rows[:k]]


@settings(max_examples=60)
@given(problems(), st.integers(0, 40))
def test_the_plain_scan_is_brute_force(problem, first):
    """From any row on."""
    view, _, query, k, exclude = problem
    found = scan(view, query, k, exclude, first=first)
    before = np.union1d(exclude, np.arange(first))
    assert (found.rows.tolist(), found.scores.tolist()) == expected(view, query, k, before)
    assert found.exact


@settings(max_examples=40)
@given(problems())
def test_norm_blocks_and_a_scan_of_the_fresh_rows_are_brute_force(problem):
    view, blocks, query, k, exclude = problem
    if blocks is None:
        return
    found = blocks.search(view, query, k, exclude)
    found = merged(found, scan(view, query, k, exclude, first=blocks.covered), k)
    assert (found.rows.tolist(), found.scores.tolist()) == expected(view, query, k, exclude)
    assert found.exact


@pytest.mark.rest
@settings(max_examples=150)
@given(catalogues(), st.data())
def test_norm_blocks_of_some_rows_answer_for_the_view_that_is_asked(catalogue, data):
    """Views from before and after deaths in turn, and that of a compaction."""
    table, _ = catalogue
    before, draw = table.snapshot(), data.draw
    rows, died = (before.live_rows[draw(arrays(bool, before.live))] for _ in range(2))
    sizes = st.sampled_from([1, 3, 1_024])
    blocks = NormBlocks(before, rows, first=draw(sizes), largest=draw(sizes))
    table.tombstone(died)
    after = table.snapshot()
    smaller, places = ArmTable.compacted(after)
    views = [(blocks, before, rows)] * 2
    views.insert(1, (blocks, after, rows))
    moved = blocks.moved(places, smaller.snapshot().rows)
    views.append((moved, smaller.snapshot(), places[np.setdiff1d(rows, died)]))
    query, k = draw(arrays(np.float64, before.dim, elements=GRID)), draw(st.integers(1, 40))
    for asked, view, of in views:
        exclude = np.flatnonzero(draw(arrays(bool, view.rows)))
        others = np.union1d(exclude, np.setdiff1d(np.arange(view.rows), of))
        assert asked.search(view, query, k, exclude).rows.tolist() == expected(view, query, k, others)[0]
        assert (asked.arms, asked.covered) == (len(rows), view.rows)
    blocks.tombstone(died)
    assert blocks.degradation.dead == len(np.intersect1d(rows, died))


def arms_of_several_norms():
    """Features, queries, and the rows that brute force finds, which takes long."""
    rng = np.random.default_rng(2)
    directions = rng.standard_normal((8_000, 16))
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    features = directions * np.exp(rng.normal(0.0, 1.0, (8_000, 1)))
    queries, view = rng.standard_normal((50, 16)), table_of(features)
    return features, queries, [expected(view, query, 3, np.empty(0, np.int64))[0] for query in queries]


def test_norm_blocks_read_little_when_norms_differ(monkeypatch):
    """And the broken variant, which stops at a third of the bound, returns wrong arms."""
    features, queries, wanted = arms_of_several_norms()
    view = table_of(features)
    blocks = NormBlocks(view, first=32)
    read = []
    monkeypatch.setattr(norm_pruned.np, "dot", counted(np.dot, read))
    right = [blocks.search(view, query, 3).rows.tolist() for query in queries]
    assert sum(read) < 50 * 8_000 / 4
    assert right == wanted
    monkeypatch.setattr(norm_pruned, "unit_scale", lambda query: (query, np.linalg.norm(query) / 3))
    assert [blocks.search(view, query, 3).rows.tolist() for query in queries] != right


def counted(dot, read):
    def counting(block, query, out):
        read.append(len(block))
        return dot(block, query, out=out)

    return counting


@pytest.mark.rest
@pytest.mark.parametrize("dim", [1, 3, 16, 64, 65, 200])
def test_both_layouts_hold_the_same_numbers(dim):
    rng = np.random.default_rng(dim)
    features = rng.standard_normal((333, dim))
    view = table_of(features)
    assert np.array_equal(view.working, features.astype(np.float32))
    room = aligned_empty(100, dim)
    assert room.shape == (100, dim)
    assert room.ctypes.data % 64 == 0


@pytest.mark.rest
def test_sizes_beyond_float32_are_scanned_in_float64():
    features = np.array([[1e200, 0.0], [1.1e200, 0.0], [0.0, 1e-200], [0.0, 1.1e-200]])
    index = build(features)
    assert index.search(np.array([1e100, 0.0]), 1).rows.tolist() == [1]
    assert index.search(np.array([0.0, 1.0]), 2).rows.tolist() == [3, 2]
    assert index.search(np.array([0.0, 1e-120]), 1).rows.tolist() == [3]


@pytest.mark.parametrize("first", [2, 1_024])
def test_blocks_survive_the_death_of_all_their_rows(first):
    table = ArmTable(2)
    table.append(["a", "b", "c"], np.ones((3, 2)), np.arange(3))
    blocks = NormBlocks(table.snapshot(), first=first)
    table.tombstone(np.arange(3))
    for _ in range(2):
        table, blocks = compacted(table, blocks)
    table.append(["new"], np.array([[1.0, 2.0]]), np.array([9]))
    assert blocks.search(table.snapshot(), np.ones(2), 1).rows.size == 0
    assert scan(table.snapshot(), np.ones(2), 1, first=blocks.covered).rows.tolist() == [0]


@pytest.mark.rest
def test_a_zero_query_returns_the_first_rows():
    index = build(np.random.default_rng(0).standard_normal((50, 4)))
    assert index.search(np.zeros(4), 3).rows.tolist() == [0, 1, 2]


def test_nothing_eligible():
    index = build(np.ones((2, 3)))
    assert index.search(np.ones(3), 1, np.array([0, 1])).rows.size == 0
    assert build(np.empty((0, 3))).search(np.ones(3), 5).rows.size == 0


def test_bad_arguments_raise_the_named_error():
    index = build(np.ones((2, 3)))
    with pytest.raises(InvalidShape):
        index.search(np.ones(4), 1)
    with pytest.raises(InvalidParameter):
        index.search(np.ones(3), 0)
    with pytest.raises(NonFinite):
        index.search(np.array([1.0, np.inf, 0.0]), 1)
