"""Indexes that keep codes of the arms, of which the best few are scored again exactly.

``flat8`` reads all codes, of 8 bits a number. ``ivf_pq`` reads those near the query: an inverted file of
product quantization codes, of 4 bits a number; faiss searches it.

Source: Jégou, Douze and Schmid, "Product Quantization for Nearest Neighbor Search" (2011), section IV.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from functools import partial
from importlib.util import find_spec
from typing import Any, ClassVar, Self

import numpy as np

from shortlist.index.probes import ExactLists, Probes, Quality
from shortlist.index.table import TableSnapshot
from shortlist.mips.exact import ranked
from shortlist.types import NO_ROWS, Rows, TopK, Vector
from shortlist_service.indexes import Candidate, Degradation, Index, Plan, Task, measured

RESCORED = 100
READ_SHARE = 0.4  # of the lists of an inverted file, in a search


class Codes(Index):
    """Codes of some rows, in their order. ``places``: where in the codes a row of the table is, or -1."""

    def __init__(self, table: TableSnapshot, seed: int = 0) -> None:
        super().__init__(table.rows, Degradation(len(table.live_rows)))
        self._rows = table.live_rows
        self._places = np.full(table.rows, -1)
        self._places[self._rows] = np.arange(len(self._rows))
        self._code_bytes = self.encode(table.features[self._rows], seed)

    @abstractmethod
    def encode(self, features: Any, seed: int) -> int:
        """Keep codes of features (n, d). Returns their bytes."""

    @abstractmethod
    def nearest(self, query: Vector, count: int) -> Rows:
        """The places of about the ``count`` arms of largest product with the query, in any order."""

    @property
    def rows(self) -> Rows:
        return self._rows

    @property
    def memory_bytes(self) -> int:
        return self._code_bytes + self._rows.nbytes + self._places.nbytes

    def search(self, table: TableSnapshot, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK | None:
        count = RESCORED + 2 * k + len(exclude) + self.degradation.dead
        if count > len(self._rows):
            return None
        rows = self._rows[self.nearest(query, count)]
        rows = rows[rows >= 0]
        rows = rows[table.is_alive(rows) & ~np.isin(rows, exclude)]
        return ranked(rows, k, table.features, query, exact=False) if len(rows) >= k else None

    def tombstone(self, rows: Rows) -> None:
        places = self._places[rows[rows < self.covered]]
        places = places[places >= 0]
        self.degradation.tombstone(places[~self.degradation.gone[places]])

    def moved(self, position: Rows, covered: int) -> Self:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.covered, other._rows = covered, np.append(position, -1)[self._rows]
        other._places = np.full(covered, -1)
        there = other._rows >= 0
        other._places[other._rows[there]] = np.flatnonzero(there)
        return other

    def answered(self, quality: Quality, probes: Probes, lists: ExactLists) -> None:
        self.degradation.answered(quality, self._places[probes.winners], probes.groups)


class Flat8(Codes):
    """8 bits a number, and what each code is to be multiplied with."""

    kind: ClassVar[str] = "flat8"

    def encode(self, features: Any, seed: int) -> int:
        self._scales = np.abs(features).max(axis=1) / 127.0
        self._codes = np.rint(features / np.maximum(self._scales, 1e-300)[:, None]).astype(np.int8)
        return int(self._codes.nbytes + self._scales.nbytes)

    def nearest(self, query: Vector, count: int) -> Rows:
        scores = self._scales * (self._codes @ query)
        return np.argpartition(-scores, count - 1)[:count]


class IvfPq(Codes):
    """Pairs of numbers in 8 bits, in about n^1/2 lists."""

    kind: ClassVar[str] = "ivf_pq"

    def encode(self, features: Any, seed: int) -> int:
        import faiss  # noqa: PLC0415 - where it is not installed the kind is refused before

        count, dim = features.shape
        lists, parts = max(1, int(count**0.5)), next(n for n in range(-(-dim // 2), dim + 1) if dim % n == 0)
        inner = faiss.METRIC_INNER_PRODUCT
        self._lists = faiss.index_factory(dim, f"IVF{lists},PQ{parts}x{8 if count > 256 else 1}", inner)
        self._lists.do_polysemous_training = False  # for searches by Hamming distance
        self._lists.nprobe = max(1, round(READ_SHARE * lists))
        for training in (self._lists.cp, self._lists.pq.cp):
            training.seed, training.min_points_per_centroid = seed % 2**31, 1
        self._lists.train(np.ascontiguousarray(features, dtype=np.float32))
        self._lists.add(np.ascontiguousarray(features, dtype=np.float32))
        return int(count * (parts + 8) + 4 * dim * (lists + 256))

    def nearest(self, query: Vector, count: int) -> Rows:
        places = self._lists.search(query[None].astype(np.float32), count)[1][0]
        return np.asarray(places[places >= 0])


def attempt(structure: type[Codes], task: Task) -> tuple[Plan, Index | None]:
    """Build it over all arms, and measure whether it may serve."""
    started = time.perf_counter()
    index = structure(task.table, task.build.seed)
    return measured(task, index, time.perf_counter() - started)


FLAT8 = Candidate("flat8", partial(attempt, Flat8))
IVF_PQ = Candidate("ivf_pq", partial(attempt, IvfPq), missing=None if find_spec("faiss") else "faiss-cpu")
