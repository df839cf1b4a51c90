"""A flat index: all arms with 8 bits a number, of which the best few are scored again exactly."""

from __future__ import annotations

import time
from typing import ClassVar

import numpy as np

from shortlist.mips.exact import ranked
from shortlist_service.indexes import (
    NO_ROWS,
    Candidate,
    Degradation,
    ExactLists,
    Index,
    Plan,
    Probes,
    Quality,
    Rows,
    TableSnapshot,
    Task,
    TopK,
    Vector,
    measured,
)

KIND = "flat8"
RESCORED = 40


class Flat8(Index):
    """Codes (n, d) of 8 bits, and what each row of them is to be multiplied with (n,)."""

    kind: ClassVar[str] = KIND

    def __init__(self, table: TableSnapshot, rows: Rows) -> None:
        super().__init__(table.rows, Degradation(len(rows)))
        features = table.features[rows]
        self._scales = np.abs(features).max(axis=1) / 127.0
        self._codes = np.rint(features / np.maximum(self._scales, 1e-300)[:, None]).astype(np.int8)
        self._rows = rows
        self._places = np.full(table.rows, -1)
        self._places[rows] = np.arange(len(rows))

    @property
    def rows(self) -> Rows:
        return self._rows

    @property
    def memory_bytes(self) -> int:
        arrays = (self._codes, self._scales, self._rows, self._places)
        return sum(int(array.nbytes) for array in arrays)

    def search(self, table: TableSnapshot, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK | None:
        count = RESCORED + 2 * k + len(exclude)
        if count > len(self._rows) - self.degradation.dead:
            return None
        scores = self._scales * (self._codes @ query)
        scores[self.degradation.gone] = -np.inf
        rows = self._rows[np.argpartition(-scores, count - 1)[:count]]
        rows = rows[rows >= 0]
        rows = rows[table.is_alive(rows) & ~np.isin(rows, exclude)]
        return ranked(rows, k, table.features, query, exact=False) if len(rows) >= k else None

    def tombstone(self, rows: Rows) -> None:
        places = self._places[rows[rows < self.covered]]
        places = places[places >= 0]
        self.degradation.tombstone(places[~self.degradation.gone[places]])

    def moved(self, position: Rows, covered: int) -> Flat8:
        other = object.__new__(Flat8)
        other.__dict__.update(self.__dict__)
        other.covered, other._rows = covered, np.append(position, -1)[self._rows]
        other._places = np.full(covered, -1)
        there = other._rows >= 0
        other._places[other._rows[there]] = np.flatnonzero(there)
        return other

    def answered(self, quality: Quality, probes: Probes, lists: ExactLists) -> None:
        self.degradation.answered(quality, self._places[probes.winners], probes.groups)


def attempt(task: Task) -> tuple[Plan, Index | None]:
    """Build it over all arms, and measure whether it may serve."""
    started = time.perf_counter()
    index = Flat8(task.table, task.table.live_rows)
    return measured(task, index, time.perf_counter() - started)


CANDIDATE = Candidate(KIND, attempt)
