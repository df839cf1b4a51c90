"""Segments: the arms that came since the structure of a catalogue was built, in ranges of growing size.

Notation
    K           rows of the table
    segment     a range of rows with a structure of its own, which is made quickly
    fresh       rows that came after the last segment, and are scanned

To build a graph of millions of arms takes minutes, and meanwhile others come. When scanning them takes half
as long as a search, they become a segment, together with the segments before it that are not much larger. So
there are few: each is more than four times as large as the next. The structure takes over what they have
when it is built again.

A segment leaves out the arms that are too short to win (``cut``). As long as hardly any of the longest have
died, it leaves out more than the graph, which is built so that it serves when its reserve is dead. When so
many long arms have died that shorter ones can win, the segment is made again with these. It is also made
again when the best arms of its probes died: then its recall is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import msgspec
import numpy as np

from shortlist.index.cancellation import Cancellation, Cancelled
from shortlist.index.exact import scan
from shortlist.index.index import Index, SegmentIndex
from shortlist.index.inverted_file import (
    Centroids,
    InvertedFile,
    SavedLists,
    batched,
    centroids_of,
    known_labels,
)
from shortlist.index.norm_pruned import NormBlocks
from shortlist.index.probes import ExactLists, Quality, compare, make_queries, solve
from shortlist.index.table import TableSnapshot
from shortlist.types import Rows, Vector

_RATIO = 4
_LOST = 0.05  # of the probes of a segment: it is made again
_SEGMENT_PROBES, _SEGMENT_LISTS = 256, 40


class SavedSegment(msgspec.Struct, frozen=True):
    """A ``Segment``. ``lists``: its inverted file; ``rows``: of its norm blocks, where it has these."""

    first: int
    covered: int
    cut: float
    cost: float
    quality: Quality
    lists: SavedLists | None
    rows: Rows | None


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """The rows from ``first`` to below ``covered``, of norm ``cut`` and more, as far as they were alive.

    ``cost``: measured time of a search / time of a scan of these rows.
    """

    structure: SegmentIndex
    first: int
    cut: float
    cost: float

    @property
    def covered(self) -> int:
        return self.structure.covered

    @property
    def scan_rows(self) -> float:
        """A scan of so many rows takes as long as a search."""
        return self.cost * (self.covered - self.first)

    @property
    def quality(self) -> Quality:
        """How good its answers are at the least."""
        return self.structure.quality

    @property
    def is_spoilt(self) -> bool:
        """Whether it must be made again, since the best arms of many of its probes died."""
        return self.structure.degradation.lost > _LOST

    def moved(self, position: Rows) -> Segment:
        """The same segment after a compaction: row r is now ``position[r]``, -1 if it is gone."""
        covered = end_of(position[: self.covered])
        return replace(
            self, structure=self.structure.moved(position, covered), first=end_of(position[: self.first])
        )

    def saved(self) -> SavedSegment:
        """What other processes need of it, once it was ``moved`` to their rows."""
        lists, quality = self.structure.saved(), self.structure.degradation.measured
        rows = self.structure.rows if lists is None else None
        return SavedSegment(self.first, self.covered, self.cut, self.cost, quality, lists, rows)

    @classmethod
    def of(cls, saved: SavedSegment, base: TableSnapshot) -> Segment:
        """The one of which ``saved`` was this. Raises ValueError: it has no rows."""
        structure: SegmentIndex
        if saved.lists is not None:
            structure = InvertedFile.of(saved.lists, covered=saved.covered)
        elif saved.rows is not None:
            structure = NormBlocks(base, np.sort(saved.rows[saved.rows >= 0]), covered=saved.covered)
        else:
            raise ValueError("a segment has no rows")
        structure.degradation.measured = saved.quality
        return cls(structure, saved.first, saved.cut, saved.cost)


def joined(segments: Sequence[Segment], fresh: int) -> Sequence[Segment]:
    """The last segments that are joined with so many fresh rows: those not much larger than what follows."""
    count, rows = len(segments), fresh
    # As a log-structured merge does: each arm is copied O(log arms) times in all.
    while count and segments[count - 1].covered - segments[count - 1].first <= _RATIO * rows:
        count -= 1
        rows += segments[count].covered - segments[count].first
    return segments[count:]


def end_of(positions: Rows) -> int:
    """The end of a range of rows after a compaction that kept their order, from where they are now."""
    return int(positions.max(initial=-1)) + 1


def fitting(segments: Sequence[Segment], structure: Index | None) -> tuple[Segment, ...]:
    """The segments that serve beside a structure: they have later rows, and are exact if it is."""
    covered, is_exact = (0, False) if structure is None else (structure.covered, structure.is_exact)
    return tuple(
        segment
        for segment in segments
        # An exact structure beside an approximate segment would be told as exact.
        if segment.covered > covered and (segment.structure.is_exact or not is_exact)
    )


@dataclass(kw_only=True, slots=True, eq=False)
class SegmentBuild(Cancellation):
    """Call ``run`` in any thread; the service then takes it over in the thread of the event loop.

    ``first``: where the segment begins. ``cut``: shorter arms are left out. ``joined``: segments with rows
    from there on, which it replaces. ``last``: the structure of the last segment, whose centroids are taken
    if it has some. ``target``: share of the probes whose best arm is to be found. ``recent``: queries served
    lately, each (d,). After ``run``: ``segment``, None if it was cancelled.

    Cost: m n d multiply-adds for m new rows and n centroids, and m' d reads and writes for m' rows in all.
    """

    table: TableSnapshot
    structure: Index | None
    joined: Sequence[Segment]
    last: SegmentIndex | None
    first: int
    cut: float
    target: float
    seed: int
    recent: Sequence[Vector]
    segment: Segment | None = None

    def run(self) -> None:
        with suppress(Cancelled), self.turn():
            self.segment = self._built()

    def _built(self) -> Segment:
        table, cut = self.table, self.cut
        rows = np.arange(self.first, table.rows)
        rows = rows[table.is_alive(rows) & (table.norms[rows] >= cut)]
        rng = np.random.default_rng((self.seed, table.rows))
        if not len(rows):
            return Segment(NormBlocks(table, rows), self.first, cut, 0.0)
        queries, groups = make_queries(table.dim, _SEGMENT_PROBES, self.recent, rng)
        is_long = table.norms >= cut  # what is left out cannot win, so it is not missed
        probes = solve(table, queries, among=is_long, first=self.first, groups=groups)
        lists = ExactLists.of(table, queries[:_SEGMENT_LISTS], groups[:_SEGMENT_LISTS], first=self.first)
        lists = replace(lists, rows=[best[is_long[best]] for best in lists.rows])
        structure: InvertedFile | NormBlocks
        if self.structure is not None and self.structure.is_exact:
            structure = NormBlocks(table, rows)
        else:
            structure = self._inverted_file(rows, rng)
            structure.tune(table, probes, self.target)
            structure.tuned_for_lists(lists, self.target)
        trial = compare(
            lambda query: structure.search(table, query, 1),
            lambda query: scan(table, query, 1, first=self.first),
            probes,
        )
        structure.answered(lists.measured(trial.least, partial(structure.search, table)), probes, lists)
        return Segment(structure, self.first, cut, 1.0 / trial.speedup)

    def _inverted_file(self, rows: Rows, rng: np.random.Generator) -> InvertedFile:
        """An inverted file over ``rows`` (m,). Those of joined segments stay in their lists."""
        table, first, centroids = self.table, self.first, centroids_of(self.last)
        if centroids is None:
            trained_on = rows
            if self.structure is not None:  # whose arms are more, as a rule
                rows_of_structure = self.structure.rows[self.structure.rows >= 0]
                trained_on = max(rows, rows_of_structure, key=len)
            centroids = Centroids.trained(table, trained_on, rng)
        parts = [segment.structure for segment in self.joined]
        labels = known_labels(parts, centroids, first, table.rows)[rows - first]
        for new in batched(np.flatnonzero(labels < 0)):
            self.check()
            labels[new] = centroids.nearest(table.features[rows[new]].astype(table.working.dtype))
        return InvertedFile(table, centroids, rows, labels, first=first, check=self.check)
