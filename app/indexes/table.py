"""The arms of one catalogue as append-only arrays, and immutable views of them.

Notation
    K, d        number of rows ever appended since the last compaction, dimension
    row         position in the arrays: a replaced arm is a dead row and a new one at the end
    tombstone   entry of ``dead``, the log of rows that died, in the order of their deaths

Rows and tombstones are only ever appended, and an array that is full is copied into a larger one. So a
view is two lengths and some references: it costs nothing, and stays true whatever happens afterwards.
The two logs are also the journal of everything that was done since an earlier view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.algorithms.mips.exact import error_line
from app.algorithms.types import Matrix, Rows, Vector

Working = NDArray[np.floating[Any]]

_FIRST_CAPACITY = 64
_GROWTH = 1.5
_ALIVE = np.iinfo(np.int64).max
_FLOAT32_NORM = 2.0**60
_CHUNK = 8_192
_ID_BYTES = 200
_CACHE_LINE = 64
_MOST_PAIRS = 1 << 16  # compared one by one
_DIMENSION_MAJOR = 64
_FLOAT32 = np.dtype(np.float32)
_NUMBERS = count()


@dataclass(frozen=True, slots=True, eq=False)
class Renumbering:
    """How a compaction numbered the rows of ``table`` anew: row r became ``places[r]``, -1 if it was gone."""

    table: int
    places: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class ArmView:
    """The table at one moment; safe to read from any thread.

    Shapes: features (K, d) float64, working (K, d), norms, revisions, died (K,), dead (tombstones,).
    ``working`` is the float32 copy for scans, or ``features`` when their size leaves float32's range.
    ``died[row]`` is the row's place in ``dead`` or larger than any. ``largest_norm`` bounds all norms.
    Views of one ``table`` number their arms alike, and a later one's ``dead`` begins with an earlier one's.
    ``renumbered``: the table that this one took the place of.
    """

    table: int
    ids: Sequence[str]
    dim: int
    features: Matrix
    working: Working
    norms: Vector
    revisions: NDArray[np.int64]
    died: NDArray[np.int64]
    dead: Rows
    largest_norm: float
    in_order: bool
    latest: dict[str, int]
    earlier: dict[int, int]
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
        """Rows of the arms that are alive in this view, in the order of ``ids``; unknown ids are left out."""
        found = []
        for arm_id in ids:
            row = self.latest.get(arm_id)
            while row is not None and row >= self.rows:
                row = self.earlier.get(row)
            if row is not None and self.died[row] >= len(self.dead):
                found.append(row)
        return np.array(found, dtype=np.int64)


class ArmTable:
    """See the module. One thread changes it; the views may be read from all."""

    def __init__(self, dim: int) -> None:
        self._number = next(_NUMBERS)
        self._ids: list[str] = []
        self._latest: dict[str, int] = {}
        self._earlier: dict[int, int] = {}
        self._features = np.empty((0, dim))
        self._working: Working = aligned_empty(0, dim)
        self._norms = np.empty(0)
        self._revisions = np.empty(0, dtype=np.int64)
        self._died = np.empty(0, dtype=np.int64)
        self._dead = np.empty(0, dtype=np.int64)
        self._tombstones = 0
        self._largest_norm = 0.0
        self._in_order = True
        self._renumbered: Renumbering | None = None
        self._view: ArmView | None = None

    @classmethod
    def compacted(cls, view: ArmView, *, check: Callable[[], None] = lambda: None) -> ArmTable:
        """A table of the live rows of ``view`` alone, in their order; ``check`` may raise to stop.

        For any thread: the work is done in small steps, so that other threads get their turns.
        """
        table = cls(view.dim)
        kept = view.live_rows
        table._reserve(len(kept))
        for start in range(0, len(kept), _CHUNK):
            check()
            rows = kept[start : start + _CHUNK]
            ids = [view.ids[row] for row in rows.tolist()]
            table.append(ids, view.features[rows], view.revisions[rows])
        return table

    def __len__(self) -> int:
        return len(self._ids) - self._tombstones

    def __contains__(self, arm_id: object) -> bool:
        return isinstance(arm_id, str) and self.row_of(arm_id) is not None

    @property
    def memory_bytes(self) -> int:
        """Memory of the arrays, and about that of the ids."""
        arrays = (self._features, self._working, self._norms, self._revisions, self._died, self._dead)
        renumbered = self._renumbered.places.nbytes if self._renumbered is not None else 0
        return sum(array.nbytes for array in arrays) + renumbered + _ID_BYTES * len(self._ids)

    def row_of(self, arm_id: str) -> int | None:
        row = self._latest.get(arm_id)
        return row if row is not None and self._died[row] == _ALIVE else None

    def view(self) -> ArmView:
        if self._view is None:
            self._view = self._make_view()
        return self._view

    def append(self, ids: Sequence[str], features: Matrix, revisions: NDArray[np.int64]) -> Rows:
        """Append arms that are not alive in the table, each once; returns their rows."""
        first, last = len(self._ids), len(self._ids) + len(ids)
        self._reserve(last)
        self._features[first:last] = features
        with np.errstate(over="ignore"):
            self._working[first:last] = features
            self._norms[first:last] = np.linalg.norm(features, axis=1)
        self._revisions[first:last] = revisions
        self._died[first:last] = _ALIVE
        self._note(first, last)
        for row, arm_id in enumerate(ids, start=first):
            before = self._latest.get(arm_id)
            if before is not None:
                self._earlier[row] = before
            self._latest[arm_id] = row
        self._ids.extend(ids)
        self._view = None
        return np.arange(first, last)

    def kill(self, rows: Rows) -> None:
        """Bury live rows, each once."""
        last = self._tombstones + len(rows)
        self._dead = _grown(self._dead, last, used=self._tombstones)
        self._dead[self._tombstones : last] = rows
        self._died[rows] = np.arange(self._tombstones, last)
        self._tombstones = last
        self._view = None

    def changed(self, ids: Sequence[str], revisions: Sequence[int]) -> list[int]:
        """Positions of the arms that are not alive with this or a later revision; of equal ids the last."""
        wanted = {}
        for position, (arm_id, revision) in enumerate(zip(ids, revisions, strict=True)):
            row = self.row_of(arm_id)
            if row is None or revision > self._revisions[row]:
                wanted[arm_id] = position
        return list(wanted.values())

    def catch_up(self, since: ArmView, until: ArmView) -> Rows:
        """Do to this table, made of the live rows of ``since``, what made ``until`` out of ``since``.

        Returns the place here of every row of ``since``, -1 for those that were dead in it.
        """
        places = np.full(since.rows, -1, dtype=np.int64)
        places[since.live_rows] = np.arange(since.live)
        died = until.dead[len(since.dead) :]
        self.kill(places[died[died < since.rows]])
        rows = np.arange(since.rows, until.rows)
        rows = rows[until.is_alive(rows)]
        self.append([until.ids[row] for row in rows.tolist()], until.features[rows], until.revisions[rows])
        return places

    def replaces(self, other: ArmView, places: Rows) -> None:
        """Say that it takes the place of another table, and where the rows of that one are now."""
        self._renumbered = Renumbering(other.table, places.astype(np.int32))
        self._view = None

    def _note(self, first: int, last: int) -> None:
        """Keep what is known of all rows true after rows [first, last) were written."""
        self._largest_norm = max(self._largest_norm, float(self._norms[first:last].max(initial=0.0)))
        with_last = self._revisions[max(first - 1, 0) : last]
        self._in_order = self._in_order and bool((with_last[1:] >= with_last[:-1]).all())

    def _make_view(self) -> ArmView:
        rows = len(self._ids)
        fits = self._largest_norm <= _FLOAT32_NORM
        return ArmView(
            table=self._number,
            ids=self._ids,
            dim=self._features.shape[1],
            features=self._features[:rows],
            working=self._working[:rows] if fits else self._features[:rows],
            norms=self._norms[:rows],
            revisions=self._revisions[:rows],
            died=self._died[:rows],
            dead=self._dead[: self._tombstones],
            largest_norm=self._largest_norm,
            in_order=self._in_order,
            latest=self._latest,
            earlier=self._earlier,
            renumbered=self._renumbered,
        )

    def _reserve(self, rows: int) -> None:
        used = len(self._ids)
        if rows > len(self._revisions):
            self._features = _grown(self._features, rows, used=used)
            larger = aligned_empty(len(self._features), self._features.shape[1])
            larger[:used] = self._working[:used]
            self._working = larger
            self._norms = _grown(self._norms, rows, used=used)
            self._revisions = _grown(self._revisions, rows, used=used)
            self._died = _grown(self._died, rows, used=used)


def _grown(array: Any, least: int, *, used: int) -> Any:
    """``array`` if it has room for ``least`` rows, else a larger copy of its ``used`` rows."""
    if least <= len(array):
        return array
    capacity = max(least, _FIRST_CAPACITY) if used == 0 else max(least, int(used * _GROWTH))
    larger = np.empty((capacity, *array.shape[1:]), dtype=array.dtype)
    larger[:used] = array[:used]
    return larger


def places_of(rows: Rows, size: int) -> NDArray[np.int32]:
    """The inverse of ``rows`` (n,), some of them -1: the place (size,) of every row, -1 if it has none."""
    places = np.full(size, -1, dtype=np.int32)
    known = np.flatnonzero(rows >= 0)
    places[rows[known]] = known
    return places


def aligned_empty(rows: int, dim: int, dtype: np.dtype[Any] = _FLOAT32) -> Working:
    """Room for (rows, dim) in the layout that BLAS scans fastest, on the border of a cache line.

    Dimension-major for few dimensions: 1.2 to 2 times as fast as rows at d <= 64, 0.9 times at d = 128.
    """
    line = _CACHE_LINE // dtype.itemsize
    padded = -(-rows // line) * line
    buffer = np.empty(padded * dim * dtype.itemsize + _CACHE_LINE, dtype=np.uint8)
    start = -buffer.ctypes.data % _CACHE_LINE
    flat = buffer[start : start + padded * dim * dtype.itemsize].view(dtype)
    if dim <= _DIMENSION_MAJOR:
        return flat.reshape(dim, padded).T[:rows]
    return flat.reshape(padded, dim)[:rows]


def not_in(rows: Rows, others: Rows) -> NDArray[np.bool_]:
    """True where a row is none of the ``others``. For a few rows ``np.isin`` takes longer than a search."""
    if len(rows) * len(others) > _MOST_PAIRS:
        return ~np.isin(rows, others)
    differs: NDArray[np.bool_] = (rows[:, None] != others).all(axis=1)
    return differs
