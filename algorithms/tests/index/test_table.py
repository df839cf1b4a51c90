"""A table that grows: no append copies many rows, and views stay true."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from shortlist.index import table as tables
from shortlist.index.table import ArmTable, TableSnapshot

DIM, PIECE, ROWS = 5, 7, 4_000


def growing_table() -> ArmTable:
    """One that grows as large ones do, though it has a few rows."""
    return ArmTable(DIM, small_bytes=0)


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows were copied, call by call."""
    counts: list[int] = []
    copy = tables.ArmColumns.copy

    def counted(self: tables.ArmColumns, other: tables.ArmColumns, first: int, last: int) -> None:
        counts.append(last - first)
        copy(self, other, first, last)

    monkeypatch.setattr(tables.ArmColumns, "copy", counted)
    return counts


def pieces(rng: np.random.Generator, rows: int, *, start: int = 0) -> Iterator[tuple[list[str], np.ndarray]]:
    for first in range(start, start + rows, PIECE):
        yield [f"a{row}" for row in range(first, first + PIECE)], rng.normal(size=(PIECE, DIM))


def features_of(view: TableSnapshot) -> dict[str, bytes]:
    return {view.ids[row]: view.features[row].tobytes() for row in view.live_rows.tolist()}


@pytest.mark.rest
def test_a_table_made_of_a_view_has_room_for_more(copied: list[int]) -> None:
    rng, table = np.random.default_rng(2), growing_table()
    for number, (ids, features) in enumerate(pieces(rng, ROWS)):
        table.append(ids, features, np.arange(PIECE) + number * PIECE)
    copied.clear()
    made, _ = ArmTable.compacted(table.snapshot())
    assert features_of(made.snapshot()) == features_of(table.snapshot())
    for number, (ids, features) in enumerate(pieces(rng, 500, start=10 * ROWS)):
        made.append(ids, features, np.arange(PIECE) + 10 * ROWS + number * PIECE)
    assert sum(copied) == 0


def test_views_stay_true_while_a_table_grows_and_arms_die() -> None:
    rng, table = np.random.default_rng(3), growing_table()
    living: dict[str, bytes] = {}
    seen: list[tuple[TableSnapshot, dict[str, bytes]]] = []
    for number, (ids, features) in enumerate(pieces(rng, ROWS)):
        table.append(ids, features, np.arange(PIECE) + number * PIECE)
        living.update(zip(ids, (row.tobytes() for row in features), strict=True))
        for arm_id in rng.choice(sorted(living), size=min(3, len(living)), replace=False).tolist():
            row = table.row_of(arm_id)
            assert row is not None
            table.tombstone(np.array([row]))
            del living[arm_id]
        if number % 37 == 0:
            seen.append((table.snapshot(), dict(living)))
    assert len(table) == len(living)
    for view, wanted in [*seen, (table.snapshot(), living)]:
        assert features_of(view) == wanted
        assert np.array_equal(view.working[view.live_rows], view.features[view.live_rows].astype(np.float32))
        assert np.allclose(view.norms[view.live_rows], np.linalg.norm(view.features[view.live_rows], axis=1))
