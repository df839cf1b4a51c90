"""`ArmIndex`: what is built over arms that stay as they are, compared with all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shortlist.errors import InvalidArgument
from shortlist.index import arm_index
from shortlist.index.arm_index import KINDS, ArmIndex, build
from shortlist.index.norm_pruned import NormBlocks
from shortlist.index.planner import IndexOptions, Plan
from shortlist.index.table import ArmTable, table_of

ARMS = np.random.default_rng(1).standard_normal((4_000, 8))
QUERIES = np.random.default_rng(2).standard_normal((100, 8))


def recall(index: ArmIndex, k: int) -> float:
    return float(
        np.mean([np.isin(np.argsort(-(ARMS @ q))[:k], index.search(q, k).rows).mean() for q in QUERIES])
    )


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_finds_the_best_arms(kind: str):
    index = build(ARMS, IndexOptions(kind))
    assert index.kind == ("exact" if kind == "auto" else kind)  # few arms are scanned
    for k in (1, 10, 100):
        assert recall(index, k) >= (1.0 if index.is_exact else 0.9)
    found = index.search(QUERIES[0], 5_000, np.array([7]))
    assert sorted(found.rows.tolist()) == [row for row in range(4_000) if row != 7]
    assert np.allclose(found.scores, ARMS[found.rows] @ QUERIES[0])


@pytest.mark.rest
def test_the_same_arms_and_seed_give_the_same_graph_over_a_copy_of_the_arms():
    """For lists it is asked for as many arms as there is time for, by measuring."""
    options, arms = IndexOptions("hnsw", ef_search=40), ARMS.copy()
    index, other = build(arms, options, seed=3), build(ARMS, options, seed=3)
    arms[:] = 0.0
    for query in QUERIES:
        assert np.array_equal(index.search(query, 1).rows, other.search(query, 1).rows)


@pytest.mark.rest
def test_blocks_by_norm_are_written_and_read_too(tmp_path: Path):
    table = table_of(ARMS)
    plan = Plan("norm_pruned", 4_000, scan_us=2.0, expected_us=1.0)
    index, folder = ArmIndex(table, NormBlocks(table), plan), str(tmp_path / "index")
    arm_index.save(index, folder)
    read = arm_index.load(folder, ARMS)
    assert (read.kind, read.is_exact, read.plan) == ("norm_pruned", True, plan)
    assert recall(index, 10) == recall(read, 10) == 1.0


@pytest.mark.rest
@pytest.mark.parametrize("kind", KINDS)
def test_an_index_is_read_as_it_was_written(kind: str, tmp_path: Path):
    index, folder = build(ARMS, IndexOptions(kind)), str(tmp_path / "index")
    arm_index.save(index, folder)
    read = arm_index.load(folder, ARMS)
    for query in QUERIES:
        for k in (1, 10):
            assert np.array_equal(read.search(query, k).rows, index.search(query, k).rows)
    with pytest.raises(ValueError, match="of other arms"):
        arm_index.load(folder, ARMS + 1.0)
    with pytest.raises(FileNotFoundError):
        arm_index.load(str(tmp_path / "none"), ARMS)


def test_a_table_that_stays_as_it_is_is_as_one_that_arms_were_added_to():
    for arms in (ARMS, np.array([[1e40, 0.0], [0.0, 1.0]]), np.empty((0, 3))):
        table = ArmTable(arms.shape[1])
        table.append([str(row) for row in range(len(arms))], arms, np.arange(len(arms)))
        one, other = table_of(arms), table.snapshot()
        assert one.number != other.number
        assert (one.rows, one.live, one.largest_norm) == (other.rows, other.live, other.largest_norm)
        assert one.working.dtype == other.working.dtype
        for name in ("features", "working", "norms", "revisions", "died", "dead", "live_rows"):
            assert np.array_equal(getattr(one, name), getattr(other, name)), name


@pytest.mark.rest
def test_a_table_without_arms_finds_none():
    for kind in KINDS:
        assert build(np.empty((0, 3)), IndexOptions(kind)).search(np.ones(3), 2).rows.tolist() == []


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("index", lambda: build(ARMS, IndexOptions("faiss"))),
        ("features", lambda: build(ARMS[0])),
        ("features", lambda: build(np.full((2, 2), np.nan))),
        ("query", lambda: build(ARMS).search(np.ones(7), 1)),
        ("k", lambda: build(ARMS).search(np.ones(8), 0)),
        ("target_recall", lambda: IndexOptions(target_recall=0.5)),
    ],
)
def test_a_wrong_argument_is_named(argument: str, call):
    with pytest.raises(InvalidArgument) as refused:
        call()
    assert refused.value.argument == argument
