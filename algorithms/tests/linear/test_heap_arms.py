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
@given(
    batches=pushes,
    thresholds=st.lists(st.floats(-6, 8), max_size=9),
    data=st.data(),
)
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


@settings(max_examples=150)
@given(
    steps=st.lists(st.tuples(st.booleans(), st.sets(st.integers(0, 70), max_size=20)), max_size=10),
    asked=st.lists(st.integers(0, 200), max_size=30),
)
def test_the_bits_are_a_set(steps, asked):
    living, mirror = NO_ARMS, set()
    for adding, rows in steps:
        before, earlier = living, set(mirror)
        changed = rows - mirror if adding else rows & mirror
        array = np.array(sorted(changed), dtype=np.int64)
        living = living.with_rows(array) if adding else living.without(array)
        mirror = mirror | changed if adding else mirror - changed
        assert set(before.rows().tolist()) == earlier
        assert living.rows().tolist() == sorted(mirror)
        assert living.count == len(mirror)
    rows = np.array(asked, dtype=np.int64)
    assert living.mask(rows).tolist() == [row in mirror for row in asked]
    assert living.among(rows).tolist() == [row for row in asked if row in mirror]


@pytest.mark.parametrize(("settled", "pushed"), [(1, 0), (1, 1), (9, 3), (100, 1), (100, 10)])
def test_a_draw_is_uniform_over_the_entries_of_both_runs(settled, pushed):
    """The places that the generator draws are those of the entries, each as often as it was drawn."""
    rows = 7 * np.arange(settled + pushed) + 5
    heap = HeapArms(0).push(rows[:settled], np.zeros(settled)).push(rows[settled:], np.zeros(pushed))
    assert (len(heap.settled), len(heap.pushed)) == (settled, pushed)
    for size in (0, 1, 40 * settled):
        places = np.random.default_rng(size).integers(0, settled + pushed, size)
        drawn = heap.draw(size, np.random.default_rng(size))
        assert sorted(drawn.tolist()) == sorted(rows[places].tolist())
