"""Approximate search: an HNSW graph on raw inner product over the arms that can win, exactly re-ranked.

Notation
    core        the arms in the graph: those whose norm is at least a measured cut
    label       position in the order of insertion, norms descending; never reused within a graph
    ef          length of the candidate list of a search: quality against time
    load        expected number of dead arms among the ef nearest of a query; hnswlib passes them by, and goes
                on to ef living ones
    reserve     number of longest arms that can die before arms outside of the core begin to win
    missing     how many more than that have died: so many substitutes are searched beside the graph
    head        the longest arms of the core, scanned beside the graph as well

Inserting by descending norm puts the hubs of an inner product graph first and side by side in memory: at
K = 10^6, d = 32 it finds at ef 64 what random order finds at ef 128. Arms of small norm never win, so they
are left out; which norms are small is measured on probes, and the reported recall counts every arm. Were
the longest arms to die, shorter ones would win: the core is chosen as if the reserve were dead already, and
the longest that were left out stand by as substitutes.

A graph is never added to once it is searched (hnswlib #562, #590). A deletion sets a flag that searches read
without a lock: one byte, apart from the link count beside it, and every result is checked against the view
of its caller anyway. Fresh arms are scanned beside the graph until it is built again. So is the head, always:
a graph can miss a long arm for a narrow range of queries for good (``beside``).
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import hnswlib
import numpy as np
from numpy.typing import NDArray

from app.algorithms.mips.exact import error_line, ranked, unit_scale
from app.algorithms.types import NO_ROWS, Rows, TopK, Vector
from app.indexes.beside import ArmsBeside
from app.indexes.exact import contenders
from app.indexes.table import ArmView, places_of

_SIMD_FLOATS = 16
_SERIAL_ARMS = 4_000
_CHUNK = 20_000
_SHORT = 256
_HEAD_NUMBERS = 32_768
# Arms that a search may come by, dead ones included, in multiples of ef: beyond that ef is lowered.
_MOST_PASSED = 1.5
# 1 - x.q is the distance hnswlib computes: large products keep the 1 from costing them digits.
_LARGEST_NORM_EXPONENT = 30


class HnswGraph:
    """A graph over some rows of a view. ``tuned`` before it is searched."""

    kind: ClassVar[Literal["hnsw"]] = "hnsw"

    def __init__(self, index: Any, rows: Rows, *, covered: int, m: int) -> None:
        self._index = index
        self._rows = rows
        self._labels = places_of(rows, covered)
        self._m = m
        self._appearances: NDArray[np.float32] = np.zeros(len(rows), dtype=np.float32)
        self._shortlist = self._ef = self._most = 1
        self._buried: NDArray[np.bool_] = np.zeros(len(rows), dtype=np.bool_)
        self.covered = covered
        self.reserve = 0
        self.missing = 0
        self.dead = 0
        self.load = 0.0
        self._substitutes = self._head = ArmsBeside.none()
        # Of the distances that hnswlib computes in float32, 1 - x.q: one more operation than x.q.
        self._error_line = error_line(index.dim + 1, 2.0**_LARGEST_NORM_EXPONENT, np.dtype(np.float32))

    @classmethod
    def build(
        cls,
        view: ArmView,
        rows: Rows,
        *,
        m: int,
        ef_construction: int,
        seed: int,
        threads: int,
        check: Callable[[], None],
    ) -> HnswGraph:
        """Build a graph over live ``rows``. ``check`` is called between chunks and may raise to stop.

        Shapes: rows (n,), n >= 1. The GIL is released during insertion. With one thread the graph is a
        function of the arguments.
        """
        shape = {"m": m, "ef_construction": ef_construction, "seed": seed, "threads": threads}
        return cls.inserted(view, rows[np.argsort(-view.norms[rows], kind="stable")], check=check, **shape)

    @classmethod
    def inserted(
        cls,
        view: ArmView,
        rows: Rows,
        *,
        m: int,
        ef_construction: int,
        seed: int,
        threads: int,
        check: Callable[[], None],
    ) -> HnswGraph:
        """As ``build``, in the order of ``rows``."""
        index = hnswlib.Index(space="ip", dim=_padded(view.dim))
        index.init_index(len(rows), M=m, ef_construction=ef_construction, random_seed=seed)
        exponent = _LARGEST_NORM_EXPONENT - int(np.frexp(view.norms[rows].max())[1])
        start = 0
        while start < len(rows):
            check()
            # Parallel insertion into a small graph can strand points (hnswlib #579).
            stop = min(start + (_CHUNK if start else _SERIAL_ARMS), len(rows))
            block = np.zeros((stop - start, _padded(view.dim)), dtype=np.float32)
            block[:, : view.dim] = np.ldexp(view.features[rows[start:stop]], exponent)
            index.add_items(block, np.arange(start, stop), num_threads=threads if start else 1)
            start = stop
        return cls(index, rows, covered=view.rows, m=m)

    @classmethod
    def load_verified(cls, path: Path, rows: Rows, *, dim: int, covered: int, m: int) -> HnswGraph:
        """Read what ``save`` wrote. The caller vouches for every byte: hnswlib checks nothing (#673)."""
        index = hnswlib.Index(space="ip", dim=_padded(dim))
        index.load_index(os.fspath(path), max_elements=len(rows))
        graph = cls(index, rows, covered=covered, m=m)
        graph._bury_labels(np.flatnonzero(rows < 0))
        return graph

    def save(self, path: Path) -> None:
        """Write the graph in hnswlib's format, holding the GIL (0.5 ms per MB). Raises OSError."""
        self._index.save_index(os.fspath(path))
        if path.stat().st_size != self._index.index_file_size():
            raise OSError("the graph was not written completely")

    @property
    def arms(self) -> int:
        return len(self._rows)

    @property
    def rows(self) -> Rows:
        """Row of every label (n,), -1 for arms that are gone."""
        return self._rows

    @property
    def reserve_used(self) -> float:
        """How much of the reserve is gone, beyond 1 all of it.

        Counted are the dead among twice as many arms, so that it does not matter which of them died.
        """
        return np.count_nonzero(self._buried[: 2 * self.reserve]) / max(self.reserve, 1)

    @property
    def load_share(self) -> float:
        """The load as a share of ef."""
        return min(self.load / self._ef, 1.0)

    @property
    def slowdown(self) -> float:
        """How much longer a search of the graph takes, with its dead, than when it was measured."""
        return 1.0 / max(1.0 - self.load_share, 1.0 / _MOST_PASSED)

    @property
    def is_worn_out(self) -> bool:
        """Whether more are missing than can be substituted: the measured recall holds no longer."""
        return self.missing > len(self._substitutes)

    @property
    def memory_bytes(self) -> int:
        per_arm = 4 * (2 * self._m + 1) + 4 * _padded(self._index.dim) + 8 + 96
        beside = self._substitutes.memory_bytes + self._head.memory_bytes
        return len(self._rows) * (per_arm + 12) + self._labels.nbytes + beside

    def with_head(self, view: ArmView) -> None:
        """Scan the longest arms beside the graph, for a graph of ``build``: in descending order of norm."""
        rows = self._rows[: _HEAD_NUMBERS // view.dim]
        self._head = ArmsBeside.copied(view, rows[rows >= 0])

    def with_reserve(self, reserve: int, substitutes: ArmsBeside) -> None:
        """The core was chosen as if ``reserve`` arms had died; ``substitutes`` stand in for more.

        Their labels follow those of the core.
        """
        self.reserve, self._substitutes = reserve, substitutes
        self._labels = places_of(np.append(self._rows, substitutes.rows), self.covered)
        self._buried = np.append(self._buried, np.zeros(len(substitutes), dtype=np.bool_))

    def tuned(self, ef: int, *, shortlist: int, most: int) -> None:
        """Search with ``ef``, score ``shortlist`` arms again, and never ask for more than ``most``."""
        self._index.set_ef(ef)
        self._ef, self._shortlist, self._most = ef, shortlist, most

    def nearest(self, query: Vector, count: int) -> NDArray[np.int64] | None:
        """Labels of about the best ``count`` arms, None if fewer were reached. For any thread."""
        found = self._near(unit_scale(query)[0], count)
        return None if found is None else found[0]

    def _near(self, scaled: Vector, count: int) -> tuple[NDArray[np.int64], NDArray[np.float32]] | None:
        """Labels, the nearest first, and their distances."""
        padded = np.zeros((1, self._index.dim), dtype=np.float32)
        padded[0, : len(scaled)] = scaled
        try:
            labels, distances = self._index.knn_query(padded, k=count, num_threads=1)
        except RuntimeError:
            # "Cannot return the results in a contiguous 2D array": everything reachable was seen, so a
            # larger ef would find no more (#608).
            return None
        return labels[0].astype(np.int64), distances[0]

    def search(self, view: ArmView, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK | None:
        """Return about the ``k`` best rows, fresh ones included; None when that needs a scan.

        Every row is alive in ``view``, not in ``exclude``, and appears once; scores are exact.
        """
        count = max(self._shortlist, 2 * k) + len(exclude)
        count = min(count, len(self._rows) - self.dead)
        if not k <= count <= self._most:
            return None
        scaled, query_norm = unit_scale(query)
        near = self._near(scaled, count)
        if near is None:
            return None
        labels, distances = near
        any_dead = self.dead > 0 or len(view.dead) > 0
        if not any_dead and not len(exclude):
            slope, offset = self._error_line
            farthest = float(distances[k - 1]) + 2.0 * (slope * query_norm + offset)
            labels = labels[: distances.searchsorted(farthest, side="right")]  # others cannot be the best k
        found = [self._rows[labels], *self._beside(view, scaled, query_norm, k + len(exclude))]
        rows = np.concatenate(found) if len(found) > 1 else found[0]
        if any_dead:
            rows = rows[(rows >= 0) & view.is_alive(rows)]
        if len(exclude):
            rows = rows[_not_in(rows, exclude)]
        if k > 1:
            rows = np.unique(rows)  # the head is in the graph as well
        if len(rows) < k:
            return None
        return ranked(rows, k, view.features, query, exact=False)

    def _beside(self, view: ArmView, scaled: Vector, query_norm: float, k: int) -> list[Rows]:
        """Rows of the head, of substitutes for the missing and of fresh arms that could be the best ``k``."""
        slope, offset = view.error_line
        error, found = slope * query_norm + offset, []
        if len(self._head):
            gone = self._buried[: len(self._head)]
            found.append(self._head.best(scaled, error, k, gone, any_gone=self.dead > 0))
        if self.missing:
            gone = self._buried[len(self._rows) :][: self.missing]
            found.append(self._substitutes.best(scaled, error, k, gone, any_gone=True))
        if view.rows > self.covered:
            found.append(contenders(view, scaled, error, k, first=self.covered))
        return found

    def weigh(self, probes: NDArray[np.float64]) -> None:
        """Learn on ``probes`` (P, d) how often each arm is among the ef nearest, to price its death."""
        count = min(self._ef, len(self._rows) - self.dead)
        found = [labels for probe in probes if (labels := self.nearest(probe, count)) is not None]
        if found:
            appearances = np.bincount(np.concatenate(found), minlength=len(self._rows))
            self._appearances = (appearances / len(found)).astype(np.float32)

    def bury(self, rows: Rows) -> None:
        """Mark rows as deleted, each once. Searches in other threads may go on."""
        labels = self._labels[rows[rows < self.covered]].astype(np.int64)
        self._bury_labels(labels[labels >= 0])

    def moved(self, position: Rows, covered: int) -> HnswGraph:
        """The same graph after a compaction: row r is now ``position[r]``, -1 if it is gone."""
        other = copy.copy(self)
        other.covered = covered
        other._rows = np.append(position, -1)[self._rows]
        other._substitutes, other._head = self._substitutes.moved(position), self._head.moved(position)
        other._labels = places_of(np.append(other._rows, other._substitutes.rows), covered)
        return other

    def _bury_labels(self, labels: NDArray[np.int64]) -> None:
        self._buried[labels] = True
        labels = labels[labels < len(self._rows)]
        for label in labels.tolist():
            self._index.mark_deleted(label)
        self.dead += len(labels)
        self.load += float(self._appearances[labels].sum())
        self._index.set_ef(max(1, min(self._ef, int(_MOST_PASSED * self._ef * (1.0 - self.load_share)))))
        longest = self._buried[: 2 * (self.reserve + len(self._substitutes))]
        self.missing = max(0, int(np.count_nonzero(longest)) - self.reserve)


def _not_in(rows: Rows, exclude: Rows) -> NDArray[np.bool_]:
    """As ~np.isin, which takes longer than the search when ``exclude`` is short."""
    if len(exclude) > _SHORT:
        return ~np.isin(rows, exclude)
    differs: NDArray[np.bool_] = (rows[:, None] != exclude).all(axis=1)
    return differs


def _padded(dim: int) -> int:
    return -(-dim // _SIMD_FLOATS) * _SIMD_FLOATS
