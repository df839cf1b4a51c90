"""A copy of some rows of a table side by side, which follows the rows that a filter lets in.

Notation
    m, d        rows that were ever copied, dimension
    place       where a row stands in the copy
    gone        places of rows that are let in no longer; they are struck out in every search

Rows that come are appended, into room that is kept for them. So following a change takes time in proportion
to the change, and earlier copies, which share the room, stay true.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.indexes.eligible_rows import Change
from app.indexes.table import ArmView, Working, aligned_empty, places_of
from shortlist.mips.exact import candidates
from shortlist.types import NO_ROWS, Rows, Vector

_GROWTH = 1.5
_LEAST_ROOM = 16


class _Room:
    """Arrays that copies share. ``latest`` numbers the copy that may still append to them.

    Shapes: rows (capacity,), features (capacity, d); places (rows of the table or more,), -1 for no place.
    """

    def __init__(self, rows: Rows, features: Working, places: NDArray[np.int32]) -> None:
        self.rows = rows
        self.features = features
        self.places = places
        self.latest = 0

    def with_room(self, used: int, more: int, table_rows: int) -> _Room:
        """Itself, or a larger one that begins with the same ``used`` rows."""
        size = used + more
        if table_rows > len(self.places):
            places = np.full(int(_GROWTH * table_rows), -1, dtype=np.int32)
            places[: len(self.places)] = self.places
            self.places = places
        if size <= len(self.rows):
            return self
        capacity = max(int(_GROWTH * size), _LEAST_ROOM)
        rows = np.empty(capacity, dtype=np.int64)
        rows[:used] = self.rows[:used]
        self.latest += 1  # the places are the larger one's from here on
        features = aligned_empty(capacity, self.features.shape[1], self.features.dtype)
        features[:used] = self.features[:used]
        return _Room(rows, features, self.places)


class RowCopy:
    """See the module. It never changes: ``followed`` and ``moved`` give others.

    Memory: 4 d + 8 bytes a row, and 4 bytes a row of the table. One thread follows changes, all may search.
    """

    def __init__(self, view: ArmView, rows: Rows) -> None:
        features = aligned_empty(len(rows), view.dim, view.working.dtype)
        features[:] = view.working[rows]
        self._set(_Room(rows, features, places_of(rows, view.rows)), len(rows), NO_ROWS)

    def _set(self, room: _Room, size: int, gone: NDArray[np.int64]) -> None:
        room.latest += 1
        self._room, self._number, self._gone = room, room.latest, gone
        self._rows, self._features = room.rows[:size], room.features[:size]

    @classmethod
    def _of(cls, room: _Room, size: int, gone: NDArray[np.int64]) -> RowCopy:
        copy = cls.__new__(cls)
        copy._set(room, size, gone)
        return copy

    def __len__(self) -> int:
        """The rows that are not gone."""
        return len(self._rows) - len(self._gone)

    @property
    def gone(self) -> int:
        return len(self._gone)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._features.dtype

    @property
    def memory_bytes(self) -> int:
        room = self._room
        return int(room.rows.nbytes + room.features.nbytes + room.places.nbytes + self._gone.nbytes)

    def followed(self, view: ArmView, change: Change) -> RowCopy:
        """The same after a change of what is let in; rows that went and were not copied are ignored.

        Cost: O(changed rows), over many changes.
        """
        came, went = change.came, change.went
        if not len(came) and not len(went):
            return self
        room = self._only_room()
        went = went[went < len(room.places)]
        places = room.places[went].astype(np.int64)
        gone = np.concatenate((self._gone, places[places >= 0]))
        room = room.with_room(len(self._rows), len(came), view.rows)
        room.places[went] = -1
        size = len(self._rows) + len(came)
        room.rows[len(self._rows) : size] = came
        room.features[len(self._rows) : size] = view.working[came]
        room.places[came] = np.arange(len(self._rows), size)
        return self._of(room, size, gone)

    def moved(self, places: NDArray[np.int32], table_rows: int) -> RowCopy:
        """The same after a compaction: row r is now ``places[r]``, -1 if it is gone."""
        size = len(self._rows)
        alive = np.ones(size, dtype=np.bool_)
        alive[self._gone] = False
        there = np.where(alive, places[self._rows], -1).astype(np.int64)
        features = self._only_room().features
        self._room.latest += 1  # the room of the features is the new one's
        rows = np.full(len(features), -1, dtype=np.int64)
        rows[:size] = there
        return self._of(_Room(rows, features, places_of(there, table_rows)), size, np.flatnonzero(there < 0))

    def contenders(self, scaled: Vector, error: float, k: int) -> Rows:
        """The rows that could be the best ``k`` of the copy. ``scaled`` (d,): the query in ``unit_scale``.

        ``error``: bound on the error of a product in working precision. Cost: m d reads in a row.
        """
        approximate = self._features @ scaled.astype(self._features.dtype, copy=False)
        if len(self._gone):
            approximate[self._gone] = -np.inf
        return self._rows[candidates(approximate, error, k)]

    def _only_room(self) -> _Room:
        """The room, for the latest copy in it; another with the same rows for an earlier one."""
        room = self._room
        if self._number == room.latest:
            return room
        is_there = np.ones(len(self._rows), dtype=np.bool_)
        is_there[self._gone] = False
        there = np.flatnonzero(is_there)
        places = np.full(len(room.places), -1, dtype=np.int32)
        places[self._rows[there]] = there
        return _Room(self._rows.copy(), self._features.copy(order="F"), places)
