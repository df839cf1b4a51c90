"""An inverted file: approximate search over lists of rows, each around a centroid. It is made quickly.

Notation
    m, d        rows of the file, dimension
    n           centroids; the rows nearest to one of them are its list
    probed      lists read by a search: of the centroids of largest inner product with the query

To insert an arm into a graph takes fifty times as long as to find its centroid. So an inverted file serves
programs with a short run. The number of lists to read is measured on probes: the least with the best row of
as many probes as the target asks for. Where reading all rows is no slower, all are; also when the best rows
of many probes died.

Source: Jegou, Douze and Schmid, Product Quantization for Nearest Neighbor Search (2011), section IV, without
the codes: the rows are compared as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from shortlist.index.index import Index, IndexKind, PublicationReader, PublicationWriter, Saving
from shortlist.index.probes import (
    LIST,
    LONGEST_LIST,
    ExactLists,
    Probes,
    Quality,
    make_queries,
    solve,
    typical_us,
)
from shortlist.index.quality import Degradation
from shortlist.index.table import TableSnapshot, Working, not_in, positions_of
from shortlist.mips.exact import candidates, error_line, ranked, unit_scale
from shortlist.types import NO_ROWS, Matrix, Rows, TopK, Vector

_FEWEST, _MOST = 16, 1_024
_LISTS = 0.5  # times the square root of the rows
_SAMPLE = 64  # rows for each centroid that it is trained on
_ROUNDS = 5
_CHUNK = 1_024  # rows: their products with all centroids fit into a cache
_PROBES, _PROBED_LISTS, _TIMED = 256, 40, 40

Labels = NDArray[np.int16]


@dataclass(frozen=True, slots=True, eq=False)
class Centroids:
    """Points (n, d) in working precision, and half of the square of each one's norm (n,)."""

    points: Working
    halves: Working

    @classmethod
    def of(cls, points: Working) -> Centroids:
        return cls(points, 0.5 * np.einsum("ij,ij->i", points, points))

    @classmethod
    def trained(cls, table: TableSnapshot, rows: Rows, rng: np.random.Generator) -> Centroids:
        """Lloyd's algorithm on a sample of ``rows`` (m,), m >= 1. Cost: 320 n n d multiply-adds."""
        count = int(np.clip(_LISTS * np.sqrt(len(rows)), _FEWEST, _MOST))
        sample = rng.permutation(rows)[: _SAMPLE * count]
        features = table.features[sample].astype(table.working.dtype)
        # The sample is in random order, so its first rows are a random choice.
        centroids = cls.of(features[:count])
        for _ in range(_ROUNDS):
            labels = centroids.nearest(features)
            order = np.argsort(labels, kind="stable")
            _, starts, counts = np.unique(labels[order], return_index=True, return_counts=True)
            points = np.add.reduceat(features[order], starts, axis=0) / counts[:, None]
            centroids = cls.of(points.astype(features.dtype))  # a list without rows is dropped
        return centroids

    def __len__(self) -> int:
        return len(self.points)

    def nearest(self, features: NDArray[np.floating[Any]]) -> Labels:
        """Number of the nearest centroid of each of ``features`` (m, d). Cost: m n d multiply-adds."""
        labels = np.empty(len(features), dtype=np.int16)
        for chunk in batched(np.arange(len(features))):
            # |x - c|^2 is least where x.c - |c|^2 / 2 is largest: one product of matrices, and |x|^2 is not
            # needed.
            labels[chunk] = (features[chunk] @ self.points.T - self.halves).argmax(axis=1)
        return labels


class SavedLists(msgspec.Struct, frozen=True):
    """An ``InvertedFile`` without the features of its rows; all arrays have one dimension."""

    rows: Rows
    starts: Rows
    centroids: Working
    probed: int | None
    probed_for_lists: tuple[int | None, int | None]


class InvertedFile(Index):
    """See the module. ``rows`` (m,), ``features`` (m, d): list after list. ``starts`` (n + 1,): of the lists.

    ``probed``: how many lists are read, None: all rows. Call ``tune`` before searching it. Memory: 4 d + 13
    bytes a row.
    """

    kind: ClassVar[IndexKind] = "inverted_file"

    def __init__(self, table: TableSnapshot, centroids: Centroids, rows: Rows, labels: Labels) -> None:
        super().__init__(table.rows, Degradation(len(rows)))
        self._rows: Rows = rows[np.argsort(labels, kind="stable")]
        self.centroids = centroids
        self.features: Working = np.empty((len(rows), table.dim), dtype=table.working.dtype)
        for chunk in batched(np.arange(len(rows))):
            self.features[chunk] = table.features[self.rows[chunk]]
        self.starts = np.concatenate(([0], np.bincount(labels, minlength=len(centroids)).cumsum()))
        largest = float(table.norms[rows].max(initial=0.0))
        self._error_line = error_line(table.dim, largest, self.features.dtype)
        self._positions = positions_of(self.rows, self.covered)
        self.probed: int | None = None
        self.probed_for_lists: tuple[int | None, int | None] = (None, None)

    @classmethod
    def build(cls, table: TableSnapshot, target: float, seed: int) -> InvertedFile:
        """One over the live rows, m >= 1, that finds the share ``target`` of the best.

        ``seed`` fixes what is drawn.

        Cost: m n d multiply-adds, and a scan for each of some 300 probes.
        """
        rng, rows = np.random.default_rng((seed, table.rows)), table.live_rows
        centroids = Centroids.trained(table, rows, rng)
        labels = [
            centroids.nearest(table.features[chunk].astype(table.working.dtype)) for chunk in batched(rows)
        ]
        inverted_file = cls(table, centroids, rows, np.concatenate(labels))
        queries, groups = make_queries(table.dim, _PROBES, (), rng)
        inverted_file.tune(table, solve(table, queries, groups=groups), target)
        lists = ExactLists.of(table, queries[:_PROBED_LISTS], groups[:_PROBED_LISTS])
        inverted_file.tuned_for_lists(lists, target)
        return inverted_file

    @classmethod
    def load(cls, at: PublicationReader) -> InvertedFile:
        """The one of which ``save`` wrote this."""
        saved = at.read(SavedLists)
        centroids = Centroids.of(saved.centroids.reshape(len(saved.starts) - 1, -1))
        labels = np.repeat(np.arange(len(centroids), dtype=np.int16), np.diff(saved.starts))
        inverted_file = cls(at.table, centroids, saved.rows, labels)
        inverted_file.probed, inverted_file.probed_for_lists = saved.probed, saved.probed_for_lists
        return inverted_file

    def save(self, to: PublicationWriter) -> SavedLists:  # noqa: ARG002 - it has no file of its own
        """The saved form of the file, where all of its rows live."""
        return SavedLists(
            self.rows, self.starts, self.centroids.points.ravel(), self.probed, self.probed_for_lists
        )

    @property
    def rows(self) -> Rows:
        """Its rows, list after list (m,), -1 for those that are gone."""
        return self._rows

    @property
    def memory_bytes(self) -> int:
        arrays = (
            self.rows,
            self.features,
            self._positions,
            self.degradation.gone,
            self.starts,
            self.centroids.points,
        )
        return sum(array.nbytes for array in arrays)

    def tune(self, table: TableSnapshot, probes: Probes, target: float) -> None:
        """Read as many lists as have the best rows of the share ``target`` of the ``probes``, or all rows.

        All are read where that takes no longer.
        """
        probed, us = self._least_probed(probes.queries, probes.winners, target), []
        # ``contenders`` reads ``self.probed``, so each value is set to be timed
        for self.probed in (None, probed):
            us.append(typical_us(lambda query: self.contenders(table, query, 1), probes.queries[:_TIMED]))
        # Few rows in few lists are read quicker in one piece.
        self.probed = probed if us[1] < us[0] else None

    def tuned_for_lists(self, lists: ExactLists, target: float) -> None:
        """Read as many lists as have that share of the ten and of the hundred best rows of each query."""
        if self.probed is not None:
            tenth, hundredth = (
                self._least_probed(
                    lists.queries.repeat([len(rows[:k]) for rows in lists.rows], axis=0),
                    np.concatenate([rows[:k] for rows in lists.rows]),
                    target,
                )
                for k in (LIST, LONGEST_LIST)
            )
            self.probed_for_lists = max(tenth, self.probed), max(hundredth, self.probed)

    def _least_probed(self, queries: Matrix, rows: Rows, target: float) -> int:
        """The least number of lists with this share of ``rows`` (n,), each for its one of ``queries`` (n,
        d), and with one standard error more.
        """
        positions = self._positions[rows]
        in_lists = np.flatnonzero(positions >= 0)
        lists = self.starts.searchsorted(positions[in_lists], side="right") - 1
        scores = queries[in_lists] @ self.centroids.points.T
        before = np.count_nonzero(scores > scores[np.arange(len(in_lists)), lists][:, None], axis=1)
        # One standard error more than asked for: other queries may find a little less than these probes.
        share = min(target + np.sqrt(target * (1.0 - target) / max(len(queries), 1)), 1.0)
        return int(np.quantile(before, share, method="higher")) + 1 if len(in_lists) else 1

    def _probed_for(self, k: int) -> int | None:
        """The number of lists to read for the ``k`` best rows, None: all."""
        if self.degradation.is_degraded or k > LONGEST_LIST:
            return None
        return self.probed if k == 1 else self.probed_for_lists[k > LIST]

    def search(self, table: TableSnapshot, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK | None:
        """About the best ``k`` rows of the file outside ``exclude``; None where the lists have fewer."""
        rows = self.contenders(table, query, k, exclude)
        return ranked(rows, k, table.features, query, exact=False) if len(rows) >= k else None

    def contenders(self, table: TableSnapshot, query: Vector, k: int, exclude: Rows = NO_ROWS) -> Rows:
        """About the best ``k`` rows of the file outside ``exclude``, and others that are about as good."""
        scaled, query_norm = unit_scale(query)
        slope, offset = self._error_line
        working, probed = scaled.astype(self.features.dtype, copy=False), self._probed_for(k)
        approximate, ends, stops = self._products(working, probed)
        # As many more as are excluded: all of those may be among the best.
        near = candidates(approximate, slope * query_norm + offset, k + len(exclude))
        which = stops.searchsorted(near, side="right")
        rows: Rows = self.rows[ends[which] + near - stops[which]]
        rows = rows[table.is_alive(rows)]
        if len(exclude):
            rows = rows[not_in(rows, exclude)]
        return rows

    def _products(self, scaled: Working, probed: int | None) -> tuple[Working, Rows, Rows]:
        """Approximate scores of the read rows, -inf of the dead.

        And the end of the i-th list, in the file and among the scores.
        """
        state = self.degradation
        if probed is None:
            approximate: Working = self.features @ scaled
            if state.dead:
                approximate[state.gone] = -np.inf
            end = np.array([len(self.rows)])
            return approximate, end, end
        scores = self.centroids.points @ scaled
        # Sorted: they are read in the order in which they lie in memory.
        lists = np.sort(np.argpartition(-scores, probed - 1)[:probed])
        begins, ends = self.starts[lists], self.starts[lists + 1]
        stops = (ends - begins).cumsum()
        approximate = np.empty(stops[-1], dtype=self.features.dtype)
        start = 0
        for begin, end, stop in zip(begins.tolist(), ends.tolist(), stops.tolist(), strict=True):
            np.dot(self.features[begin:end], scaled, out=approximate[start:stop])
            start = stop
        if state.dead:
            gone = [state.gone[begin:end] for begin, end in zip(begins, ends, strict=True)]
            approximate[np.concatenate(gone)] = -np.inf
        return approximate, ends, stops

    def tombstone(self, rows: Rows) -> None:
        """Strike rows out; those that it does not have are ignored. Searches in other threads may go on."""
        positions = self._positions[rows[rows < self.covered]].astype(np.int64)
        positions = positions[positions >= 0]
        self.degradation.tombstone(positions[~self.degradation.gone[positions]])

    def answered(self, quality: Quality, probes: Probes, lists: ExactLists) -> None:
        """Take note of how good the answers to ``probes`` are, and to those of ``lists``."""
        members = [lists.members(k) for k in (LIST, LONGEST_LIST)]
        listed = [(self._positions[rows].astype(np.int64), groups) for rows, groups in members]
        winners = self._positions[probes.winners].astype(np.int64)
        self.degradation.answered(quality, winners, probes.groups, listed)

    def moved(self, position: Rows, covered: int) -> InvertedFile:
        """The same file after a compaction: row r is now ``position[r]``, -1 if it is gone."""
        other = copy.copy(self)
        other._rows, other.covered = np.append(position, -1)[self.rows], covered
        other.degradation = self.degradation.copied()
        other.degradation.tombstone(np.flatnonzero((other.rows < 0) & ~self.degradation.gone))
        other._positions = positions_of(other.rows, covered)
        return other


def batched(numbers: Rows) -> Iterator[Rows]:
    """Parts of an array that keep other threads waiting for a moment only."""
    return (numbers[start : start + _CHUNK] for start in range(0, len(numbers), _CHUNK))


SAVING = Saving(InvertedFile.save, InvertedFile.load)
