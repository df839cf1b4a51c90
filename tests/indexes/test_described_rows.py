"""What was described and when: never less than what is later than a version."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.indexes.described_rows import DescribedRows
from app.indexes.index_limits import IndexLimits

pytestmark = pytest.mark.rest

STEPS = st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=5), st.integers(-1, 3)), max_size=12)


@given(steps=STEPS, asked=st.integers(0, 30), seen=st.integers(0, 12), most=st.sampled_from([4, 1_000]))
def test_all_that_is_later_is_known(steps: list, asked: int, seen: int, most: int) -> None:
    """A step notes rows, and reaches a version so much higher; below the last one, the store lost writes."""
    noted, version, later, since, before = DescribedRows(most), 0, set[int](), set[int](), None
    versions: list[tuple[int, list[int]]] = []
    for step, (rows, higher) in enumerate(steps):
        if step == seen:
            before = noted.until_now()
        noted.note(np.array(rows, dtype=np.int64))
        if before is not None:
            since |= set(rows)
        version = max(version + higher, 0)
        noted.reached(version)
        versions = [(min(of_version, version), of) for of_version, of in versions]
        versions.append((version, rows))
    later = {row for of_version, rows in versions if of_version > asked for row in rows}
    known = noted.until_now().after(asked)
    assert later <= set(known.tolist())
    assert (np.diff(known) > 0).all()
    if before is not None:
        assert since <= set(noted.since(before).tolist())
    moved = noted.after(asked, np.arange(10)[::-1] - 3).until_now().after(-1)
    assert {6 - row for row in later if row <= 6} <= set(moved.tolist())


def test_what_a_version_has_is_left_out() -> None:
    noted = DescribedRows(IndexLimits().described_rows)
    for version in (3, 5, 8):
        noted.note(np.array([version, 0]))
        noted.reached(version)
    assert [noted.until_now().after(version).tolist() for version in (2, 3, 4, 5, 8)] == [
        [0, 3, 5, 8],
        [0, 5, 8],
        [0, 5, 8],
        [0, 8],
        [],
    ]
