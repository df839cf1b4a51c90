"""The attributes of all arms at one moment, and filters over them.

Notation
    row     an arm's number, whatever the caller numbers arms by
    entry   the fields of one row (tags and metadata) at the time they were set, numbered in that order
    path    a number for a field and a type of its values, see ``names``

A condition compares the different values of a block of entries, or its numbers in a row: no loop runs over
arms. The amount of work is known beforehand.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.filters.columns import (
    MAX_ENTRIES,
    Column,
    ColumnBlock,
    Mask,
    Numbers,
    OrderTest,
    Test,
    are_integers,
    is_among,
    pushed,
)
from app.filters.field_numbers import CODED, EVERY_STORING, KINDS, STORINGS, Names, Numbering
from app.filters.fields import Stored, Value, ValueKind
from app.filters.filter import ORDERS, AllOf, AnyOf, Exists, Expression, Filter, Not, OneOf, Ordered
from app.filters.replaced_entries import Earlier
from shortlist.types import Rows

Labelled = tuple[ValueKind, Value]
"""A value and its kind, since in Python True equals 1."""

# A comparison in Python, and a search in a list, cost as much as this many numbers compared by numpy.
_PYTHON = 50
_SEARCH = 20

Step = Callable[[ColumnBlock, Mask], None]
"""A part of a filter, ready for the blocks of one snapshot: writes which entries of a block (size,) hold."""


@dataclass(frozen=True, eq=False)
class AttributeSnapshot:
    """The attributes at one moment; safe to read from any thread.

    generation  while it stays, entries keep their numbers and contents
    entries     their number
    rows        (entries,) the row of each; -1 for a row which is gone. Of several entries of one row the last
                holds: ``answer[rows[named]] = mask[named]`` with ``named = rows >= 0`` does so
    straight    number of first entries which are of the row of their own number

    A row without an entry is an arm without fields: ``filter.matches((), {})`` answers for it.
    """

    generation: int
    rows: NDArray[np.int32]
    straight: int
    names: Names = field(repr=False)
    blocks: Sequence[ColumnBlock] = field(repr=False)
    firsts: Sequence[int] = field(repr=False)
    latest: NDArray[np.int32] = field(repr=False)
    earlier: Earlier = field(repr=False)

    _known_sizes: dict[tuple[int, int], _Sizes] = field(default_factory=dict, init=False, repr=False)

    @property
    def entries(self) -> int:
        return len(self.rows)

    def evaluate(self, arm_filter: Filter, first: int = 0, out: Mask | None = None) -> Mask:
        """Evaluate a filter for the entries from ``first`` on: a mask (entries - first,), ``out`` if given.

        Cost: 5 to 100 microseconds for a condition and a block of up to 65,536 entries; blocks that end
        before ``first`` are not read. For an order of strings or of integers beyond 2^53, up to 50
        nanoseconds for each different value of a block.
        """
        mask = np.empty(max(self.entries - first, 0), dtype=np.bool_) if out is None else out
        start = self._block_of(first)
        if len(mask):
            step = self._step(arm_filter.expression)
            for at, block in zip(self.firsts[start:], self.blocks[start:], strict=True):
                if at >= first:
                    step(block, mask[at - first : at - first + block.size])
                else:
                    whole_block = np.empty(block.size, dtype=np.bool_)
                    step(block, whole_block)
                    mask[: at + block.size - first] = whole_block[first - at :]
        return mask

    def work(self, arm_filter: Filter, first: int = 0) -> int:
        """About how many numbers ``evaluate`` compares; a million take a millisecond at most."""
        if first >= self.entries:
            return 0
        start = self._block_of(first)
        masks = arm_filter.conditions * (self.entries - self.firsts[start])
        return masks + self._work(arm_filter.expression, start)

    def values_of(self, name: str, rows: Rows) -> Sequence[tuple[Labelled, ...]]:
        """The values of a field of each of these rows, each value once; () where there is none.

        Shapes: rows (m,), any numbers -> m tuples.
        Cost: O(m log entries + values).
        """
        values: list[dict[Labelled, None]] = [{} for _ in range(len(rows))]
        for stored, column, positions, codes in self.codes_of(name, rows):
            numbers = column.numbers_of(codes).tolist()
            for position, number in zip(positions.tolist(), numbers, strict=True):
                values[position][KINDS[stored], self.names.value(stored, number)] = None
        return [tuple(value) for value in values]

    def matches(self, filters: Sequence[Filter], rows: Rows) -> Iterator[Mask]:
        """Evaluate each filter for these rows: masks (m,), one filter after the other.

        Cost: one reading of the fields of all filters for these rows; then m entries for each filter.
        """
        names, blocks = {name for arm_filter in filters for name in arm_filter.fields}, list[ColumnBlock]()
        for first in range(0, len(rows), MAX_ENTRIES):
            block_rows = rows[first : first + MAX_ENTRIES]
            blocks.append(self._block_of_rows(names, block_rows))
        entries = np.arange(len(rows), dtype=np.int32)
        firsts = range(0, len(rows), MAX_ENTRIES)
        alone = replace(self, rows=entries, blocks=blocks, firsts=firsts)
        return map(alone.evaluate, filters)

    def _block_of_rows(self, names: Iterable[str], rows: Rows) -> ColumnBlock:
        """These fields alone of these rows (m,), which are the entries of the block in this order."""
        paths, positions = [np.empty(0, np.uint32)], [np.empty(0, np.uint16)]
        numbers = [np.empty(0, np.float64)]
        for name in names:
            for stored, column, places, codes in self.codes_of(name, rows, EVERY_STORING):
                paths.append(np.full(len(places), self.names.path(name, stored), np.uint32))
                positions.append(places.astype(np.uint16))
                numbers.append(column.numbers_of(codes).astype(np.float64))
        all_positions = np.concatenate(positions)
        order = np.argsort(all_positions, kind="stable")  # they are of one column after the other
        return ColumnBlock.of(
            len(rows), np.concatenate(paths)[order], all_positions[order], np.concatenate(numbers)[order]
        )

    def codes_of(
        self, name: str, rows: Rows, storings: Iterable[Stored] = KINDS
    ) -> Iterator[tuple[Stored, Column, Rows, Numbers]]:
        """Read the codes of a field in its columns: positions (v,) among ``rows`` (m,), and the codes (v,)
        there.

        Values stored alike come one column after the other. Cost: O(m + v) for each.
        """
        entries = self.entries_of(rows)
        inside: list[tuple[ColumnBlock, int, Rows]]
        if len(rows) == 1 and entries[0] >= 0:  # of a choice of one arm: the calls below take twice as long
            at = self._block_of(int(entries[0]))
            inside = [(self.blocks[at], self.firsts[at], np.zeros(1, dtype=np.int64))]
        else:
            number = np.searchsorted(self.firsts, entries, side="right") - 1  # -1 of a row without an entry
            inside = [
                (self.blocks[at], self.firsts[at], np.flatnonzero(number == at))
                for at in np.flatnonzero(np.bincount(number + 1)[1:]).tolist()
            ]
        for stored in storings:
            path = self.names.path(name, stored)
            for block, first, positions in inside:
                column = block.find_column(path) if path is not None else None
                if column is not None:
                    places = (entries[positions] - first).astype(np.uint16)
                    which, codes = column.gathered(places, block.size)
                    yield stored, column, positions[which], codes

    def of_rows(self, rows: Rows) -> AttributeSnapshot:
        """The attributes of some rows (m,), which are its rows 0, 1, …: to be read by rows, not evaluated.

        Cost: O(m).
        """
        return replace(self, latest=self.entries_of(rows).astype(np.int32))

    def latest_of(
        self, position: Rows, check: Callable[[], None]
    ) -> tuple[NDArray[np.int32], list[ColumnBlock]]:
        """The last entry of every row r with ``position[r]`` >= 0 alone, as of row ``position[r]``.

        Their rows, and blocks of them in their order, under the same names. ``check`` may raise to stop.
        """
        rows_now = np.append(position, -1)[np.minimum(self.rows, len(position))]
        last = np.full(len(position), -1, dtype=np.int64)
        entries = np.flatnonzero(rows_now >= 0)
        last[self.rows[entries]] = entries
        is_latest = np.zeros(self.entries, dtype=np.bool_)
        is_latest[last[last >= 0]] = True
        blocks = list[ColumnBlock]()
        for first, block in zip(self.firsts, self.blocks, strict=True):
            check()
            stays = is_latest[first : first + block.size]
            if stays.any():
                blocks = pushed(blocks, block if stays.all() else block.renumbered(stays, lambda *same: same))
        return rows_now[is_latest].astype(np.int32), blocks

    def entries_of(self, rows: Rows) -> NDArray[np.int64]:
        """The entry of each of these rows, -1 of one without fields. Shapes: (m,), any numbers -> (m,)."""
        if len(rows) == 1:  # the calls below take ten times as long
            row = int(rows[0])
            entry = self._before(int(self.latest[row])) if 0 <= row < len(self.latest) else -1
            return np.array([entry], dtype=np.int64)
        stored_rows = np.flatnonzero((rows >= 0) & (rows < len(self.latest)))
        entries = np.full(len(rows), -1, dtype=np.int64)
        entries[stored_rows] = self.latest[rows[stored_rows]]
        for position in np.flatnonzero(entries >= self.entries).tolist():  # those that were set since
            entries[position] = self._before(int(entries[position]))
        return entries

    def _before(self, entry: int) -> int:
        """The entry of this snapshot in the place where ``entry`` is now."""
        while entry >= self.entries:
            entry = self.earlier.of(entry)
        return entry

    def values_in(self, name: str) -> int:
        """The number of values of a field, outdated ones included."""
        return self._sizes(name, 0).numbers

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
                return partial(_negated, self._step(part))
            case AllOf(parts):
                return partial(_combined, np.logical_and, [self._step(part) for part in parts])
            case AnyOf(parts):
                return partial(_combined, np.logical_or, [self._step(part) for part in parts])

    def _any(self, name: str, tests: Mapping[Stored, Test | None]) -> Step:
        """A number of one of these paths fulfils its test."""
        paths = [
            (path, test)
            for stored, test in tests.items()
            if (path := self.names.path(name, stored)) is not None
        ]
        return partial(_tested, paths)

    def _work(self, expression: Expression, start: int) -> int:
        match expression:
            case Exists(name):
                return self._sizes(name, start).numbers
            case OneOf(name, members):
                sizes = self._sizes(name, start)
                search_work = _SEARCH if len(members) > 1 else 0
                return _PYTHON * len(members) + sizes.numbers + search_work * sizes.to_test
            case Ordered(name):
                sizes = self._sizes(name, start)
                return _PYTHON + sizes.numbers + _PYTHON * sizes.codes_to_test
            case Not(part):
                return self._work(part, start)
            case AllOf(parts) | AnyOf(parts):
                return sum(self._work(part, start) for part in parts)

    def _sizes(self, name: str, start: int) -> _Sizes:
        """The sizes of a field's columns in the blocks from ``start`` on; numbers without a column are too
        few to count.
        """
        number = self.names.fields.number_of(name)
        if number is None:
            return _Sizes()
        sizes = self._known_sizes.get((number, start))
        if sizes is None:
            columns = [
                (stored, column)
                for block in self.blocks[start:]
                for stored in EVERY_STORING
                if (column := block.columns.get(number * STORINGS + stored)) is not None
            ]
            sizes = self._known_sizes[number, start] = _Sizes(
                sum(len(column) for _, column in columns),
                sum(column.to_test for _, column in columns),
                sum(column.to_test for stored, column in columns if stored in CODED),
            )
        return sizes


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Sizes of columns: their numbers, the numbers given to a test, and the codes among these."""

    numbers: int = 0
    to_test: int = 0
    codes_to_test: int = 0


def _tested(tests: Sequence[tuple[int, Test | None]], block: ColumnBlock, out: Mask) -> None:
    columns_held = [(column, test) for path, test in tests if (column := block.find_column(path)) is not None]
    if not columns_held:
        out.fill(False)
        return
    block.test(*columns_held[0], out)
    for column, test in columns_held[1:]:
        more = np.empty(block.size, dtype=np.bool_)
        block.test(column, test, more)
        out |= more


def _negated(step: Step, block: ColumnBlock, out: Mask) -> None:
    step(block, out)
    np.logical_not(out, out=out)


def _combined(operation: np.ufunc, steps: Sequence[Step], block: ColumnBlock, out: Mask) -> None:
    """Combine the results of all steps by ``operation``, all of them or any."""
    if not steps:
        out.fill(operation.identity)
        return
    steps[0](block, out)
    for step in steps[1:]:
        more = np.empty(block.size, dtype=np.bool_)
        step(block, more)
        operation(out, more, out=out)


def _member_tests(names: Names, members: Sequence[Value]) -> dict[Stored, Test]:
    """Tests of numbers for equality with a member, by how the numbers are stored."""
    wanted: dict[Stored, list[float]] = {}
    for member in members:
        stored, number = names.stored(member)
        if number is not None:
            wanted.setdefault(stored, []).append(number)
    return {stored: partial(_equals_one, np.array(sorted(result))) for stored, result in wanted.items()}


def _equals_one(wanted: NDArray[np.float64], numbers: Numbers) -> Mask:
    if len(wanted) > 1:
        return is_among(numbers, wanted)
    number = float(wanted[0])
    # Where both are integers no number of the column is converted, which would take most of the time.
    same: Mask = numbers == (int(number) if are_integers(numbers) and number.is_integer() else number)
    return same


def _order_tests(names: Names, symbol: str, bound: Value) -> dict[Stored, Test]:
    """Tests of numbers for this order to the bound, by how the numbers are stored."""
    by_code = partial(_ordered_codes, names.values, ORDERS[symbol], bound)
    if isinstance(bound, str):
        return {Stored.STRING: by_code}
    return {Stored.NUMBER: OrderTest(*_float_order(symbol, bound)), Stored.INTEGER: by_code}


def _ordered_codes(names: Numbering, order: Callable[[Any, Any], bool], bound: Value, codes: Numbers) -> Mask:
    named = names.of(codes.astype(np.int64).tolist())
    return np.array([order(name, bound) for name in named], dtype=np.bool_)


def _float_order(symbol: str, bound: float) -> tuple[Callable[[Any, Any], Any], np.float64]:
    """An order to a float64, which holds for the same float64s as the order to ``bound``."""
    nearest = float(bound)
    if nearest == bound:
        return ORDERS[symbol], np.float64(nearest)
    # No float64 lies between the two, and none equals the bound: what remains is the side of the nearest.
    below = symbol in {"$lt", "$lte"}
    inclusive = (nearest < bound) == below
    return ORDERS[("$lt" if below else "$gt") + ("e" if inclusive else "")], np.float64(nearest)
