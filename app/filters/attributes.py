"""The attributes of all arms of a catalogue in memory: a table that changes, and snapshots of it.

Notation
    row     an arm's number, whatever the caller numbers arms by
    entry   the fields of one row (tags and metadata) at the time they were set, numbered in that order
    path    a number for a field and a type of its values, see ``names``

Entries are only ever appended, so a snapshot is a few references: it costs nothing and stays true whatever
happens afterwards, and matches of a filter are computed for new entries alone. A row with another document
gets another entry, and the later one holds. Compactions renumber entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.filters.attribute_snapshot import AttributeSnapshot
from app.filters.columns import MAX_ENTRIES, ColumnBlock, Mask, Paths, pushed
from app.filters.field_numbers import CODED, STORINGS, Names, Numbering
from app.filters.fields import Stored, fields_of
from app.filters.replaced_entries import Earlier
from shortlist.errors import InvalidShape
from shortlist.index.arrays import grown
from shortlist.types import Rows

Document = tuple[Sequence[str], Mapping[str, Any]]
"""Tags and metadata of an arm."""

Rows32 = NDArray[np.int32]

_SMALL_TABLE = 75_000  # values: compacted in some 20 ms


class AttributeTable:
    """See the module. One thread changes it; the snapshots may be read from all.

    ``small_values``: a wasteful table of no more values is compacted at once.
    """

    def __init__(self, *, small_values: int = _SMALL_TABLE) -> None:
        self._small_values = small_values
        self._generation = self._moves = 0
        self.mapped = 0  # of the entries: they were there from the start
        self._names = Names()
        self._blocks: list[ColumnBlock] = []
        self._entries = self._straight = 0
        self._rows = np.empty(0, dtype=np.int32)
        self._clear_rows()
        self._snapshot: AttributeSnapshot | None = None

    @classmethod
    def of(cls, names: Names, blocks: Sequence[ColumnBlock], rows: Rows32) -> AttributeTable:
        """A table of these blocks, whose entries are of ``rows`` (entries,), each once."""
        table = cls()
        table._names, table._blocks, table._entries = names, list(blocks), len(rows)
        table.mapped = len(rows)
        table._rows = np.full(len(rows), -1, dtype=np.int32)
        table._set_rows(rows.astype(np.int64), np.arange(len(rows), dtype=np.int32))
        table._straight = _straight(table._rows, 0)
        return table

    @property
    def entries(self) -> int:
        """The number of entries: each time a row was given fields."""
        return self._entries

    @property
    def memory_bytes(self) -> int:
        """Memory of the arrays, and about that of everything else."""
        names = self._names.fields.memory_bytes + self._names.values.memory_bytes
        arrays = self._rows.nbytes + self._latest.nbytes + self._earlier.entries.nbytes
        return names + arrays + sum(block.memory_bytes for block in self._blocks)

    def snapshot(self) -> AttributeSnapshot:
        if self._snapshot is None:
            rows = self._rows[: self._entries]
            # Snapshots share the array: whoever wrote to it would change them all.
            rows.setflags(write=False)
            self._snapshot = AttributeSnapshot(
                generation=self._generation,
                rows=rows,
                straight=self._straight,
                names=self._names,
                blocks=tuple(self._blocks),
                firsts=tuple(accumulate((block.size for block in self._blocks[:-1]), initial=0)),
                latest=self._latest,
                earlier=self._earlier,
            )
        return self._snapshot

    def append(self, rows: Rows, documents: Sequence[Document]) -> None:
        """Set the fields of rows, one document for each; of equal rows the last holds.

        Cost: O(log entries) for each value, over many calls.
        Raises: InvalidShape for other than one document for each row.
        """
        if len(rows) != len(documents):
            raise InvalidShape("documents must have one entry for each row", argument="documents")
        for first in range(0, len(documents), MAX_ENTRIES):
            part = slice(first, first + MAX_ENTRIES)
            self._push(self._block(documents[part]), rows[part])
        self._compact_if_worth()

    def has(self, row: int) -> bool:
        """True if a row was ever given fields, be it none."""
        return row < len(self._latest) and bool(self._latest[row] >= 0)

    def moved(self, position: Rows) -> None:
        """Rows are renumbered: row r becomes ``position[r]``, or is gone for a position of -1.

        Shapes: position (r,), r larger than all rows; no row twice.
        Raises: InvalidShape when a row has no position.
        """
        rows = np.flatnonzero(self._latest >= 0)
        if len(rows) and rows[-1] >= len(position):
            raise InvalidShape("every row must have a position", argument="rows")
        entries = self._latest[rows]
        rows_now = position[rows]
        has_position = rows_now >= 0
        self._rows = np.full(len(self._rows), -1, dtype=np.int32)
        self._clear_rows()
        self._set_rows(rows_now[has_position], entries[has_position])
        self._straight = _straight(self._rows[: self._entries], 0)
        self._moves += 1
        self._snapshot = None
        self._compact_if_worth()

    def take_rows(self, other: AttributeSnapshot, rows: Rows, position: Rows) -> None:
        """Give rows their fields of another table, where row r is row ``position[r]`` here.

        A row without fields there has none here. Shapes: rows (n,), each with a position. Cost: the values in
        the blocks with an entry of these rows.
        """
        entries = other.entries_of(rows)
        is_latest = np.zeros(other.entries, dtype=np.bool_)
        is_latest[entries[entries >= 0]] = True
        rows_here = np.append(position, -1)[np.minimum(other.rows, len(position))]
        self._take(rows_here.astype(np.int32), is_latest, other.names, other.blocks)
        bare = [row for row in position[rows[entries < 0]].tolist() if self.has(row)]
        if bare:
            self.append(np.array(bare, dtype=np.int64), [((), {})] * len(bare))

    def follow(self, other: AttributeTable) -> None:
        """Take the place of another table. Snapshots of the two do not number entries alike."""
        self._generation, self._moves, self._snapshot = other._generation + 1, other._moves + 1, None

    def _block(self, documents: Sequence[Document]) -> ColumnBlock:
        names = self._names
        paths: list[int] = []
        positions: list[int] = []
        numbers: list[float] = []
        for position, (tags, metadata) in enumerate(documents):
            for name, values in fields_of(tags, metadata).items():
                path = names.fields.number(name) * STORINGS
                for value in values:
                    stored, number = names.stored_new(value)
                    paths.append(path + stored)
                    positions.append(position)
                    numbers.append(number)
                if not values:
                    paths.append(path + Stored.NOTHING)
                    positions.append(position)
                    numbers.append(0.0)
        return ColumnBlock.of(
            len(documents),
            np.array(paths, np.uint32),
            np.array(positions, np.uint16),
            np.array(numbers, np.float64),
        )

    def _push(self, block: ColumnBlock, rows: Rows) -> None:
        """One more block, of the fields of these rows."""
        first, last = self._entries, self._entries + block.size
        self._rows = grown(self._rows, last, used=first)
        self._set_rows(rows, np.arange(first, last, dtype=np.int32))
        self._blocks = pushed(self._blocks, block)
        self._entries = last
        if self._straight == first:
            self._straight += _straight(self._rows[first:last], first)
        self._snapshot = None

    def _clear_rows(self) -> None:
        """No row has an entry. Earlier snapshots keep the arrays that they have."""
        self._latest = np.full(0, -1, dtype=np.int32)
        self._earlier = Earlier()
        self._live = 0

    def _set_rows(self, rows: Rows, entries: NDArray[np.int32]) -> None:
        """These are the latest entries of these rows."""
        self._rows[entries] = rows
        self._latest = grown(self._latest, int(rows.max(initial=-1)) + 1, used=len(self._latest))
        before = self._latest[rows].copy()
        order = np.argsort(rows, kind="stable")
        repeated = rows[order[1:]] == rows[order[:-1]]
        replaced, later = (
            order[:-1][repeated],
            order[1:][repeated],
        )  # of rows named several times in this call
        before[later] = entries[replaced]
        self._live += int(np.count_nonzero(before < 0))
        if (before >= 0).any():
            self._earlier.note(entries, before)  # first: other threads follow it from the latest one
        last = np.ones(len(rows), dtype=np.bool_)
        last[replaced] = False
        # After ``earlier``: a thread that sees the new entry finds the way back to the one of its own
        # snapshot.
        self._latest[rows[last]] = entries[last]

    @property
    def is_wasteful(self) -> bool:
        """True if most entries were replaced, or are gone."""
        return self._entries > 2 * self._live

    def begin_compaction(self) -> Compaction:
        """Make work which keeps the living entries alone: run it in any thread, then
        ``finish_compaction``.
        """
        is_latest = np.zeros(self._entries, dtype=np.bool_)
        is_latest[self._latest[self._latest >= 0]] = True
        rows, blocks = self._rows[: self._entries], tuple(self._blocks)
        return Compaction(rows, is_latest, self._names, blocks, self._generation, self._moves)

    def finish_compaction(self, done: Compaction) -> None:
        """Take over the living entries, and all entries since.

        Nothing happens if the work did not end, or rows were renumbered since it began.
        """
        if not done.is_done or (done.generation, done.moves) != (self._generation, self._moves):
            return
        compacted = done.table
        since = np.arange(self._entries) >= len(done.rows)
        compacted._take(self._rows[: self._entries], since, self._names, self._blocks)
        # All fields at once, so that the table stays the object that others hold.
        self.__dict__.update(compacted.__dict__)
        self._generation, self._moves, self._snapshot = done.generation + 1, done.moves, None

    def _compact_if_worth(self) -> None:
        """Compact a small table at once, which takes a few milliseconds."""
        if self.is_wasteful and sum(block.values for block in self._blocks) <= self._small_values:
            work = self.begin_compaction()
            work.run()
            self.finish_compaction(work)

    def _take(self, rows: Rows32, wanted: Mask, names: Names, blocks: Sequence[ColumnBlock]) -> None:
        """Append the ``wanted`` entries of another table, under the names of this one."""
        rename = partial(_renamed, names, self._names)
        first = 0
        for block in blocks:
            part = slice(first, first + block.size)
            if wanted[part].any():
                self._push(block.renumbered(wanted[part], rename), rows[part][wanted[part]].astype(np.int64))
            first += block.size


@dataclass(eq=False)
class Compaction:
    """A table of the ``wanted`` entries of another one. Shapes: rows, wanted (entries,).

    ``generation`` and ``moves`` say which numbering of entries and rows it began with.
    """

    rows: Rows32
    wanted: Mask
    names: Names
    blocks: Sequence[ColumnBlock]
    generation: int
    moves: int
    is_done: bool = False

    def __post_init__(self) -> None:
        self.table = AttributeTable()

    def run(self) -> None:
        """Cost: as that of making all blocks (about a second for a million entries)."""
        self.table._take(self.rows, self.wanted, self.names, self.blocks)
        self.is_done = True


def _renamed(
    old: Names, new: Names, paths: Paths, numbers: NDArray[np.float64]
) -> tuple[Paths, NDArray[np.float64]]:
    """The paths and numbers in one table of what has these in another. Shapes: (m,), (m,) -> (m,), (m,)."""
    stored = paths % STORINGS
    fields = _renumbered(paths // STORINGS, old.fields, new.fields)
    coded = np.isin(stored, [*CODED])
    numbers[coded] = _renumbered(numbers[coded], old.values, new.values)
    return (fields * STORINGS + stored).astype(np.uint32), numbers


def _renumbered(numbers: NDArray[Any], old: Numbering, new: Numbering) -> NDArray[np.int64]:
    """The numbers (m,) in ``new`` of what had these in ``old``."""
    numbers = numbers.astype(np.int64)
    used = np.bincount(numbers)
    new_numbers = np.zeros(len(used), dtype=np.int64)
    # Unused names are left behind: so they go.
    for number in np.flatnonzero(used).tolist():
        new_numbers[number] = new.number(old[number])
    result: NDArray[np.int64] = new_numbers[numbers]
    return result


def _straight(rows: Rows32, first: int) -> int:
    """The number of rows, from the beginning, which are first, first + 1, and so on."""
    bent = np.flatnonzero(rows != np.arange(first, first + len(rows)))
    return int(bent[0]) if len(bent) else len(rows)
