"""Approximate search: an HNSW graph on raw inner product over the arms with a chance to win, exactly
re-ranked.

Notation
    core        the arms in the graph: those whose norm is at least a measured cut
    label       position in the order of insertion, norms descending; never reused within a graph
    ef          length of the candidate list of a search: quality against time
    reserve     number of longest arms that can die before arms outside of the core begin to win
    missing     how many more have died: as many substitutes are scanned
    head        the longest living arms of the core, scanned by every search
    overlay     arms scanned exactly in addition to the graph: the head, substitutes

The hubs of an inner product graph are its longest arms. Inserting by descending norm puts them first, and
side by side in memory: at K = 10^6, d = 32 this order finds as much at ef 64 as random order at ef 128.

Short arms never win, so they are left out. Which arms are short is measured on probes, and the reported
recall counts every arm. If the longest arms died, shorter ones would win. So the core is chosen as if the
reserve were dead already, and the longest of the arms left out stand by as substitutes.

No arm is added to a searched graph (hnswlib #562, #590). Later arms are scanned beside the graph until it is
built again, or until they are added to a copy. A deletion sets a flag in the graph, which searches read
without a lock. This is safe: the flag is a byte of its own, and every result is checked against the snapshot
of the caller.

The head is scanned because a graph can miss a long arm for one narrow range of queries, again and again
(``exact``).
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import hnswlib
import numpy as np
from numpy.typing import NDArray

from shortlist.index.exact import ExactOverlay
from shortlist.index.hnsw_build import copied, huge_pages, insert, padded
from shortlist.index.index import (
    Build,
    GrowingIndex,
    Index,
    IndexKind,
    ProposingIndex,
    RemeasuredIndex,
    tell_nobody,
)
from shortlist.index.probes import LIST, LONGEST_LIST, ExactLists, Groups, Probes, Quality
from shortlist.index.quality import Degradation
from shortlist.index.table import TableSnapshot, longest_first, not_in, positions_of
from shortlist.mips.exact import error_line, ranked, unit_scale
from shortlist.types import NO_ROWS, Rows, TopK, Vector

_SERIAL_ARMS = 4_000
HEAD_NUMBERS = 32_768
FEW_DEAD = 0.0005  # of the arms, all long ones: until more have died, the winners are those of the probes
# hnswlib computes the distance 1 - x.q in float32. Features are scaled up, so that the 1 costs no digits.
_LARGEST_NORM_EXPONENT = 30
_HEAD_DEAD = 16  # one of so many of the head may be dead; then the next longest take their places
_MAX_WASTED_SHARE = 0.5  # of the arms of a graph: so many may be dead or too short, and it is added to


@dataclass(frozen=True, slots=True)
class GraphTuning:
    """The tuning of a graph's search, see ``tuned``, ``tuned_for_lists`` and ``with_reserve`` of
    ``HnswGraph``; and its measured quality.
    """

    ef: int
    shortlist: int
    most: int
    reserve: int
    is_interim: bool
    quality: Quality
    list: int


class HnswGraph(ProposingIndex, RemeasuredIndex, GrowingIndex):
    """A graph over some rows of a table. Call ``tuned`` before searching it.

    ``rows`` (n,): the row of every label. ``covered``: rows of the snapshot of the build; later rows are
    fresh. ``m``: links of an arm in the upper layers, twice as many in the lowest. ``ef_construction``: see
    ``build``. ``number``: every built or loaded graph has its own. ``is_interim``: made for a growing
    catalogue.
    """

    kind: ClassVar[IndexKind] = "hnsw"

    def __init__(self, index: Any, rows: Rows, *, covered: int, m: int, ef_construction: int) -> None:
        super().__init__(covered, Degradation(len(rows)))
        self.checksum = ""  # of its file
        self.native, self._dim = index, index.dim
        self._rows = rows
        self._labels = positions_of(rows, covered)
        self.m, self.ef_construction = m, ef_construction
        self._shortlist = self._most = 1
        self._list = 0
        self._substitutes = self._head = ExactOverlay.empty()
        self._few = 0.0
        self._unscaled = 0.0  # times a product in the graph: one in the table
        # A distance 1 - x.q takes one operation more than x.q.
        self._error_line = error_line(index.dim + 1, 2.0**_LARGEST_NORM_EXPONENT, np.dtype(np.float32))

    @classmethod
    def build(
        cls,
        table: TableSnapshot,
        rows: Rows,
        *,
        m: int,
        ef_construction: int,
        seed: int,
        threads: int,
        check: Callable[[], None],
        advance: Callable[[float], None] = tell_nobody,
    ) -> HnswGraph:
        """Build a graph over live ``rows`` (n,), n >= 1, inserted in this order.

        ``ef_construction``: length of the candidate list of an insertion. ``seed`` fixes the random layers.
        ``check`` is called between chunks, and may raise to stop.
        ``advance`` is told between chunks which share of the rows is inserted. The GIL
        is released during insertion. With one thread the graph is a function of the arguments; with several,
        the order in which they insert is not fixed.
        """
        index = hnswlib.Index(space="ip", dim=padded(table.dim))
        with huge_pages(len(rows) * lowest_layer_bytes(table.dim, m)):
            index.init_index(len(rows), M=m, ef_construction=ef_construction, random_seed=seed)
        # scaling by a power of two is exact, and keeps all products within the range of float32
        exponent = _LARGEST_NORM_EXPONENT - int(np.frexp(table.norms[rows].max())[1])
        # Parallel insertion into a small graph can strand points (hnswlib #579).
        insert(
            index, table, rows, np.arange(len(rows)), exponent,
            threads=threads, serial=_SERIAL_ARMS, check=check, advance=advance,
        )  # fmt: skip
        return cls(index, rows, covered=table.rows, m=m, ef_construction=ef_construction)

    def grown(self, table: TableSnapshot, rows: Rows, build: Build) -> HnswGraph | None:
        """A copy of this graph, with the missing ones of live ``rows`` (n,) inserted in this order.

        The copy finds a little less at the same ef than a new graph, since its longest arms do not come
        first. Arms of this graph outside of ``rows`` stay. None: too many would stay, or some arm is much
        longer than all in the graph, or these have no length. To copy holds the GIL, .4 s for 1,000,000 arms.
        """
        is_alive = self._rows >= 0
        # Labels of the dead stay in the copy as flagged ones: hnswlib cannot take a node out.
        is_alive[is_alive] = table.is_alive(self._rows[is_alive])
        old, new = self._rows[is_alive], rows[not_in(rows, self._rows[is_alive])]
        wasted_slots = len(self._rows) + len(new) - len(rows)
        if not table.norms[old].any() or wasted_slots > _MAX_WASTED_SHARE * (len(rows) + wasted_slots):
            return None
        # The copy keeps the features as they were scaled: what is added must be scaled alike.
        exponent = self._exponent(table, int(is_alive.argmax()))
        if np.ldexp(table.norms[new].max(initial=0.0), exponent) > 2.0**_LARGEST_NORM_EXPONENT:
            return None
        in_order = longest_first(table, np.append(old, new))
        position = positions_of(in_order, table.rows).astype(np.int64)
        labels = len(in_order) + np.cumsum(~is_alive) - 1  # those of the dead follow
        labels[is_alive] = position[old]
        total = len(in_order) + int(np.count_nonzero(~is_alive))
        with huge_pages(total * lowest_layer_bytes(table.dim, self.m)):
            index = hnswlib.Index(params=copied(self.native, labels, total))
        insert(
            index, table, new, position[new], exponent,
            threads=build.threads, check=build.check, advance=build.advance,
        )  # fmt: skip
        rows = np.append(in_order, self._rows[~is_alive])
        graph = HnswGraph(index, rows, covered=table.rows, m=self.m, ef_construction=self.ef_construction)
        graph._tombstone_labels(np.arange(len(in_order), total))
        return graph

    def _exponent(self, table: TableSnapshot, label: int) -> int:
        """Features in the graph are those of the table times 2 to this power, told from one live arm."""
        row = table.features[self._rows[label]]
        coordinate = int(np.abs(row).argmax())
        scaled: float = self.native.get_items([label])[0][coordinate]
        return round(math.log2(abs(scaled)) - math.log2(abs(row[coordinate])))

    @staticmethod
    def grown_from(index: Index | None, table: TableSnapshot, rows: Rows, build: Build) -> HnswGraph | None:
        """``grown`` of what serves; None also if that is no graph."""
        return index.grown(table, rows, build) if isinstance(index, HnswGraph) else None

    @classmethod
    def load_verified(
        cls, path: Path, rows: Rows, *, dim: int, covered: int, m: int, ef_construction: int
    ) -> HnswGraph:
        """Read what ``save`` wrote. The caller vouches for every byte: hnswlib checks nothing (#673)."""
        index = hnswlib.Index(space="ip", dim=padded(dim))
        with huge_pages(len(rows) * lowest_layer_bytes(dim, m)):
            index.load_index(os.fspath(path), max_elements=len(rows))
        graph = cls(index, rows, covered=covered, m=m, ef_construction=ef_construction)
        graph._tombstone_labels(np.flatnonzero(rows < 0))
        return graph

    def save(self, path: Path) -> None:
        """Write the graph in hnswlib's format, holding the GIL (0.5 ms per MB). Raises OSError."""
        self.native.save_index(os.fspath(path))
        if path.stat().st_size != self.native.index_file_size():
            raise OSError("the graph was not written completely")

    @property
    def rows(self) -> Rows:
        """Row of every label (n,), -1 for arms that are gone."""
        return self._rows

    @property
    def can_grow(self) -> bool:
        """True if so few of the longest arms died that the probes' best arms still win."""
        return self.degradation.longest_dead <= self._few

    @property
    def memory_bytes(self) -> int:
        overlays = self._substitutes.memory_bytes + self._head.memory_bytes
        return len(self._rows) * arm_bytes(self.native.dim, self.m) + self._labels.nbytes + overlays

    def with_head(self, table: TableSnapshot, numbers: int = HEAD_NUMBERS) -> None:
        """Scan the longest living arms, of so many ``numbers``, in every search.

        For a graph whose first arms are the longest.
        """
        labels = np.flatnonzero(~self.degradation.gone[: len(self._rows)])[: numbers // table.dim]
        if len(labels) and table.norms[self._rows[labels[0]]] > 0.0:
            self._unscaled = 2.0 ** -self._exponent(table, int(labels[0]))
        self._head = ExactOverlay.labelled(table, self._rows[labels], labels)

    def refresh(self, table: TableSnapshot) -> None:
        """Give the places of the dead in the head to the next longest arms. Cost: O(head) for each dead 16th
        of the head, and for deaths behind it.
        """
        gone, labels = self.degradation.gone, self._head.labels
        alive = labels[~gone[labels]]
        wanted = len(labels) - len(alive)
        if _HEAD_DEAD * wanted <= len(labels):
            return
        after, more = int(labels[-1]) + 1, NO_ROWS
        while len(more) < wanted and after < len(self._rows):
            until = min(after + 2 * len(labels), len(self._rows))
            more = np.append(more, after + np.flatnonzero(~gone[after:until]))
            after = until
        labels = np.append(alive, more[:wanted])
        self._head = ExactOverlay.labelled(table, self._rows[labels], labels)

    def with_reserve(self, table: TableSnapshot, reserve: int, substitutes: Rows) -> None:
        """Say how many deaths the core was chosen for, and which arms stand in after more of them.

        The labels of the substitutes follow those of the core.
        """
        # A graph that was added to keeps arms that the core no longer has: with two labels a death would be
        # counted for one of them alone.
        substitutes = substitutes[not_in(substitutes, self._rows)]
        self._substitutes = ExactOverlay.copied(table, substitutes, len(self._rows))
        self._labels = positions_of(np.append(self._rows, self._substitutes.rows), self.covered)
        self.degradation.with_reserve(reserve, len(substitutes))
        self._few = FEW_DEAD * table.live

    def tuned(self, ef: int, *, shortlist: int, most: int) -> None:
        """Search with ``ef``, score ``shortlist`` arms again, and never ask for more than ``most``."""
        self.native.set_ef(ef)
        self.degradation.ef, self._shortlist, self._most = ef, shortlist, most

    def tuned_for_lists(self, count: int | None) -> None:
        """Ask for ``count`` arms where 2 to 10 are wanted: hnswlib then has a candidate list as long.

        None: the graph has too few of them, and all are scanned.
        """
        self._list = self._most + 1 if count is None else count

    def scan_lists(self) -> None:
        self.tuned_for_lists(None)

    @property
    def tuning(self) -> GraphTuning:
        state = self.degradation
        return GraphTuning(
            state.ef,
            self._shortlist,
            self._most,
            state.reserve,
            self.is_interim,
            state.measured,
            self._list,
        )

    @property
    def substitutes(self) -> Rows:
        """Rows of the arms that stand in for dead ones, the longest first."""
        return self._substitutes.rows

    def with_tuning(
        self,
        table: TableSnapshot,
        tuning: GraphTuning,
        *,
        substitutes: Rows,
        appearances: NDArray[np.float32],
        winners: NDArray[np.int64],
        groups: Groups,
    ) -> None:
        """Search as the graph did that was measured. ``appearances``, ``winners``, ``groups``: of its
        ``Degradation``.

        Raises ValueError if they are of another graph.
        """
        if appearances.shape != (self.arms,):
            raise ValueError("the appearances are of another graph")
        self.with_head(table)
        self.with_reserve(table, tuning.reserve, substitutes)
        self.is_interim = tuning.is_interim
        self.degradation.appearances = appearances
        # The maker may have had substitutes that died since.
        winners = np.where(winners < len(self.degradation.gone), winners, -1)
        self.degradation.answered(tuning.quality, winners, groups)
        self.degradation.dead = 0  # they are counted again: now it is known what each costs
        self.tuned(tuning.ef, shortlist=tuning.shortlist, most=tuning.most)
        self.tuned_for_lists(tuning.list)
        self.degradation.tombstone(np.flatnonzero(self._rows < 0))
        self.native.set_ef(self.degradation.lowered_ef)

    def search_among(self, query: Vector, count: int, let_in: NDArray[np.bool_]) -> Rows | None:
        count = min(count, self.arms - self.degradation.dead)
        labels = self.nearest(query, count) if count > 0 else None
        if labels is None:
            return None
        rows = self.rows[labels]
        rows = rows[rows >= 0]
        return rows[let_in[rows]]

    def nearest(self, query: Vector, count: int) -> NDArray[np.int64] | None:
        """Labels of about the best ``count`` arms, None if fewer were reached. For any thread."""
        near = self._near(unit_scale(query)[0], count)
        return None if near is None else near[0]

    def _near(self, scaled: Vector, count: int) -> tuple[NDArray[np.int64], NDArray[np.float32]] | None:
        """Labels, the nearest first, and their distances."""
        query32 = scaled.astype(np.float32)
        if len(query32) < self._dim:
            # hnswlib reads as many numbers as a graph was made for: the rest must be zeros.
            query32 = np.append(query32, np.zeros(self._dim - len(query32), dtype=np.float32))
        try:
            labels, distances = self.native.knn_query(query32, k=count, num_threads=1)
        except RuntimeError:
            # "Cannot return the results in a contiguous 2D array": everything reachable was seen, so a
            # larger ef would find no more (#608).
            return None
        return labels[0].view(np.int64), distances[0]

    def search(self, table: TableSnapshot, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK | None:
        """Return about the ``k`` best rows below ``covered``; None when that needs a scan.

        Every row is alive in ``table``, not in ``exclude``, and appears once; scores are exact.
        """
        # all excluded arms may be among the nearest
        count = self._count(k) + len(exclude)
        dead = self.degradation.dead
        count = min(count, len(self._rows) - dead)
        # More than ``most`` would take longer than an exact search.
        if not k <= count <= self._most:
            return None
        scaled, query_norm = unit_scale(query)
        near = self._near(scaled, count)
        if near is None:
            return None
        (labels, distances), least = near, -math.inf
        any_dead = self._any_dead(table)
        # with dead or excluded arms among them the k-th distance bounds nothing
        if not any_dead and not len(exclude):
            slope, offset = self._error_line
            error, kth = slope * query_norm + offset, distances.item(k - 1)
            labels = labels[: distances.searchsorted(kth + 2.0 * error, side="right")]
            least = (1.0 - kth - error) * self._unscaled  # what scores less cannot be the best k
        rows = self._with_overlays(
            self._rows[labels], table, scaled, query_norm, k + len(exclude), least=least
        )
        rows = self._eligible(rows, table, exclude)
        if k > 1:
            rows = _distinct(rows)  # the head is in the graph as well
        if len(rows) < k:
            return None
        return ranked(rows, k, table.features, query, exact=False)

    def leaves_to_scan(self, k: int) -> bool:
        return self._count(k) > self._most

    def _count(self, k: int) -> int:
        # Twice k: distances in float32 may order arms otherwise than the exact scores do, near the end of the
        # list.
        return max(self._list if 1 < k <= LIST else self._shortlist, 2 * k)

    def propose(self, table: TableSnapshot, query: Vector, count: int, exclude: Rows) -> Rows | None:
        asked = count + len(exclude)
        if not count <= asked <= min(self._most, len(self._rows) - self.degradation.dead):
            return None
        scaled, query_norm = unit_scale(query)
        near = self._near(scaled, asked)
        if near is None:
            return None
        (labels, distances), half, least = near, asked // 2, -math.inf
        if not self._any_dead(table) and not len(exclude):  # as in ``search``
            slope, offset = self._error_line
            least = (1.0 - distances.item(half) - slope * query_norm - offset) * self._unscaled
        rows = self._with_overlays(self._rows[labels], table, scaled, query_norm, half, least=least)
        return _distinct(self._eligible(rows, table, exclude))

    def _any_dead(self, table: TableSnapshot) -> bool:
        return self.degradation.dead > 0 or len(table.dead) > 0

    def _eligible(self, rows: Rows, table: TableSnapshot, exclude: Rows) -> Rows:
        if self._any_dead(table):
            # Again, though deletions are flagged in the graph: flags are set for all, and a snapshot may be
            # older or newer.
            rows = rows[(rows >= 0) & table.is_alive(rows)]
        return rows[not_in(rows, exclude)] if len(exclude) else rows

    def _with_overlays(
        self, rows: Rows, table: TableSnapshot, scaled: Vector, query_norm: float, k: int, *, least: float
    ) -> Rows:
        """``rows``, and those of the head and of the substitutes that could be the best ``k``.

        ``least``: no arm of the head is among these if all score less.
        """
        slope, offset = table.error_line
        error, degradation, parts = slope * query_norm + offset, self.degradation, [rows]
        head = self._head  # another may take its place meanwhile
        if len(head):
            any_gone = degradation.dead > 0
            gone = degradation.gone[head.labels] if any_gone else degradation.gone[: len(head)]
            longest = head.best(scaled, error, k, gone, any_gone=any_gone, least=least)
            # Mostly the one arm of the graph, where a single one is wanted: to rank it twice takes longer.
            is_same = len(longest) == len(rows) == 1 and longest.item() == rows.item()
            if len(longest) and not is_same:
                parts.append(longest)
        if degradation.missing:
            gone = degradation.gone[len(self._rows) :][: degradation.missing]
            parts.append(self._substitutes.best(scaled, error, k, gone, any_gone=True))
        return np.concatenate(parts) if len(parts) > 1 else rows

    def answered(self, quality: Quality, probes: Probes, lists: ExactLists) -> None:
        """Take note of how good the answers to ``probes`` are, and to those of ``lists``. Their rows are
        below ``covered``.
        """
        labels = self._labels[probes.winners].astype(np.int64)
        members = [lists.members(k) for k in (LIST, LONGEST_LIST)]
        listed = [(self._labels[rows].astype(np.int64), groups) for rows, groups in members]
        self.degradation.answered(quality, labels, probes.groups, listed)

    def is_gone(self, rows: Rows) -> NDArray[np.bool_]:
        """A mask of the rows below ``covered`` (n,) which are dead arms of the graph."""
        labels = self._labels[rows]
        gone: NDArray[np.bool_] = (labels >= 0) & self.degradation.gone[labels]
        return gone

    def weigh(self, probes: NDArray[np.float64]) -> None:
        """Count on ``probes`` (P, d) how often each arm is among the ef nearest: its part in the load."""
        count = min(self.degradation.ef, len(self._rows) - self.degradation.dead)
        near = (self.nearest(probe, count) for probe in probes)
        self.degradation.weigh([labels for labels in near if labels is not None])

    def tombstone(self, rows: Rows) -> None:
        """Mark rows as deleted, unless they are already. Searches in other threads may go on."""
        labels = self._labels[rows[rows < self.covered]].astype(np.int64)
        labels = labels[labels >= 0]
        self._tombstone_labels(labels[~self.degradation.gone[labels]])

    def moved(self, position: Rows, covered: int) -> HnswGraph:
        """The same graph after a compaction: row r is now ``position[r]``, -1 if it is gone."""
        # Both share hnswlib's graph: labels stay as they are, only their rows are renumbered.
        other = copy.copy(self)
        other.covered = covered
        other._rows = np.append(position, -1)[self._rows]
        other._substitutes, other._head = self._substitutes.moved(position), self._head.moved(position)
        other._labels = positions_of(np.append(other._rows, other._substitutes.rows), covered)
        return other

    def _tombstone_labels(self, labels: NDArray[np.int64]) -> None:
        for label in self.degradation.tombstone(labels).tolist():
            with suppress(RuntimeError):  # it was marked before the graph was copied, or saved
                self.native.mark_deleted(label)
        self.native.set_ef(self.degradation.lowered_ef)


def arm_bytes(dim: int, m: int) -> int:
    """Memory that a graph takes for each arm, besides its label: its part of all layers, and its numbers."""
    return lowest_layer_bytes(dim, m) + 96 + 12


def lowest_layer_bytes(dim: int, m: int) -> int:
    """Memory of an arm in the lowest layer, which is one block: links, features, label."""
    return 4 * (2 * m + 1) + 4 * padded(dim) + 8


def _distinct(rows: Rows) -> Rows:
    """Each row once, ascending. Of a hundred rows a tenth of the time of ``np.unique``."""
    ascending = np.sort(rows)
    is_first = np.ones(len(ascending), dtype=np.bool_)
    is_first[1:] = ascending[1:] != ascending[:-1]
    return ascending[is_first]
