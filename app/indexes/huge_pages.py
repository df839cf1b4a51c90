"""Huge pages for the memory of a graph: a search of a large one waits mostly for addresses to be translated.

hnswlib takes its memory from malloc, in pages of 4 kB. In pages of 2 MB a search of a graph over 330,000
arms takes a fifth to a quarter less time. Linux alone is asked, and may refuse; then pages stay as they are.
Nothing but times depends on it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_PAGE = 2 << 20
_LEAST = 32 << 20  # malloc gives smaller blocks no mapping of their own
_HUGEPAGE, _COLLAPSE = 14, 25  # advice of madvise(2): in time (MADV_HUGEPAGE), and now (since Linux 6.1)
_MAPS = Path("/proc/self/maps")

Mapping = tuple[int, int]
"""First address of some memory, and the one after its last."""


@contextmanager
def huge_pages(size: int) -> Iterator[None]:
    """Put the block of about ``size`` bytes that is allocated within into huge pages, if it is a large one.

    The block is to be used wholly, for a huge page is taken as one. Cost: a copy of what was written into it.
    """
    before = _mappings() if size >= _LEAST else []
    yield
    if before:
        _advise([part for part in _added(before, _mappings()) if part[1] - part[0] >= size])


def _mappings() -> list[Mapping]:
    """The private, writable mappings without a file, ascending; none where it is not told."""
    try:
        fields = [line.split() for line in _MAPS.read_text().splitlines()]
    except OSError:
        return []
    ranges = [line[0].split("-") for line in fields if line[1] == "rw-p" and len(line) == 5]
    return [(int(first, 16), int(end, 16)) for first, end in ranges]


def _added(before: Sequence[Mapping], after: Sequence[Mapping]) -> Iterator[Mapping]:
    """The parts of ``after`` that are in none of ``before``; both ascending."""
    for first, end in after:
        rest = first
        for old_first, old_end in before:
            if old_end <= rest or old_first >= end:
                continue
            if old_first > rest:
                yield rest, old_first
            rest = old_end
        if rest < end:
            yield rest, end


def _advise(parts: Sequence[Mapping]) -> None:
    if not sys.platform.startswith("linux"):
        return
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for first, end in parts:
        aligned = -(-first // _PAGE) * _PAGE
        for advice in (_HUGEPAGE, _COLLAPSE):
            madvise(aligned, max(0, (end - aligned) // _PAGE * _PAGE), advice)
