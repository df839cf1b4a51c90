"""Copies of rows follow what a filter matches, and earlier copies stay true."""

from __future__ import annotations

import numpy as np
import pytest

from app.filtering.row_copy import RowCopy
from app.indexes.eligible_rows import Change
from shortlist.index.table import ArmTable, TableSnapshot
from shortlist.types import NO_ROWS

DIM = 3


def table_of(count: int, seed: int = 0) -> ArmTable:
    table = ArmTable(DIM)
    extend(table, 0, count, seed)
    return table


def extend(table: ArmTable, first: int, last: int, seed: int = 0) -> TableSnapshot:
    features = np.random.default_rng((seed, first)).normal(size=(last - first, DIM))
    table.append([str(row) for row in range(first, last)], features, np.arange(first, last))
    return table.snapshot()


def holds(copy: RowCopy, view: TableSnapshot, rows: list[int]) -> bool:
    """Whether these rows are all that a search can find, and each is found by its own features."""
    found = copy.contenders(view, np.zeros(DIM), len(rows) + 1)
    return sorted(found.tolist()) == sorted(rows)


def as_rows(rows: list[int]) -> np.ndarray:
    return np.array(rows, dtype=np.int64)


@pytest.mark.parametrize("seed", range(20))
def test_a_copy_follows_any_changes_and_earlier_ones_stay_true(seed: int):
    rng = np.random.default_rng(seed)
    table = table_of(10, seed)
    view, inside = table.snapshot(), set(range(0, 10, 2))
    copy = RowCopy.of(view, as_rows(sorted(inside)))
    earlier = []
    for _ in range(12):
        earlier.append((copy, sorted(inside), view))
        view = (
            extend(table, view.rows, view.rows + int(rng.integers(0, 6)), seed)
            if rng.random() < 0.7
            else view
        )
        flipped = set(rng.permutation(view.rows)[: rng.integers(0, 5)].tolist())
        came, went = sorted(flipped - inside), sorted(flipped & inside)
        inside ^= flipped
        copy = copy.followed(view, Change(as_rows(came), as_rows(went)))
    for old, rows, of in [*earlier, (copy, sorted(inside), view)]:
        assert holds(old, of, rows)
        assert len(old) == len(rows)
        query = rng.normal(size=DIM)
        if rows:
            best = rows[int((of.features[rows] @ query).argmax())]
            assert best in old.contenders(of, query, 1).tolist()


@pytest.mark.rest
def test_a_copy_of_no_row_becomes_one_of_those_that_come():
    view = table_of(10).snapshot()
    empty = RowCopy.of_nothing()
    copy = empty.followed(view, Change(NO_ROWS, as_rows([3])))
    assert copy is empty
    assert holds(copy, view, [])
    assert holds(copy.followed(view, Change(as_rows([2, 5]), NO_ROWS)), view, [2, 5])


def test_rows_are_found_again_after_they_were_numbered_anew():
    table = table_of(10)
    view = table.snapshot()
    copy = RowCopy.of(view, as_rows([1, 4, 6, 9])).followed(view, Change(NO_ROWS, as_rows([6])))
    table.tombstone(as_rows([0, 4]))
    compacted, positions = ArmTable.compacted(table.snapshot())
    compacted.replaces(table.snapshot(), positions)
    later = compacted.snapshot()
    assert later.renumbered is not None
    moved = copy.moved(later.renumbered.positions, later.rows)
    assert holds(moved, later, [0, 7])  # 1 and 9: row 0 died before them, row 4 too
    following = moved.followed(later, Change(as_rows([4]), as_rows([7])))
    assert holds(following, later, [0, 4])
    query = later.features[7]
    assert moved.contenders(later, query, 1).tolist() == [
        7 if later.features[7] @ query > later.features[0] @ query else 0
    ]


@pytest.mark.rest
def test_following_a_change_copies_what_changed_alone():
    table = table_of(2_000)
    copy = RowCopy.of(table.snapshot(), np.arange(1_000))
    copy = copy.followed(table.snapshot(), Change(as_rows([1_500]), NO_ROWS))  # makes room
    before = copy.features
    for row in range(1_501, 1_600):
        copy = copy.followed(table.snapshot(), Change(as_rows([row]), as_rows([row - 1_400])))
    assert copy.features is before
    assert len(copy) == 1_001
