"""Covers and diverse lists of a few arms, whose order is plain."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from app.indexes.live import LiveIndex
from app.selection.covers import Covers
from app.selection.rules import OVER_FEATURES, Diverse, DiverseSolver
from shortlist.types import NO_ROWS


@pytest.mark.anyio
async def test_where_there_was_no_arm_a_cover_is_made_as_soon_as_there_are_some():
    index, covers = LiveIndex(2), Covers()
    catalogue: Any = SimpleNamespace(uid="c", version=0)
    assert await covers.of(catalogue, None, index.snapshot(), 2) == []
    index.upsert(["a", "b"], np.eye(2), [1, 2])
    assert sorted(await covers.of(catalogue, None, index.snapshot(), 2)) == ["a", "b"]


def test_the_arms_of_a_diverse_list_differ_from_its_pinned_arms_too():
    index = LiveIndex(2)
    index.upsert(["pinned", "alike", "other"], np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]), [1, 2, 3])
    snapshot, query = index.snapshot(), np.array([1.0, 0.5])
    pinned = snapshot.rows_of(["pinned"])
    for known, expected in ((NO_ROWS, "alike"), (pinned, "other")):
        solver = DiverseSolver(snapshot, snapshot, Diverse(0.9, OVER_FEATURES), known, 2)
        assert snapshot.id_of(int(solver.search(query, 1, pinned).rows[0])) == expected
