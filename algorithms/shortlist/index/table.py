"""The arms of one catalogue as append-only arrays, and immutable snapshots of them.

Notation
    K, d        number of rows ever appended since the last compaction, dimension
    row         position in the arrays: a replaced arm is a dead row and a new one at the end
    tombstone   entry of ``dead``, the log of rows that died, in the order of their deaths

Rows and tombstones are only ever appended, and a full array is copied into a larger one. So a snapshot is two
lengths and some references: free of cost, and true whatever happens afterwards. The two logs are also the
journal of all changes since an earlier snapshot.

To copy a million rows takes a good part of a second. So the larger arrays of a table are made ahead of need,
unless it is small, and every append copies a few rows for each new one: when the table is full all are there.
Until then both are in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shortlist.index.arm_ids import ArmIds
from shortlist.index.arrays import grown
from shortlist.mips.exact import error_line, unit_scale
from shortlist.types import Matrix, Rows, Vector

Working = NDArray[np.floating[Any]]
Times = NDArray[np.int64] | None

_FIRST_CAPACITY = 64
_GROWTH = 1.5
ALIVE = np.iinfo(np.int64).max
_FLOAT32_NORM = 2.0**60
_CHUNK = 8_192
_SMALL_BYTES = 1 << 24  # arrays that are copied in a few milliseconds: at once, when they are full
_FREE = 12  # larger arrays are begun when less than one of this many parts is free,
_AHEAD = 16  # and so many rows are copied for each that comes: more than _FREE, so that it is done in time
SPARE = 1.25  # of rows that come at once: capacity that takes no memory before it is used
_CACHE_LINE = 64
_MOST_PAIRS = 1 << 16  # compared one by one
_DIMENSION_MAJOR = 64
_MANY_IDS = 64  # from here on arrays are faster than ids one by one
_FLOAT32 = np.dtype(np.float32)
_NUMBERS = count()


@dataclass(frozen=True, slots=True, eq=False)
class Renumbering:
    """The renumbering of a table's rows by a compaction: row r became ``positions[r]``, -1 for a row which
    is gone.
    """

    number: int
    positions: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class TableSnapshot:
    """The table at one moment; safe to read from any thread.

    Shapes: features (K, d) float64, working (K, d), norms, revisions, came, died (K,), dead (tombstones,).
    ``working`` is the float32 copy for scans, or ``features`` when their size leaves float32's range.
    ``died[row]`` is the row's position in ``dead`` or larger than any. ``largest_norm`` bounds all norms.
    ``came``: when the id of an arm came, ms since 1970; 0 where that is not known.
    Those of one ``number`` number their arms alike, and a later one's ``dead`` begins with an earlier one's.
    ``renumbered``: the table that this one took the place of.
    """

    number: int
    ids: ArmIds
    dim: int
    features: Matrix
    working: Working
    norms: Vector
    revisions: NDArray[np.int64]
    came: NDArray[np.int64]
    died: NDArray[np.int64]
    dead: Rows
    largest_norm: float
    in_order: bool
    renumbered: Renumbering | None = None

    @property
    def rows(self) -> int:
        return len(self.revisions)

    @property
    def live(self) -> int:
        return len(self.revisions) - len(self.dead)

    def is_alive(self, rows: Rows) -> NDArray[np.bool_]:
        alive: NDArray[np.bool_] = self.died[rows] >= len(self.dead)
        return alive

    @cached_property
    def error_line(self) -> tuple[float, float]:
        return error_line(self.dim, self.largest_norm, self.working.dtype)

    def scaled(self, query: Vector) -> tuple[Working, float]:
        """``query`` (d,) near norm 1, and a bound on the error of products with it. Raises NonFinite."""
        scaled, query_norm = unit_scale(query)
        slope, offset = self.error_line
        return scaled.astype(self.working.dtype, copy=False), slope * query_norm + offset

    def dead_from(self, first: int) -> Rows:
        """Dead rows >= ``first``, counted from there."""
        if not first:
            return self.dead
        if first not in self._dead_from:
            self._dead_from[first] = self.dead[self.dead >= first] - first
        return self._dead_from[first]

    @cached_property
    def _dead_from(self) -> dict[int, Rows]:
        return {}

    @cached_property
    def live_rows(self) -> Rows:
        return np.flatnonzero(self.died >= len(self.dead))

    @cached_property
    def by_revision(self) -> tuple[Rows, NDArray[np.int64]]:
        """Live rows in ascending revision order, and those revisions."""
        rows = self.live_rows
        if not self.in_order:
            rows = rows[np.argsort(self.revisions[rows], kind="stable")]
        return rows, self.revisions[rows]

    def rows_of(self, ids: Iterable[str]) -> Rows:
        """Rows of the arms that are alive here, in the order of ``ids``; unknown ids are left out."""
        rows = self.row_of_each(ids)
        return rows[rows >= 0]

    def row_of_each(self, ids: Iterable[str]) -> Rows:
        """The row of each of ``ids`` that is alive in this snapshot, -1 for the others. Shape: -> (n,)."""
        ids = list(ids)
        if len(ids) < _MANY_IDS:
            return np.array([self.row_of(arm_id) for arm_id in ids], dtype=np.int64)
        rows = self.ids.last_rows(ids)
        for position in np.flatnonzero(rows >= len(self.revisions)).tolist():
            rows[position] = self.row_of(ids[position])
        present = np.flatnonzero(rows >= 0)
        rows[present[~self.is_alive(rows[present])]] = -1
        return rows

    def row_of(self, arm_id: str) -> int:
        """The row of an arm that is alive in this snapshot, -1 of any other."""
        row = self.ids.last_row(arm_id)
        # the ids are shared with later snapshots: go back to the row that the arm had at this moment
        while row is not None and row >= len(self.revisions):
            row = self.ids.row_before(row)
        return row if row is not None and self.died.item(row) >= len(self.dead) else -1


@dataclass(frozen=True, slots=True, eq=False)
class ArmColumns:
    """The arrays of a table, with capacity for c rows. Shapes: features, working (c, d), the others (c,)."""

    features: Matrix
    working: Working
    norms: Vector
    revisions: NDArray[np.int64]
    came: NDArray[np.int64]
    died: NDArray[np.int64]

    @classmethod
    def empty(cls, capacity: int, dim: int) -> ArmColumns:
        return cls(
            features=np.empty((capacity, dim)),
            working=aligned_empty(capacity, dim),
            norms=np.empty(capacity),
            revisions=np.empty(capacity, dtype=np.int64),
            came=np.empty(capacity, dtype=np.int64),
            died=np.empty(capacity, dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.revisions)

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        return self.features, self.working, self.norms, self.revisions, self.came, self.died

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def write(self, first: int, features: Matrix, revisions: NDArray[np.int64], came: Times = None) -> None:
        """Living arms at the rows from ``first`` on. Shapes: features (n, d), revisions, came (n,)."""
        last = first + len(features)
        self.features[first:last] = features
        # arms beyond the range of float32 are scanned in float64, and never by this copy
        with np.errstate(over="ignore"):
            self.working[first:last] = features
            # In float64, of what was given: pruning by norm is exact only if norms are never too small.
            self.norms[first:last] = np.linalg.norm(features, axis=1)
        self.revisions[first:last] = revisions
        self.came[first:last] = 0 if came is None else came
        self.died[first:last] = ALIVE

    def copy(self, other: ArmColumns, first: int, last: int) -> None:
        """Take over rows [first, last). Cost: 12 d + 32 bytes a row."""
        for mine, theirs in zip(self.arrays, other.arrays, strict=True):
            mine[first:last] = theirs[first:last]


class ArmTable:
    """See the module. One thread changes it; the snapshots may be read from all.

    ``small_bytes``: a table of more is copied into a larger one little by little, before it is full.
    """

    def __init__(self, dim: int, *, small_bytes: int = _SMALL_BYTES) -> None:
        self._small_bytes = small_bytes
        # Of the process: two tables never have the same one, so whoever remembers rows sees that they are of
        # another table.
        self._number = next(_NUMBERS)
        self._ids = ArmIds()
        self._dim = dim
        self._columns = ArmColumns.empty(0, dim)
        self._larger: ArmColumns | None = None  # what takes their place when they are full,
        self._copied = 0  # and how many rows it has
        self._dead = np.empty(0, dtype=np.int64)
        self._tombstones = 0
        self._largest_norm = 0.0
        self._in_order = True
        self._renumbered: Renumbering | None = None
        self._snapshot: TableSnapshot | None = None

    @classmethod
    def compacted(
        cls, table: TableSnapshot, *, check: Callable[[], None] = lambda: None
    ) -> tuple[ArmTable, Rows]:
        """A table of the live rows of ``table`` alone, in their order; ``check`` may raise to stop.

        Also the row there of every row of ``table``, -1 for the dead.
        For any thread: the work is done in small steps, so that other threads get their turns.
        """
        compacted = cls(table.dim)
        live_rows = table.live_rows
        # At once: growing by halves would copy the whole table a few times more.
        compacted.reserve(len(live_rows))
        for start in range(0, len(live_rows), _CHUNK):
            check()
            rows = live_rows[start : start + _CHUNK]
            ids = [table.ids[row] for row in rows.tolist()]
            compacted.append(ids, table.features[rows], table.revisions[rows], table.came[rows])
        positions = np.full(table.rows, -1, dtype=np.int64)
        positions[live_rows] = np.arange(len(live_rows))
        return compacted, positions

    @classmethod
    def mapped(cls, columns: ArmColumns, ids: ArmIds, *, largest_norm: float) -> ArmTable:
        """A table whose first rows are there: living arms, ``ids``.

        ``columns`` may have room for more rows. ``largest_norm`` bounds the norms.
        """
        mapped = cls(columns.features.shape[1])
        mapped._columns, mapped._ids, mapped._largest_norm = columns, ids, largest_norm
        revisions = columns.revisions[: len(ids)]
        # Told from the numbers, not from a flag in the file: a wrong flag would give wrong pages of arms.
        mapped._in_order = bool((revisions[1:] >= revisions[:-1]).all())
        return mapped

    def __len__(self) -> int:
        return len(self._ids) - self._tombstones

    @property
    def is_as_mapped(self) -> bool:
        """True if the table has the mapped rows alone, all alive."""
        return len(self._ids) == self._ids.mapped > 0 and not self._tombstones

    @property
    def memory_bytes(self) -> int:
        """Memory of the arrays, and about that of the ids."""
        columns = self._columns.nbytes + (self._larger.nbytes if self._larger else 0)
        renumbered = self._renumbered.positions.nbytes if self._renumbered is not None else 0
        return columns + self._dead.nbytes + renumbered + self._ids.memory_bytes

    def row_of(self, arm_id: str) -> int | None:
        row = self._ids.last_row(arm_id)
        return row if row is not None and self._columns.died[row] == ALIVE else None

    def rows_of(self, ids: Sequence[str]) -> list[int | None]:
        """The row of each arm, None for one that is not alive: quicker than one by one."""
        died = self._columns.died
        rows = self._ids.last_rows(ids).tolist()
        return [row if row >= 0 and died.item(row) == ALIVE else None for row in rows]

    def snapshot(self) -> TableSnapshot:
        if self._snapshot is None:
            self._snapshot = self._make_snapshot()
        return self._snapshot

    def append(
        self, ids: Sequence[str], features: Matrix, revisions: NDArray[np.int64], came: Times = None
    ) -> Rows:
        """Append arms that are not alive in the table, each once; returns their rows.

        ``came`` None: it is not known when any of them came.
        """
        first, last = len(self._ids), len(self._ids) + len(ids)
        self.reserve(last)
        # Before the rows are counted (``_ids.extend``): no snapshot sees a row without a state.
        self._columns.write(first, features, revisions, came)
        self._note(first, last)
        self._ids.extend(ids)
        self._copy_ahead(len(ids))
        self._snapshot = None
        return np.arange(first, last)

    def take_times(self, rows: Sequence[int | None], came: Sequence[int]) -> None:
        """Note when the arms of rows came; None: ignored. Snapshots of before see it, too."""
        known_times = [(row, time) for row, time in zip(rows, came, strict=True) if row is not None]
        if known_times:
            known_rows, times = np.array(known_times, dtype=np.int64).T
            self._columns.came[known_rows] = times
            if self._larger is not None:  # what was copied ahead is not copied again
                is_copied = known_rows < self._copied
                self._larger.came[known_rows[is_copied]] = times[is_copied]

    def tombstone(self, rows: Rows) -> None:
        """Note that live rows died, each once."""
        last = self._tombstones + len(rows)
        self._dead = grown(self._dead, last, used=self._tombstones)
        self._dead[self._tombstones : last] = rows
        # The place among the dead, not a flag: an earlier snapshot compares the place with its own number of
        # deaths, and sees the row alive.
        self._columns.died[rows] = np.arange(self._tombstones, last)
        # rows that were copied ahead are not copied again, so their deaths are noted in both
        if self._larger is not None:
            copied = rows[rows < self._copied]
            self._larger.died[copied] = self._columns.died[copied]
        self._tombstones = last
        self._snapshot = None

    def changed(self, ids: Sequence[str], rows: Sequence[int | None], revisions: Sequence[int]) -> list[int]:
        """Positions of the arms that are not alive with this or a later revision; of equal ids the last.

        ``rows``: those of the arms, as ``rows_of`` gives them.
        """
        changed, stored_revisions = {}, self._columns.revisions
        for position, (arm_id, row) in enumerate(zip(ids, rows, strict=True)):
            if row is None or revisions[position] > stored_revisions.item(row):
                changed[arm_id] = position
        return list(changed.values())

    def matched(self, other: TableSnapshot) -> Rows:
        """Make this new table one of the live arms of ``other``.

        Arms missing in ``other`` die here; arms only in ``other`` are appended. Returns the row here of every
        row of ``other``, -1 for the dead. Revisions are of one arm each.
        """
        rows, revisions = other.live_rows, self._columns.revisions[: len(self._ids)]
        wanted = other.revisions[rows]
        order = None if self._in_order else np.argsort(revisions)
        # A revision is of one write of one arm in the whole catalogue, so equal revisions are the same arm
        # with the same features.
        places = revisions.searchsorted(wanted, sorter=order)
        same = places < len(revisions)
        if order is not None:
            places[same] = order[places[same]]
        same[same] = revisions[places[same]] == wanted[same]
        positions = np.full(other.rows, -1, dtype=np.int64)
        positions[rows[same]] = places[same]
        is_matched = np.zeros(len(revisions), dtype=np.bool_)
        is_matched[places[same]] = True
        self.tombstone(np.flatnonzero(~is_matched))
        positions[rows[~same]] = self._copied_from(other, rows[~same])
        return positions

    def catch_up(self, since: TableSnapshot, until: TableSnapshot, positions: Rows) -> Rows:
        """Do to this table, of the arms of ``since``, what made ``until`` out of ``since``.

        ``positions``: the row here of every row of ``since``, -1 for those that were dead in it. Returns the
        same for ``until``.
        """
        died = until.dead[len(since.dead) :]
        # Rows that came and died since are not copied at all.
        self.tombstone(positions[died[died < since.rows]])
        rows = np.arange(since.rows, until.rows)
        rows = rows[until.is_alive(rows)]
        later = np.full(until.rows - since.rows, -1, dtype=np.int64)
        later[rows - since.rows] = self._copied_from(until, rows)
        return np.concatenate((positions, later))

    def _copied_from(self, other: TableSnapshot, rows: Rows) -> Rows:
        """Append these rows of another table; returns where they are here."""
        ids = [other.ids[row] for row in rows.tolist()]
        return self.append(ids, other.features[rows], other.revisions[rows], other.came[rows])

    def replaces(self, other: TableSnapshot, positions: Rows) -> None:
        """Note which table this one replaces, and where the rows of that table are here."""
        self._renumbered = Renumbering(other.number, positions.astype(np.int32))
        self._snapshot = None

    def _note(self, first: int, last: int) -> None:
        """Keep what is known of all rows true after rows [first, last) were written."""
        self._largest_norm = max(self._largest_norm, float(self._columns.norms[first:last].max(initial=0.0)))
        with_last = self._columns.revisions[max(first - 1, 0) : last]
        self._in_order = self._in_order and bool((with_last[1:] >= with_last[:-1]).all())

    def _make_snapshot(self) -> TableSnapshot:
        rows, columns = len(self._ids), self._columns
        # products of longer arms would leave the range of float32
        fits = self._largest_norm <= _FLOAT32_NORM
        return TableSnapshot(
            number=self._number,
            ids=self._ids,
            dim=self._dim,
            features=columns.features[:rows],
            working=columns.working[:rows] if fits else columns.features[:rows],
            norms=columns.norms[:rows],
            revisions=columns.revisions[:rows],
            came=columns.came[:rows],
            died=columns.died[:rows],
            dead=self._dead[: self._tombstones],
            largest_norm=self._largest_norm,
            in_order=self._in_order,
            renumbered=self._renumbered,
        )

    def reserve(self, rows: int) -> None:
        """Have capacity for so many rows in all; what is not copied yet is copied now."""
        used = len(self._ids)
        if rows <= len(self._columns):
            return
        # What was copied ahead is not copied again.
        larger, copied = self._larger, self._copied
        if larger is None or len(larger) < rows:
            larger, copied = ArmColumns.empty(_capacity(rows, used=used), self._dim), 0
        larger.copy(self._columns, copied, used)
        self._columns, self._larger = larger, None

    def _copy_ahead(self, added: int) -> None:
        """Copy a part of the table, if it is not small and will be full before long."""
        used, capacity = len(self._ids), len(self._columns)
        if self._larger is None:
            if self._columns.nbytes <= self._small_bytes or (capacity - used) * _FREE > capacity:
                return
            self._larger, self._copied = ArmColumns.empty(_capacity(capacity + 1, used=used), self._dim), 0
        last = min(used, self._copied + _AHEAD * added)
        self._larger.copy(self._columns, self._copied, last)
        self._copied = last


def small_table(
    ids: Sequence[str], features: Matrix, revisions: NDArray[np.int64], came: Times = None
) -> TableSnapshot:
    """A table of these arms, which stays as it is and is scanned in float64: for a few searches of few arms.

    Shapes: ids, revisions (K,) ascending, came (K,), features (K, d). Cost: K d multiplications, no copy.
    """
    named, norms = ArmIds.of_few(ids), np.sqrt(np.einsum("ij,ij->i", features, features))
    return TableSnapshot(
        number=next(_NUMBERS),
        ids=named,
        dim=features.shape[1],
        features=features,
        working=features,
        norms=norms,
        revisions=revisions,
        came=np.zeros(len(revisions), dtype=np.int64) if came is None else came,
        died=np.full(len(revisions), ALIVE),
        dead=np.empty(0, dtype=np.int64),
        largest_norm=float(norms.max(initial=0.0)),
        in_order=True,
    )


def table_of(features: Matrix) -> TableSnapshot:
    """A table of these arms, in their order, that stays as it is: they have no ids. Shapes: (K, d).

    Cost: a copy, and one in working precision. Memory: 12 d + 32 bytes an arm.
    """
    columns = ArmColumns.empty(len(features), features.shape[1])
    columns.write(0, features, np.arange(len(features)))
    largest_norm = float(columns.norms.max(initial=0.0))
    return TableSnapshot(
        number=next(_NUMBERS),
        ids=ArmIds(),
        dim=features.shape[1],
        features=columns.features,
        working=columns.working if largest_norm <= _FLOAT32_NORM else columns.features,
        norms=columns.norms,
        revisions=columns.revisions,
        came=columns.came,
        died=columns.died,
        dead=np.empty(0, dtype=np.int64),
        largest_norm=largest_norm,
        in_order=True,
    )


def _capacity(least: int, *, used: int) -> int:
    """The capacity to have when ``least`` are needed and ``used`` are there."""
    return max(int(least * SPARE), int(used * _GROWTH), _FIRST_CAPACITY)


def positions_of(rows: Rows, size: int) -> NDArray[np.int32]:
    """The inverse of ``rows`` (n,), some of them -1: the position (size,) of every row, -1 if it has none."""
    positions = np.full(size, -1, dtype=np.int32)
    present = np.flatnonzero(rows >= 0)
    positions[rows[present]] = present
    return positions


def end_of(positions: Rows) -> int:
    """The end of a range of rows after a compaction that kept their order, from where they are now."""
    return int(positions.max(initial=-1)) + 1


def aligned_empty(rows: int, dim: int, dtype: np.dtype[Any] = _FLOAT32) -> Working:
    """Memory for (rows, dim) in the layout that BLAS scans fastest, on the border of a cache line.

    Dimension-major for few dimensions: 1.2 to 2 times as fast as rows at d <= 64, 0.9 times at d = 128.
    """
    line = _CACHE_LINE // dtype.itemsize
    padded = -(-rows // line) * line
    buffer = np.empty(padded * dim * dtype.itemsize + _CACHE_LINE, dtype=np.uint8)
    start = -buffer.ctypes.data % _CACHE_LINE
    return laid_out(buffer[start : start + padded * dim * dtype.itemsize].view(dtype), padded, dim)[:rows]


def laid_out(numbers: Working, rows: int, dim: int) -> Working:
    """A matrix (rows, dim) of these numbers (rows x dim,), in the layout of ``aligned_empty``."""
    return numbers.reshape(dim, rows).T if is_dimension_major(dim) else numbers.reshape(rows, dim)


def is_dimension_major(dim: int) -> bool:
    """Return whether the numbers of one dimension are side by side, not those of one row."""
    return dim <= _DIMENSION_MAJOR


def longest_first(table: TableSnapshot, rows: Rows) -> Rows:
    """The rows by descending norm, equal norms in row order. Shapes: (n,) -> (n,)."""
    return rows[np.lexsort((rows, -table.norms[rows]))]


def not_in(rows: Rows, others: Rows) -> NDArray[np.bool_]:
    """True where a row is not among ``others``. For a few rows ``np.isin`` takes longer than a search."""
    if len(rows) * len(others) > _MOST_PAIRS:
        return ~np.isin(rows, others)
    differs: NDArray[np.bool_] = (rows[:, None] != others).all(axis=1)
    return differs
