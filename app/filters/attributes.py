"""The attributes of all arms of a catalogue in memory, and filters over them.

Notation
    row     an arm's number, whatever the caller numbers arms by
    entry   the fields of one row (tags and metadata) at the time they were set, numbered in that order
    path    ``len(Stored)`` times the number of a field, plus how its values are stored

Entries are only ever appended, so a view is a few references: it costs nothing and stays true whatever
happens afterwards, and what a filter lets in is to be computed for new entries alone. A row that gets another
document gets another entry, and the later one holds.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial, reduce
from itertools import accumulate
from math import ceil, floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.algorithms.types import Rows
from app.errors import InvalidShape
from app.filters.columns import MAX_ENTRIES, Block, Column, Mask, Numbers, Paths, Test, among, pushed
from app.filters.fields import Kind, Value, fields_of
from app.filters.filter import ORDERS, AllOf, AnyOf, Exists, Expression, Filter, Not, OneOf, Ordered

Document = tuple[Sequence[str], Mapping[str, Any]]
"""Tags and metadata of an arm."""

Rows32 = NDArray[np.int32]

Labelled = tuple[Kind, Value]
"""A value and its kind, since in Python True equals 1."""

_FIRST_CAPACITY = 64
_GROWTH = 1.25
_NAME_BYTES = 40
_SMALL_TABLE = 30_000  # entries
# A comparison in Python, and a search in a list, cost as much as this many numbers compared by numpy.
_PYTHON = 50
_SEARCH = 20


class Stored(IntEnum):
    """How values are stored; NOTHING is in every entry that has a field without values."""

    NOTHING = 0
    BOOLEAN = 1
    NUMBER = 2
    INTEGER = 3  # one that no float64 equals: by its code
    STRING = 4  # by its code


_CODED = frozenset({Stored.INTEGER, Stored.STRING})
_KINDS = {
    Stored.BOOLEAN: Kind.BOOLEAN,
    Stored.NUMBER: Kind.NUMBER,
    Stored.INTEGER: Kind.NUMBER,
    Stored.STRING: Kind.STRING,
}


class Numbering:
    """Strings and integers in the order in which they were first met. One thread adds; all may read."""

    def __init__(self) -> None:
        self.numbers: dict[str | int, int] = {}
        self.names: list[str | int] = []
        self._name_bytes = 0

    def number(self, name: str | int) -> int:
        """The number of a name, which is added if it is new."""
        known = self.numbers.get(name)
        if known is None:
            known = len(self.names)
            self.names.append(name)
            self.numbers[name] = known
            self._name_bytes += sys.getsizeof(name) + _NAME_BYTES
        return known

    @property
    def memory_bytes(self) -> int:
        return self._name_bytes + sys.getsizeof(self.numbers) + sys.getsizeof(self.names)


@dataclass(frozen=True)
class Names:
    """What numbers stand for: fields, and the values that are stored by codes."""

    fields: Numbering = field(default_factory=Numbering)
    values: Numbering = field(default_factory=Numbering)

    def path(self, name: str, stored: Stored) -> int | None:
        """None for a field that no arm has."""
        number = self.fields.numbers.get(name)
        return None if number is None else number * len(Stored) + stored

    def stored(self, value: Value) -> tuple[Stored, float | None]:
        """How a value is stored, and its number; None if it is the code of a value that no arm has."""
        if isinstance(value, str):
            return Stored.STRING, self.values.numbers.get(value)
        if isinstance(value, bool):
            return Stored.BOOLEAN, float(value)
        if isinstance(value, float) or _is_float(value):
            return Stored.NUMBER, float(value)
        return Stored.INTEGER, self.values.numbers.get(value)

    def stored_new(self, value: Value) -> tuple[Stored, float]:
        """As ``stored``; a value that no arm has gets a code."""
        stored, number = self.stored(value)
        if number is None:
            assert not isinstance(value, float)  # noqa: S101 - floats have no code
            number = self.values.number(value)
        return stored, number

    def value(self, stored: Stored, number: float) -> Value:
        if stored in _CODED:
            return self.values.names[int(number)]
        return bool(number) if stored is Stored.BOOLEAN else number


def _is_float(value: int) -> bool:
    try:
        return float(value) == value
    except OverflowError:
        return False


# For an integer x, x > b and x <= b hold as with the floor of b; the other two orders as with its ceiling.
_OF_FLOOR = frozenset({ORDERS["$gt"], ORDERS["$lte"]})

Step = Callable[[Block], Mask]
"""A part of a filter, ready for the blocks of one view: which entries of the block (size,) fulfil it."""


@dataclass(frozen=True, eq=False)
class AttributeView:
    """The attributes at one moment; safe to read from any thread.

    generation  while it stays, entries keep their numbers and what they hold
    entries     how many there are
    rows        (entries,) the row of each; -1 for one that is gone. Of several entries of one row the last
                holds: ``answer[rows[known]] = mask[known]`` with ``known = rows >= 0`` sees to that
    straight    of the first so many entries, each is of the row of its own number
    A row without an entry is an arm without fields: ``filter.matches((), {})`` answers for it.
    """

    generation: int
    rows: NDArray[np.int32]
    straight: int
    names: Names = field(repr=False)
    blocks: Sequence[Block] = field(repr=False)
    firsts: Sequence[int] = field(repr=False)
    latest: NDArray[np.int32] = field(repr=False)
    earlier: Earlier = field(repr=False)

    @property
    def entries(self) -> int:
        return len(self.rows)

    def evaluate(self, wanted: Filter, first: int = 0) -> Mask:
        """Which entries from ``first`` on are let in, (entries - first,).

        Cost: 10 to 100 microseconds for a condition and a block of up to 65,536 entries; blocks that end
        before ``first`` are not read. For an order of strings or of integers beyond 2^53, up to 50
        nanoseconds for each different value of a block.
        """
        mask = np.empty(max(self.entries - first, 0), dtype=np.bool_)
        start = self._block_of(first)
        if len(mask):
            step = self._step(wanted.expression)
            for at, block in zip(self.firsts[start:], self.blocks[start:], strict=True):
                begin = max(first - at, 0)
                mask[at + begin - first : at + block.size - first] = step(block)[begin:]
        return mask

    def work(self, wanted: Filter, first: int = 0) -> int:
        """About how many numbers ``evaluate`` compares; a million take a millisecond at most."""
        blocks = self.blocks[self._block_of(first) :] if first < self.entries else ()
        masks = wanted.conditions * sum(block.size for block in blocks)
        return masks + self._work(wanted.expression, blocks)

    def values_of(self, name: str, rows: Rows) -> Sequence[tuple[Labelled, ...]]:
        """The values of a field of each of these rows, each value once; () where there is none.

        Shapes: rows (m,), any numbers -> m tuples.
        Cost: O(m log entries), a few microseconds for a row.
        """
        known: dict[int, list[tuple[Stored, Column]]] = {}
        return [self._values(name, self._entry(row), known) for row in rows.tolist()]

    def _values(
        self, name: str, entry: int, known: dict[int, list[tuple[Stored, Column]]]
    ) -> tuple[Labelled, ...]:
        """The values of one entry; ``known`` are the columns that were found before, by blocks."""
        if entry < 0:
            return ()
        at = self._block_of(entry)
        if at not in known:
            paths = ((stored, self.names.path(name, stored)) for stored in _KINDS)
            found = ((stored, self.blocks[at].column(path)) for stored, path in paths if path is not None)
            known[at] = [(stored, column) for stored, column in found if len(column)]
        place = entry - self.firsts[at]
        values = (
            (_KINDS[stored], self.names.value(stored, number))
            for stored, column in known[at]
            for number in column.at(place).tolist()
        )
        return tuple(dict.fromkeys(values))

    def _entry(self, row: int) -> int:
        entry = int(self.latest[row]) if 0 <= row < len(self.latest) else -1
        while entry >= self.entries:
            entry = self.earlier.of(entry)
        return entry

    def _block_of(self, entry: int) -> int:
        return max(bisect_right(self.firsts, entry) - 1, 0)

    def _step(self, expression: Expression) -> Step:
        match expression:
            case OneOf(name, members):
                return self._any(name, _member_tests(self.names, members))
            case Ordered(name, symbol, bound):
                return self._any(name, _order_tests(self.names, symbol, bound))
            case Exists(name):
                return self._any(name, dict.fromkeys(Stored))
            case Not(part):
                step = self._step(part)
                return lambda block: ~step(block)
            case AllOf(parts):
                return partial(_every, [self._step(part) for part in parts])
            case AnyOf(parts):
                return partial(_some, [self._step(part) for part in parts])

    def _any(self, name: str, tests: Mapping[Stored, Test | None]) -> Step:
        """A number of one of these paths fulfils its test."""
        paths = [
            (path, test)
            for stored, test in tests.items()
            if (path := self.names.path(name, stored)) is not None
        ]
        return partial(_tested, paths)

    def _work(self, expression: Expression, blocks: Sequence[Block]) -> int:
        match expression:
            case Exists(name):
                return sum(len(column) for _, column in self._columns(name, blocks))
            case OneOf(name, members):
                each = _SEARCH if len(members) > 1 else 0
                return _PYTHON * len(members) + sum(
                    len(column) + each * column.to_test for _, column in self._columns(name, blocks)
                )
            case Ordered(name):
                return _PYTHON + sum(
                    len(column) + (_PYTHON * column.to_test if stored in _CODED else 0)
                    for stored, column in self._columns(name, blocks)
                )
            case Not(part):
                return self._work(part, blocks)
            case AllOf(parts) | AnyOf(parts):
                return sum(self._work(part, blocks) for part in parts)

    def _columns(self, name: str, blocks: Sequence[Block]) -> Iterator[tuple[Stored, Column]]:
        """The columns of a field; what has none in a block is too little to count."""
        paths = [(stored, self.names.path(name, stored)) for stored in Stored]
        for block in blocks:
            for stored, path in paths:
                column = None if path is None else block.columns.get(path)
                if column is not None:
                    yield stored, column


def _tested(tests: Sequence[tuple[int, Test | None]], block: Block) -> Mask:
    masks = [block.with_test(path, test) for path, test in tests if block.has(path)]
    return reduce(np.logical_or, masks) if masks else np.zeros(block.size, dtype=np.bool_)


def _every(steps: Sequence[Step], block: Block) -> Mask:
    mask = np.ones(block.size, dtype=np.bool_)
    for step in steps:
        mask &= step(block)
    return mask


def _some(steps: Sequence[Step], block: Block) -> Mask:
    mask = np.zeros(block.size, dtype=np.bool_)
    for step in steps:
        mask |= step(block)
    return mask


def _member_tests(names: Names, members: Sequence[Value]) -> dict[Stored, Test]:
    """Which numbers equal a member, by how they are stored."""
    wanted: dict[Stored, list[float]] = {}
    for member in members:
        stored, number = names.stored(member)
        if number is not None:
            wanted.setdefault(stored, []).append(number)
    return {stored: partial(_equals_one, np.array(sorted(found))) for stored, found in wanted.items()}


def _equals_one(wanted: NDArray[np.float64], numbers: Numbers) -> Mask:
    if len(wanted) > 1:
        return among(numbers, wanted)
    number = float(wanted[0])
    # Where both are integers no number of the column is converted, which would take most of the time.
    same: Mask = numbers == (int(number) if _are_integers(numbers) and number.is_integer() else number)
    return same


def _order_tests(names: Names, symbol: str, bound: Value) -> dict[Stored, Test]:
    """Which numbers stand in this order to the bound, by how they are stored."""
    by_code = partial(_ordered_codes, names.values.names, ORDERS[symbol], bound)
    if isinstance(bound, str):
        return {Stored.STRING: by_code}
    return {Stored.NUMBER: partial(_ordered, *_float_order(symbol, bound)), Stored.INTEGER: by_code}


def _ordered_codes(
    names: Sequence[str | int], order: Callable[[Any, Any], bool], bound: Value, codes: Numbers
) -> Mask:
    return np.array([order(names[code], bound) for code in codes.astype(np.int64).tolist()], dtype=np.bool_)


def _ordered(order: Callable[[Any, Any], Any], bound: np.float64, numbers: Numbers) -> Mask:
    """The numbers that stand in this order to the bound; integers are compared with one, not converted."""
    if _are_integers(numbers):
        rounded = floor if order in _OF_FLOOR else ceil
        found: Mask = order(numbers, rounded(bound))
    else:
        found = order(numbers, bound)
    return found


def _are_integers(numbers: Numbers) -> bool:
    return numbers.dtype.kind in "iu"


def _float_order(symbol: str, bound: float) -> tuple[Callable[[Any, Any], Any], np.float64]:
    """An order to a float64, which holds for the same float64s as the order to ``bound``."""
    nearest = float(bound)
    if nearest == bound:
        return ORDERS[symbol], np.float64(nearest)
    # No float64 lies between the two, and none equals the bound: what remains is the side of the nearest.
    below = symbol in {"$lt", "$lte"}
    inclusive = (nearest < bound) == below
    return ORDERS[("$lt" if below else "$gt") + ("e" if inclusive else "")], np.float64(nearest)


class Earlier:
    """For every entry the one that it replaced, -1 for none. Views share it; it takes memory once one did."""

    def __init__(self) -> None:
        self.entries = np.empty(0, dtype=np.int32)

    def note(self, entries: NDArray[np.int32], replaced: NDArray[np.int32]) -> None:
        """Shapes: (n,), (n,)."""
        self.entries = _grown(self.entries, int(entries.max()) + 1, used=len(self.entries))
        self.entries[entries] = replaced

    def of(self, entry: int) -> int:
        return int(self.entries[entry]) if entry < len(self.entries) else -1


class AttributeTable:
    """See the module. One thread changes it; the views may be read from all."""

    def __init__(self) -> None:
        self._generation = self._moves = 0
        self._names = Names()
        self._blocks: list[Block] = []
        self._entries = self._straight = 0
        self._rows = np.empty(0, dtype=np.int32)
        self._clear_rows()
        self._view: AttributeView | None = None

    @property
    def memory_bytes(self) -> int:
        """Memory of the arrays, and about that of everything else."""
        names = self._names.fields.memory_bytes + self._names.values.memory_bytes
        arrays = self._rows.nbytes + self._latest.nbytes
        arrays += self._earlier.entries.nbytes
        return names + arrays + sum(block.memory_bytes for block in self._blocks)

    def view(self) -> AttributeView:
        if self._view is None:
            rows = self._rows[: self._entries]
            rows.setflags(write=False)
            self._view = AttributeView(
                generation=self._generation,
                rows=rows,
                straight=self._straight,
                names=self._names,
                blocks=tuple(self._blocks),
                firsts=tuple(accumulate((block.size for block in self._blocks[:-1]), initial=0)),
                latest=self._latest,
                earlier=self._earlier,
            )
        return self._view

    def append(self, rows: Rows, documents: Sequence[Document]) -> None:
        """Set the fields of rows, one document for each; of equal rows the last holds.

        Cost: O(log entries) for each value, over many calls.
        Raises: InvalidShape for other than one document for each row.
        """
        if len(rows) != len(documents):
            raise InvalidShape("there must be one document for each row")
        for first in range(0, len(documents), MAX_ENTRIES):
            part = slice(first, first + MAX_ENTRIES)
            self._push(self._block(documents[part]), rows[part])
        self._compact_if_worth()

    def has(self, row: int) -> bool:
        """Whether a row was ever given fields, be it none."""
        return row < len(self._latest) and bool(self._latest[row] >= 0)

    def moved(self, position: Rows) -> None:
        """Rows are numbered anew: row r becomes ``position[r]``, or is gone where that is -1.

        Shapes: position (r,), r larger than all rows; no row twice.
        Raises: InvalidShape when a row has no position.
        """
        rows = np.flatnonzero(self._latest >= 0)
        if len(rows) and rows[-1] >= len(position):
            raise InvalidShape("every row must have a position")
        entries = self._latest[rows]
        there = position[rows]
        kept = there >= 0
        self._rows = np.full(len(self._rows), -1, dtype=np.int32)
        self._clear_rows()
        self._set_rows(there[kept], entries[kept])
        self._straight = _straight(self._rows[: self._entries], 0)
        self._moves += 1
        self._view = None
        self._compact_if_worth()

    def _block(self, documents: Sequence[Document]) -> Block:
        names = self._names
        paths: list[int] = []
        places: list[int] = []
        numbers: list[float] = []
        for place, (tags, metadata) in enumerate(documents):
            for name, values in fields_of(tags, metadata).items():
                path = names.fields.number(name) * len(Stored)
                for value in values:
                    stored, number = names.stored_new(value)
                    paths.append(path + stored)
                    places.append(place)
                    numbers.append(number)
                if not values:
                    paths.append(path + Stored.NOTHING)
                    places.append(place)
                    numbers.append(0.0)
        return Block.of(
            len(documents),
            np.array(paths, np.uint32),
            np.array(places, np.uint16),
            np.array(numbers, np.float64),
        )

    def _push(self, block: Block, rows: Rows) -> None:
        """One more block, of the fields of these rows."""
        first, last = self._entries, self._entries + block.size
        self._rows = _grown(self._rows, last, used=first)
        self._set_rows(rows, np.arange(first, last, dtype=np.int32))
        self._blocks = pushed(self._blocks, block)
        self._entries = last
        if self._straight == first:
            self._straight += _straight(self._rows[first:last], first)
        self._view = None

    def _clear_rows(self) -> None:
        """No row has an entry. Earlier views keep the arrays that they have."""
        self._latest = np.full(0, -1, dtype=np.int32)
        self._earlier = Earlier()
        self._live = 0

    def _set_rows(self, rows: Rows, entries: NDArray[np.int32]) -> None:
        """These are the latest entries of these rows."""
        self._rows[entries] = rows
        self._latest = _grown(self._latest, int(rows.max(initial=-1)) + 1, used=len(self._latest))
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
        self._latest[rows[last]] = entries[last]

    @property
    def is_wasteful(self) -> bool:
        """Whether most entries were replaced, or are gone."""
        return self._entries > 2 * self._live

    def begin_compaction(self) -> Compaction:
        """Work that keeps what is still there alone: run it in any thread, then ``finish_compaction``."""
        kept = np.zeros(self._entries, dtype=np.bool_)
        kept[self._latest[self._latest >= 0]] = True
        rows, blocks = self._rows[: self._entries], tuple(self._blocks)
        return Compaction(rows, kept, self._names, blocks, self._generation, self._moves)

    def finish_compaction(self, done: Compaction) -> None:
        """Take over what was kept, with the entries that came since.

        Nothing happens if the work did not end, or rows were numbered anew since it began.
        """
        if not done.is_done or (done.generation, done.moves) != (self._generation, self._moves):
            return
        made = done.made
        since = np.arange(self._entries) >= len(done.rows)
        made._take(self._rows[: self._entries], since, self._names, self._blocks)
        self.__dict__.update(made.__dict__)
        self._generation, self._moves, self._view = done.generation + 1, done.moves, None

    def _compact_if_worth(self) -> None:
        """Of a small table at once: it takes a few milliseconds."""
        if self.is_wasteful and self._entries <= _SMALL_TABLE:
            work = self.begin_compaction()
            work.run()
            self.finish_compaction(work)

    def _take(self, rows: Rows32, kept: Mask, names: Names, blocks: Sequence[Block]) -> None:
        """Append those entries of another table that are ``kept``, under the names of this one."""
        renaming = _Renaming(names, self._names)
        first = 0
        for block in blocks:
            part = slice(first, first + block.size)
            if kept[part].any():
                self._push(block.renumbered(kept[part], renaming), rows[part][kept[part]].astype(np.int64))
            first += block.size


@dataclass(eq=False)
class Compaction:
    """A table of the entries of another one that are ``kept``. Shapes: rows, kept (entries,).

    ``generation`` and ``moves`` say which numbering of entries and rows it began with.
    """

    rows: Rows32
    kept: Mask
    names: Names
    blocks: Sequence[Block]
    generation: int
    moves: int
    is_done: bool = False

    def __post_init__(self) -> None:
        self.made = AttributeTable()

    def run(self) -> None:
        """Cost: as that of merging all blocks once (0.3 s of a million entries)."""
        self.made._take(self.rows, self.kept, self.names, self.blocks)
        self.is_done = True


class _Renaming:
    """From the numbers of fields and values that one table uses to those of another."""

    def __init__(self, old: Names, new: Names) -> None:
        self._old = old
        self._new = new

    def paths(self, paths: Paths) -> Paths:
        fields = _renumbered(paths // len(Stored), self._old.fields, self._new.fields)
        return (fields * len(Stored) + paths % len(Stored)).astype(np.uint32)

    def numbers(self, paths: Paths | int, numbers: Numbers) -> NDArray[np.float64]:
        stored = np.broadcast_to(np.asarray(paths) % len(Stored), len(numbers))
        coded = np.isin(stored, [*_CODED])
        new = numbers.astype(np.float64)
        new[coded] = _renumbered(numbers[coded], self._old.values, self._new.values)
        return new


def _renumbered(numbers: NDArray[Any], old: Numbering, new: Numbering) -> NDArray[np.int64]:
    """The numbers (m,) in ``new`` of what had these in ``old``."""
    distinct, places = np.unique(numbers, return_inverse=True)
    found = [new.number(old.names[number]) for number in distinct.astype(np.int64).tolist()]
    return np.array(found, dtype=np.int64)[places]


def _straight(rows: Rows32, first: int) -> int:
    """How many of these rows, from the beginning, are first, first + 1, and so on."""
    bent = np.flatnonzero(rows != np.arange(first, first + len(rows)))
    return int(bent[0]) if len(bent) else len(rows)


def _grown(array: NDArray[np.int32], least: int, *, used: int) -> NDArray[np.int32]:
    """``array`` if it has room for ``least`` numbers, else a larger copy of the first ``used``, then -1."""
    if least <= len(array):
        return array
    larger = np.full(max(least, int(used * _GROWTH), _FIRST_CAPACITY), -1, dtype=np.int32)
    larger[:used] = array[:used]
    return larger
