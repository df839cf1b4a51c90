"""Making and adopting publications: an index in files for all processes of one service.

A publication has the arms of its maker and their attributes (``shared_files``), and how they are searched:
the plan and its structure (``SavedSearch``). One process makes it, the others adopt
it. Both kinds of work end with a table whose first rows are mapped from the files, and with the positions of
the process's own arms there. So a process serves all of its arms before and after, and has only arms of its
own in memory of its own.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from app.filters.attribute_snapshot import AttributeSnapshot
from app.filters.attributes import AttributeTable
from app.indexes import shared_files
from app.indexes.described_rows import DescribedUntil
from app.indexes.index_kinds import saving_of
from app.indexes.shared_arms import SharedArms
from shortlist.index.cancellation import Cancellation, Cancelled
from shortlist.index.index import Index, PublicationReader, PublicationWriter, file_of
from shortlist.index.planner import Plan
from shortlist.index.shared_format import Array, linked, read_packed, write_packed
from shortlist.index.table import ArmTable, TableSnapshot, end_of
from shortlist.types import NO_ROWS, Rows

log = logging.getLogger("shortlist.indexes")

_SEARCH, _FORMAT = "search", 3
_LEAST_SHARE = 0.5  # of the arms of a process, for a publication to be worth its while


class SavedSearch(msgspec.Struct, frozen=True):
    """The saved plan and structure of a search. ``version``: of the catalogue, all of whose changes are in
    the arms.

    ``plan`` None: without a plan yet, or where others scan these arms. Its kind says how the structure is
    read. ``covered``: rows of the structure. ``graph``: the result of ``Saving.save``, of any structure.
    ``has_attributes``: whether there is a column file.
    """

    version: int
    has_attributes: bool
    plan: Plan | None
    covered: int
    graph: Any


@dataclass(kw_only=True, slots=True, eq=False)
class Adoption(Cancellation):
    """Serve a publication, with the changes of this process. ``run`` in any thread.

    ``table``, ``attributes_here``: the arms and attributes of this process; ``described``: rows with new
    attributes. ``from_start``: the process has no arms, and takes the publication's. After ``run``:
    ``number`` of the publication, None for an unreadable one; ``compacted``, the table, None if its maker is
    far behind, with few of the arms; ``positions``, see ``ArmTable.matched``; ``attributes`` of the table,
    None where no arm has any; ``version``, ``plan``, see ``SavedSearch``; ``structure`` over the table.
    """

    shared: SharedArms
    table: TableSnapshot
    attributes_here: AttributeSnapshot
    described: DescribedUntil
    from_start: bool = False
    number: int | None = None
    compacted: ArmTable | None = None
    positions: Rows = field(default_factory=lambda: NO_ROWS)
    attributes: AttributeTable | None = None
    plan: Plan | None = None
    structure: Index | None = None
    version: int = 0
    seconds: float = 0.0

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
        except (FileNotFoundError, ValueError, TypeError, msgspec.ValidationError) as error:
            if self.shared.current == number:  # else another took its place
                log.warning("a publication of shared arms is damaged and is made again: %s", error)
                self.shared.discard(number)
            return
        self.number, self.seconds = number, time.monotonic() - started

    def _read(self, folder: Path) -> None:
        table = shared_files.read_arms(folder)
        # its maker is far behind: this process goes on with its own arms
        if len(table) < _LEAST_SHARE * self.table.live:
            return
        search, data = read_packed(folder, _SEARCH, SavedSearch, number=_FORMAT)
        base = table.snapshot()
        self.structure = self._structure(folder, search, data, base)
        self.plan, self.version = search.plan, search.version
        self.check()
        attributes = shared_files.read_columns(folder) if search.has_attributes else None
        if not self.from_start:
            self.positions = table.matched(self.table)
        self.attributes = self._with_own(attributes, base.rows)
        self.compacted = table

    def _with_own(self, attributes: AttributeTable | None, base_rows: int) -> AttributeTable | None:
        """The attributes of the publication, and those of this process which the publication may lack."""
        if attributes is None and not self.attributes_here.entries:
            return None
        joined, described = attributes or AttributeTable(), self.described.after(self.version)
        # Arms missing in the publication have all their attributes here; others only the later ones.
        rows = np.union1d(described, np.flatnonzero(self.positions >= base_rows))
        joined.take_rows(self.attributes_here, rows[self.positions[rows] >= 0], self.positions)
        return joined

    def _structure(self, folder: Path, search: SavedSearch, data: Array, base: TableSnapshot) -> Index | None:
        saving = None if search.plan is None else saving_of(search.plan.kind)
        if saving is None or not search.covered:
            return None
        return saving.load(
            PublicationReader(
                saved=search.graph, data=data, folder=folder, table=base, covered=search.covered
            )
        )


@dataclass(kw_only=True, slots=True, eq=False)
class Publishing(Adoption):
    """Make a publication of this process's arms, and serve them from the publication. ``run`` in any thread.

    ``version``: of the catalogue, all of whose changes are in ``table``. ``plan``, ``structure``: those of
    ``table``. ``same_arms``: number of a publication with these arms. ``cache``: the file with the structure,
    unless the last publication has the structure. ``run`` raises OSError.
    """

    same_arms: int | None
    cache: Path | None

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
        if self.attributes_here.entries:
            shared_files.write_columns(folder, self.attributes_here, self.positions, check=self.check)
            self.attributes = shared_files.read_columns(folder)
        write_packed(folder, _SEARCH, self._search(folder), number=_FORMAT, check=self.check)
        self.compacted = table

    def _search(self, folder: Path) -> SavedSearch:
        structure, plan = self.structure, self.plan
        has_attributes = self.attributes is not None
        if structure is None:
            return SavedSearch(self.version, has_attributes, plan, 0, None)
        saving = saving_of(structure.kind)
        if saving is None:  # others scan these arms
            return SavedSearch(self.version, has_attributes, None, 0, None)
        last = self.shared.current
        to = PublicationWriter(
            folder=folder,
            table=self.table,
            positions=self.positions,
            last=None if last is None else self.shared.folder_of(last),
            cache=file_of(self.cache, structure.kind),
        )
        covered, saved = end_of(self.positions[: structure.covered]), saving.save(structure, to)
        return SavedSearch(self.version, has_attributes, plan, covered, saved)
