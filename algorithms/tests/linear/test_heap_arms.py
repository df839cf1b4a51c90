"""The heap augmented arm set and the bits of the living, against sorted lists and plain sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.linear.heap_arms import HeapArms
from shortlist.linear.living_arms import NO_ARMS

pytestmark = pytest.mark.rest

pushes = st.lists(st.lists(st.floats(-5, 5, allow_subnormal=False), max_size=12), min_size=1, max_size=12)


def pushed(heap, bounds, first):
    rows = np.arange(first, first + len(bounds))
    return heap.push(rows, np.array(bounds, dtype=float)), dict(zip(rows.tolist(), bounds, strict=True))


def entries(heap):
    return {
        row: bound
        for run in (heap.settled, heap.pushed)
        for row, bound in zip(run.rows.tolist(), run.bounds.tolist(), strict=True)
    }


@settings(max_examples=150)
@given(batches=pushes, thresholds=st.lists(st.floats(-6, 8), max_size=9), data=st.data())
def test_pushing_and_eliminating_is_that_of_a_sorted_list(batches, thresholds, data):
    heap, mirror, used = HeapArms(stage=3), {}, 0
    for batch in batches:
        heap, new = pushed(heap, batch, used)
        used += len(batch)
        mirror |= new
        assert entries(heap) == mirror
        assert sorted(heap.rows.tolist()) == sorted(mirror)
        assert len(heap) == len(mirror)
        for run in (heap.settled, heap.pushed):
            assert run.least == run.bounds.min(initial=np.inf)
        assert len(heap.pushed) ** 2 <= len(heap.settled)
    for threshold in thresholds:
        before = entries(heap)
        low, heap = heap.eliminate(threshold)
        assert set(low.tolist()) == {row for row, bound in before.items() if bound < threshold}
        assert entries(heap) == {row: bound for row, bound in before.items() if bound >= threshold}
        for run in (heap.settled, heap.pushed):
            assert run.least == run.bounds.min(initial=np.inf)
            assert not run.is_sorted or (np.diff(run.bounds) >= 0).all()
        more = data.draw(st.lists(st.floats(-5, 5, allow_subnormal=False), max_size=3))
        heap, _ = pushed(heap, more, used)
        used += len(more)


@settings(max_examples=60)
@given(batches=pushes, data=st.data())
def test_lazy_deletion_and_draws(batches, data):
    heap, used = HeapArms(0), 0
    for batch in batches:
        heap, _ = pushed(heap, batch, used)
        used += len(batch)
    if used:
        drawn = heap.draw(50 * used, np.random.default_rng(used))
        assert set(drawn.tolist()) <= set(heap.rows.tolist())
    alive = np.array(sorted(data.draw(st.sets(st.integers(0, max(used - 1, 0))))), dtype=np.int64)
    alive = alive[alive < used]
    kept = heap.kept(NO_ARMS.with_rows(alive))
    assert entries(kept) == {row: bound for row, bound in entries(heap).items() if row in set(alive.tolist())}
