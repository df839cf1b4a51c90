"""One process's part of a catalogue: its arms, their attributes, and the structure for searches.

All parts speak of rows of one table. So a change of row numbers, or a death of rows, is applied here to all
parts at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.filters.attributes import AttributeTable, Document
from app.indexes.described_rows import DescribedRows
from app.indexes.maintenance import Maintenance
from app.indexes.publishing import Adoption, Publishing
from shortlist.index.index import Index
from shortlist.index.planner import Plan
from shortlist.index.table import ArmTable, TableSnapshot, end_of
from shortlist.types import Rows


class IndexContent:
    """See the module. For the thread of the event loop.

    ``structure`` None: all arms are scanned. ``plan`` None: nothing was measured yet.
    ``described``: rows with new attributes, for the processes which share them. ``changes``: number of arms
    written since the plan.
    """

    def __init__(self, dim: int, described: DescribedRows) -> None:
        self.table = ArmTable(dim)
        self.attributes = AttributeTable()
        self.described = described
        self.plan: Plan | None = None
        self.structure: Index | None = None
        self.changes = 0

    @property
    def memory_bytes(self) -> int:
        arms = self.table.memory_bytes + self.attributes.memory_bytes
        return arms + (self.structure.memory_bytes if self.structure is not None else 0)

    def upsert(
        self,
        ids: Sequence[str],
        features: NDArray[np.float64],
        revisions: Sequence[int],
        came: Sequence[int] | None,
    ) -> int | None:
        """Insert or replace arms; return the number of replaced ones, None without a new arm or later
        revision. See ``LiveIndex.upsert``.
        """
        rows = self.table.rows_of(ids)
        if came is not None:  # a move may have told that an arm is older
            self.table.take_times(rows, came)
        changed = self.table.changed(ids, rows, revisions)
        if not changed:
            return None
        replaced = [row for row in (rows[position] for position in changed) if row is not None]
        if replaced:
            self.tombstone(np.array(replaced, dtype=np.int64))
        self.table.append(
            [ids[position] for position in changed],
            features[changed],
            np.array(revisions)[changed],
            None if came is None else np.array(came)[changed],
        )
        self.changes += len(changed)
        return len(replaced)

    def describe(self, rows: Sequence[int | None], documents: Sequence[Document]) -> bool:
        """Give rows these attributes in place of what they had; whether one has any. None: ignored."""
        described = [
            (row, document)
            for row, document in zip(rows, documents, strict=True)
            if row is not None and (any(document) or self.attributes.has(row))
        ]
        if described:
            self.attributes.append(
                np.array([row for row, _ in described], dtype=np.int64),
                [document for _, document in described],
            )
        return bool(described)

    def tombstone(self, rows: Rows) -> None:
        """The arms of these rows died."""
        self.table.tombstone(rows)
        if self.structure is not None:
            self.structure.tombstone(rows)

    def take(self, job: Maintenance) -> None:
        """Take what work on an earlier moment has made; nothing where its rows have other numbers now."""
        if job.attributes is not None:
            self.attributes.finish_compaction(job.attributes)
        elif job.plan is not None:
            self._take_plan(job, job.plan)
        elif job.compacted is not None and job.table.number == self.table.snapshot().number:
            positions, _ = self._take_table(job.compacted, job.table, job.positions)
            self.attributes.moved(positions)
            self.described = self.described.after(-1, positions)

    def _take_plan(self, job: Maintenance, plan: Plan) -> None:
        """Serve as work on an earlier moment found to be the best."""
        self.plan, self.changes = plan, 0
        structure, since, positions = job.structure, job.table, job.positions_now
        if structure is not None and positions is not None:
            # Arms dead before a compaction have no row after it: the structure knows their old rows.
            structure.tombstone(np.flatnonzero(since.is_alive(np.arange(since.rows)) & (positions < 0)))
            structure = structure.moved(positions, end_of(positions[: structure.covered]))
        if structure is not None:
            # after a compaction the list of dead rows starts again
            structure.tombstone(self.table.snapshot().dead[len(since.dead) if positions is None else 0 :])
        self.structure = structure

    def take_publication(self, job: Adoption, compacted: ArmTable) -> tuple[Rows, bool]:
        """Take the arms and attributes of a publication, and all changes since the work began.

        A publication of another process also brings its structure, in place of the one here. Returns the new
        positions of all rows, and whether the remaining rows keep their order.
        """
        is_adopted = not isinstance(job, Publishing)
        if is_adopted:
            self.structure = None
        described, since = self.described, self.described.since(job.described)
        positions, is_in_order = self._take_table(compacted, job.table, job.positions)
        attributes = job.attributes or AttributeTable()
        attributes.take_rows(self.attributes.snapshot(), since[positions[since] >= 0], positions)
        attributes.follow(self.attributes)
        self.attributes = attributes
        self.described = described.after(job.version, positions)
        if is_adopted:
            self.plan, self.structure, self.changes = job.plan, job.structure, 0
            if self.structure is not None:
                self.structure.tombstone(self.table.snapshot().dead)
        return positions, is_in_order

    def _take_table(self, table: ArmTable, since: TableSnapshot, positions: Rows) -> tuple[Rows, bool]:
        """The attributes are for the caller. Returns as ``take_publication``."""
        until = self.table.snapshot()
        positions = table.catch_up(since, until, positions)
        table.replaces(until, positions)
        remaining = positions[positions >= 0]
        is_in_order = bool((remaining[1:] > remaining[:-1]).all())
        if not is_in_order:  # rows that a structure has are between others now
            self.structure = None
        if self.structure is not None:
            self.structure = self.structure.moved(positions, end_of(positions[: self.structure.covered]))
        self.table = table
        return positions, is_in_order
