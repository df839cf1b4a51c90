"""How arms get into hnswlib's graphs: inserted in chunks, or with a copy of a graph that has them.

A process inserts into one graph at a time, a chunk of arms of one and then of the other. Two builds at once
would leave no core to the event loop where there are two, and its searches would wait for whole time slices
of the scheduler.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.indexes.table import TableSnapshot
from shortlist.types import Rows

_SIMD_FLOATS = 16
_CHUNK = 5_000
_INSERTING = threading.Lock()
_LOOK_EVERY_S = 0.05


@contextmanager
def build_lock(check: Callable[[], None]) -> Iterator[None]:
    """Wait until no other graph is inserted into, and hold all others back; ``check`` may raise meanwhile."""
    while not _INSERTING.acquire(timeout=_LOOK_EVERY_S):
        check()
    try:
        yield
    finally:
        _INSERTING.release()


def insert(
    index: Any,
    table: TableSnapshot,
    rows: Rows,
    labels: NDArray[np.int64],
    exponent: int,
    *,
    threads: int,
    check: Callable[[], None],
) -> None:
    """Insert ``rows`` (n,) under ``labels`` (n,), their features times 2 to the power ``exponent``."""
    for start in range(0, len(rows), _CHUNK):
        check()
        some = slice(start, start + _CHUNK)
        block = np.zeros((len(rows[some]), padded(table.dim)), dtype=np.float32)
        block[:, : table.dim] = np.ldexp(table.features[rows[some]], exponent)
        with build_lock(check):
            index.add_items(block, labels[some], num_threads=threads)


def copied(index: Any, labels: NDArray[np.int64], room: int) -> dict[str, Any]:
    """Of what hnswlib makes a copy of a graph with ``room`` for so many arms. Label i is ``labels[i]``."""
    (state,) = index.__getstate__()
    external, internal = state["label_lookup_external"], state["label_lookup_internal"]
    external[:] = labels[external.astype(np.int64)]
    count, first = state["cur_element_count"], state["label_offset"]
    nodes = state["data_level0"].view(np.uint8)[: count * state["size_data_per_element"]]
    nodes = nodes.reshape(count, -1)
    nodes[internal, first : first + 8] = external.astype("<u8").view(np.uint8).reshape(count, 8)
    return {**state, "max_elements": room}


def padded(dim: int) -> int:
    """Numbers of an arm in a graph: hnswlib multiplies so many at once without a rest."""
    return -(-dim // _SIMD_FLOATS) * _SIMD_FLOATS
