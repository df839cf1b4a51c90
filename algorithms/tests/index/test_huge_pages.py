"""Huge pages: which memory is asked for, and that Linux gives it."""

from __future__ import annotations

import mmap
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.index.hnsw_build import _added, _mappings, huge_pages

pytestmark = pytest.mark.rest

_ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_BLOCK = 64 << 20


@st.composite
def _ranges(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Ranges that do not overlap, ascending."""
    ends = sorted(draw(st.sets(st.integers(0, 40), max_size=12)))
    return [(first, end) for first, end in zip(ends[::2], ends[1::2], strict=False)]


@given(_ranges(), _ranges())
def test_what_was_added_is_what_no_range_before_had(before, after):
    def numbers(ranges):
        return {number for first, end in ranges for number in range(first, end)}

    added = list(_added(before, after))
    assert numbers(added) == numbers(after) - numbers(before)
    assert sum(end - first for first, end in added) == len(numbers(added))
    assert all(first < end for first, end in added)


@pytest.mark.skipif(
    not _ENABLED.exists() or "[never]" in _ENABLED.read_text(), reason="this kernel has no huge pages to give"
)
def test_a_block_that_is_allocated_within_is_in_huge_pages_and_keeps_what_is_in_it():
    with huge_pages(_BLOCK):
        block = mmap.mmap(-1, _BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        block.write(b"kept" * (_BLOCK // 8))
    before = _huge_bytes()
    block.write(b"more" * (_BLOCK // 8))  # what is touched later
    assert block[:4] + block[-4:] == b"keptmore"
    assert before >= _BLOCK // 2 - (4 << 20)
    assert _huge_bytes() >= _BLOCK - (4 << 20)
    block.close()


def test_a_small_block_is_left_alone(monkeypatch):
    monkeypatch.setattr("shortlist.index.hnsw_build._advise", lambda parts: pytest.fail(f"asked for {parts}"))
    with huge_pages(1 << 20):
        pass


def test_a_system_without_such_a_list_is_left_alone(monkeypatch, tmp_path):
    monkeypatch.setattr("shortlist.index.hnsw_build._advise", lambda parts: pytest.fail(f"asked for {parts}"))
    with huge_pages(_BLOCK, tmp_path / "maps"):
        pass


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lists its mappings like this")
def test_mappings_are_ascending_and_apart():
    found = _mappings()
    assert found
    assert all(first < end for first, end in found)
    assert all(one[1] <= other[0] for one, other in pairwise(found))


def _huge_bytes() -> int:
    """Anonymous memory of this process that is in huge pages."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("AnonHugePages"))
