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
from dataclasses import dataclass, replace

from app.indexes.index import Index, SegmentIndex
from app.indexes.probes import Quality
from app.indexes.table import TableSnapshot
from shortlist.types import Rows, Vector

_RATIO = 4
_LOST = 0.05  # of the probes of a segment: it is made again


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
        return self.structure.degradation.quality

    @property
    def is_spoilt(self) -> bool:
        """Whether it must be made again, since the best arms of many of its probes died."""
        return self.structure.degradation.lost > _LOST

    @property
    def memory_bytes(self) -> int:
        return self.structure.memory_bytes

    def contenders(self, table: TableSnapshot, query: Vector, k: int, exclude: Rows) -> Rows:
        """About the best ``k`` rows of the segment, and others, that are alive and not excluded."""
        return self.structure.contenders(table, query, k, exclude)

    def tombstone(self, rows: Rows) -> None:
        """Rows have died; those that it does not have are ignored."""
        self.structure.tombstone(rows)

    def moved(self, position: Rows) -> Segment:
        """The same segment after a compaction: row r is now ``position[r]``, -1 if it is gone."""
        covered = end_of(position[: self.covered])
        return replace(
            self, structure=self.structure.moved(position, covered), first=end_of(position[: self.first])
        )


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
