"""Making and adopting publications: an index in files that the processes of one service share.

A publication has the arms of its maker and their attributes (``shared_files``), and how they are searched:
the plan, the graph, and the segments beside it (``SearchPlaces``). One process makes it, the others adopt it.
Both kinds of work end with a table whose first rows are mapped from the files, and with the positions of the
process's own arms in it. So a process serves all of its arms before and after, and the arms that it alone has
are in its own memory.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from app.filters.attribute_snapshot import AttributeSnapshot
from app.filters.attributes import AttributeTable
from app.indexes import graph_file, shared_files
from app.indexes.arm_rows import DescribedUntil
from app.indexes.hnsw import GraphTuning, HnswGraph
from app.indexes.index import Index, SegmentIndex
from app.indexes.inverted_file import InvertedFile, ListPlaces
from app.indexes.maintenance import Cancellation, Cancelled
from app.indexes.mapped_file import Array, ArrayPlace, ArrayWriter, linked, read_packed, write_packed
from app.indexes.norm_pruned import NormBlocks
from app.indexes.planner import IndexOptions, Plan
from app.indexes.probes import Quality
from app.indexes.segments import Segment, end_of
from app.indexes.shared_arms import SharedArms
from app.indexes.table import ArmTable, TableSnapshot
from shortlist.types import NO_ROWS, Rows

log = logging.getLogger("shortlist.indexes")

_SEARCH, _FORMAT, _GRAPH = "search", 2, "graph"
_LEAST_SHARE = 0.5  # of the arms of a process, for a publication to be worth its while


class GraphPlaces(msgspec.Struct, frozen=True):
    """A graph: see ``GraphTuning``, and which file it is in. ``rows``: of its labels, -1 for the dead."""

    tuning: GraphTuning
    checksum: str
    rows: ArrayPlace
    substitutes: ArrayPlace
    appearances: ArrayPlace
    winners: ArrayPlace
    groups: ArrayPlace


class SegmentPlaces(msgspec.Struct, frozen=True):
    """A ``Segment``. ``lists``: its inverted file; ``rows``: of its norm blocks, where it has these."""

    first: int
    covered: int
    cut: float
    cost: float
    quality: Quality
    lists: ListPlaces | None
    rows: ArrayPlace | None


class SearchPlaces(msgspec.Struct, frozen=True):
    """How the arms are searched. ``version``: of the catalogue, all of whose changes are in the arms.

    ``plan`` None: nothing was planned yet. ``covered``: rows of the structure. ``has_attributes``: whether
    there is a column file.
    """

    version: int
    has_attributes: bool
    plan: Plan | None
    covered: int
    graph: GraphPlaces | None
    segments: list[SegmentPlaces]


@dataclass(kw_only=True, slots=True, eq=False)
class Adoption(Cancellation):
    """Serve a publication, with the changes of this process. ``run`` in any thread.

    ``table``, ``own``: the arms and attributes of this process; ``described``: which of them it was told of.
    ``from_start``: it has none, and takes those of the publication.
    After ``run``: ``number`` of the publication, None if it could not be read; ``compacted``, the table, None
    if its maker is so far behind that it has few of the arms;
    ``positions``, see ``ArmTable.matched``; ``attributes`` of the table, None where no arm has any;
    ``version``, ``plan``, see ``SearchPlaces``; ``structure`` and ``segments`` that search the table.
    """

    shared: SharedArms
    table: TableSnapshot
    own: AttributeSnapshot
    described: DescribedUntil
    options: IndexOptions
    from_start: bool = False
    number: int | None = None
    compacted: ArmTable | None = None
    positions: Rows = field(default_factory=lambda: NO_ROWS)
    attributes: AttributeTable | None = None
    plan: Plan | None = None
    structure: Index | None = None
    segments: tuple[Segment, ...] = ()
    version: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        Cancellation.__init__(self)

    def run(self) -> None:
        """Raises OSError, RuntimeError: there is no room for a graph, on disk or in memory."""
        number = self.shared.current
        if number is None:
            return
        started = time.monotonic()
        try:
            self._read(self.shared.folder_of(number))
        except Cancelled:
            return
        except (FileNotFoundError, ValueError, TypeError) as error:
            if self.shared.current == number:  # else another took its place
                log.warning("a publication of shared arms is damaged and is made again: %s", error)
                self.shared.discard(number)
            return
        self.number, self.seconds = number, time.monotonic() - started

    def _read(self, folder: Path) -> None:
        table = shared_files.read_arms(folder)
        # its maker is far behind: this process goes on with what it has
        if len(table) < _LEAST_SHARE * self.table.live:
            return
        search, data = read_packed(folder, _SEARCH, SearchPlaces, number=_FORMAT)
        base = table.snapshot()
        self.structure = self._structure(folder, search, data, base)
        self.segments = tuple(_segment(each, data, base) for each in search.segments)
        self.plan, self.version = search.plan, search.version
        self.check()
        attributes = shared_files.read_columns(folder) if search.has_attributes else None
        if not self.from_start:
            self.positions = table.matched(self.table)
        self.attributes = self._with_own(attributes, base.rows)
        self.compacted = table

    def _with_own(self, attributes: AttributeTable | None, base_rows: int) -> AttributeTable | None:
        """The attributes of the publication, and those of this process that it may not have."""
        if attributes is None and not self.own.entries:
            return None
        made, described = attributes or AttributeTable(), self.described.after(self.version)
        # Arms that the publication lacks have all their attributes here; of the others only what came after
        # it.
        rows = np.union1d(described, np.flatnonzero(self.positions >= base_rows))
        made.take_rows(self.own, rows[self.positions[rows] >= 0], self.positions)
        return made

    def _structure(
        self, folder: Path, search: SearchPlaces, data: Array, base: TableSnapshot
    ) -> Index | None:
        at = search.graph
        if at is None:
            rows = np.arange(search.covered)
            return NormBlocks(base, rows, covered=search.covered) if len(rows) else None
        graph = graph_file.load(
            folder / _GRAPH,
            at.checksum,
            at.rows.of(data),
            dim=base.dim,
            covered=search.covered,
            m=self.options.m,
        )
        graph.with_tuning(
            base,
            at.tuning,
            substitutes=at.substitutes.of(data),
            appearances=at.appearances.of(data),
            winners=at.winners.of(data),
            groups=at.groups.of(data),
        )
        return graph


@dataclass(kw_only=True, slots=True, eq=False)
class Publishing(Adoption):
    """Make a publication of what this process has, and serve the arms of it. ``run`` in any thread.

    ``version``: of the catalogue, all of whose changes are in ``table``. ``plan``, ``structure`` and
    ``segments``: those of ``table``. ``same_arms``: number of a publication that has these arms. ``cache``:
    the file that has the graph, unless the last publication has it. ``run`` raises OSError.
    """

    same_arms: int | None
    cache: Path | None
    graph: HnswGraph | None = None

    def with_graph(self, graph: HnswGraph) -> None:
        self.graph = graph

    def run(self) -> None:
        started = time.monotonic()
        with suppress(Cancelled):
            with self.shared.publication() as folder:
                self._make(folder)
            self.number = int(folder.name)  # now it is the current one
        self.seconds = time.monotonic() - started

    def _make(self, folder: Path) -> None:
        if self.same_arms is not None:
            for name in shared_files.ARM_FILES:
                linked(self.shared.folder_of(self.same_arms) / name, folder / name)
        else:
            shared_files.write_arms(folder, self.table, check=self.check)
        table = shared_files.read_arms(folder)
        self.positions = table.matched(self.table)
        if self.own.entries:
            shared_files.write_columns(folder, self.own, self.positions, check=self.check)
            self.attributes = shared_files.read_columns(folder)
        if self.structure is not None and self.structure.is_published:
            self.structure.publish(self)
        if self.graph is not None:
            self._write_graph(folder / _GRAPH, self.graph)
        write_packed(folder, _SEARCH, self._pack, number=_FORMAT, check=self.check)
        self.compacted = table

    def _write_graph(self, path: Path, graph: HnswGraph) -> None:
        """Mostly its file was written when it was made, or is in the last publication."""
        last = self.shared.current
        known = [self.shared.folder_of(last) / _GRAPH] if last is not None else []
        for source in (*known, *([self.cache] if self.cache is not None else [])):
            with suppress(FileNotFoundError):
                # A second name of the same bytes: a graph of hundreds of megabytes is not written again.
                linked(source, path)
                # The cache may have been replaced by a newer graph since this one was read from it.
                if graph_file.checksum_of(path) == graph.checksum:
                    return
                path.unlink()
        graph_file.write(
            path, graph, self.table, m=self.options.m, ef_construction=self.options.ef_construction
        )

    def _pack(self, writer: ArrayWriter) -> SearchPlaces:
        structure, covered, plan, parts = self.structure, 0, self.plan, self.segments
        if structure is not None and not structure.is_published:
            structure, plan, parts = None, None, ()  # others scan these arms
        if structure is not None:
            covered = end_of(self.positions[: structure.covered])
        graph = None if self.graph is None else self._pack_graph(writer, self.graph)
        segments = [_pack_segment(writer, each.moved(self.positions)) for each in parts]
        return SearchPlaces(self.version, self.attributes is not None, plan, covered, graph, segments)

    def _pack_graph(self, writer: ArrayWriter, graph: HnswGraph) -> GraphPlaces:
        position = np.append(self.positions, -1)
        substitutes = position[graph.substitutes]
        return GraphPlaces(
            tuning=graph.tuning,
            checksum=graph.checksum,
            rows=writer.place(position[graph.rows]),
            substitutes=writer.place(substitutes[substitutes >= 0]),
            appearances=writer.place(graph.degradation.appearances),
            winners=writer.place(graph.degradation.winners),
            groups=writer.place(graph.degradation.groups),
        )


def _pack_segment(writer: ArrayWriter, segment: Segment) -> SegmentPlaces:
    structure = segment.structure
    lists: ListPlaces | None = structure.packed(writer)
    return SegmentPlaces(
        first=segment.first,
        covered=segment.covered,
        cut=segment.cut,
        cost=segment.cost,
        quality=structure.degradation.measured,
        lists=lists,
        rows=writer.place(structure.rows) if lists is None else None,
    )


def _segment(at: SegmentPlaces, data: Array, base: TableSnapshot) -> Segment:
    made: SegmentIndex
    if at.lists is not None:
        made = InvertedFile.of(at.lists, data, covered=at.covered)
    elif at.rows is not None:
        rows = at.rows.of(data)
        made = NormBlocks(base, np.sort(rows[rows >= 0]), covered=at.covered)
    else:
        raise ValueError("a segment has no rows")
    made.degradation.measured = at.quality
    return Segment(made, at.first, at.cut, at.cost)
