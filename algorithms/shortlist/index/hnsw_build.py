"""Building hnswlib's graphs: inserting arms in chunks, copying a graph, and huge pages for its memory.

A large graph is put into pages of 2 MB where Linux allows it: a search waits mostly for addresses to be
translated, and over 330,000 arms it takes a fifth to a quarter less time than with pages of 4 kB. Where the
kernel refuses, nothing but times changes.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shortlist.index.table import TableSnapshot
from shortlist.types import Rows

_SIMD_FLOATS = 16
_CHUNK = 5_000
_PAGE = 2 << 20
_LEAST = 32 << 20  # malloc gives smaller blocks no mapping of their own
_HUGEPAGE, _COLLAPSE = 14, 25  # advice of madvise(2): in time (MADV_HUGEPAGE), and now (since Linux 6.1)
_MAPS = Path("/proc/self/maps")
Mapping = tuple[int, int]
"""First address of some memory, and the one after its last."""


def insert(
    index: Any,
    table: TableSnapshot,
    rows: Rows,
    labels: NDArray[np.int64],
    exponent: int,
    *,
    threads: int,
    serial: int = 0,
    check: Callable[[], None],
    advance: Callable[[float], None],
) -> None:
    """Insert ``rows`` (n,) under ``labels`` (n,), their features times 2 to the power ``exponent``.

    The first ``serial`` of them with one thread. ``advance`` is told the share that is inserted.
    """
    serial = min(serial, len(rows))
    starts = [*range(0, serial, _CHUNK), *range(serial, len(rows), _CHUNK)]
    for start, end in pairwise([*starts, len(rows)]):
        check()
        advance(start / len(rows))
        chunk = slice(start, end)
        block = np.zeros((len(rows[chunk]), padded(table.dim)), dtype=np.float32)
        # By a power of two: exact, so that scores of the graph are those of the table but for rounding to
        # float32.
        block[:, : table.dim] = np.ldexp(table.features[rows[chunk]], exponent)
        index.add_items(block, labels[chunk], num_threads=1 if start < serial else threads)
    advance(1.0)


def copied(index: Any, labels: NDArray[np.int64], room: int) -> dict[str, Any]:
    """The arguments with which hnswlib makes a copy of a graph with ``room``. Label i is ``labels[i]``."""
    (state,) = index.__getstate__()
    external, internal = state["label_lookup_external"], state["label_lookup_internal"]
    # hnswlib has the labels twice: in a table, and beside each node. Both have to be the new ones.
    external[:] = labels[external.astype(np.int64)]
    count, first = state["cur_element_count"], state["label_offset"]
    nodes = state["data_level0"].view(np.uint8)[: count * state["size_data_per_element"]]
    nodes = nodes.reshape(count, -1)
    nodes[internal, first : first + 8] = external.astype("<u8").view(np.uint8).reshape(count, 8)
    return {**state, "max_elements": room}


def padded(dim: int) -> int:
    """Numbers of an arm in a graph: hnswlib multiplies so many at once without a rest."""
    return -(-dim // _SIMD_FLOATS) * _SIMD_FLOATS


@contextmanager
def huge_pages(size: int, maps: Path = _MAPS) -> Iterator[None]:
    """Put the block of about ``size`` bytes allocated inside into huge pages, if large.

    ``maps``: lists the memory of this process.

    The block is to be used wholly, for a huge page is taken as one. Cost: a copy of its written bytes.
    """
    before = _mappings(maps) if size >= _LEAST else []
    yield
    if before:
        _advise([part for part in _added(before, _mappings(maps)) if part[1] - part[0] >= size])


def _mappings(maps: Path = _MAPS) -> list[Mapping]:
    """The private, writable mappings without a file, ascending; none where it is unknown."""
    try:
        fields = [line.split() for line in maps.read_text().splitlines()]
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
        # The kernel takes whole huge pages only; what is before the first border stays as it is.
        aligned = -(-first // _PAGE) * _PAGE
        for advice in (_HUGEPAGE, _COLLAPSE):
            madvise(aligned, max(0, (end - aligned) // _PAGE * _PAGE), advice)
