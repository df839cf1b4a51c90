"""What a plain scan should take on this machine, until one is timed on the catalogue itself."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache

import numpy as np

from app.indexes.table import aligned_empty
from shortlist.mips.exact import candidates

_DIM = 32
_FEW_ROWS, _MANY_ROWS = 64, 32_768
_REPEATS = 9


@dataclass(frozen=True, slots=True)
class ScanCost:
    """Times in microseconds: ``call_us`` for a scan of no arm, ``number_us`` for every number it reads."""

    call_us: float
    number_us: float

    def us(self, numbers: float) -> float:
        """Time of a scan that reads this many numbers: arms times dimension."""
        return self.call_us + self.number_us * numbers


@cache
def measured_scan_cost() -> ScanCost:
    """The cost on this machine, timed once in a process: that takes some milliseconds."""
    few, many = _scan_us(_FEW_ROWS), _scan_us(_MANY_ROWS)
    number_us = max(many - few, 0.0) / (_DIM * (_MANY_ROWS - _FEW_ROWS))
    return ScanCost(max(few - number_us * _DIM * _FEW_ROWS, 0.0), number_us)


def _scan_us(rows: int) -> float:
    working = aligned_empty(rows, _DIM)
    working[:] = 1.0
    query = np.ones(_DIM, dtype=np.float32)
    seconds = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        approximate = working @ query
        approximate[0] = np.inf  # as usual, one arm is the best by far
        candidates(approximate, 0.0, 1)
        seconds.append(time.perf_counter() - started)
    return float(np.median(seconds) * 1e6)
