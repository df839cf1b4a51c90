"""The attributes of all arms at one moment, and filters over them.

Notation
    row     an arm's number, whatever the caller numbers arms by
    entry   the fields of one row (tags and metadata) at the time they were set, numbered in that order
    path    a number for a field and a type of its values, see ``names``

A condition compares the different values of a block of entries, or its numbers in a row: no loop runs over
arms. How much work that is can be told before it is done.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.algorithms.types import Rows
from app.filters.columns import Block, Column, Mask, Numbers, OrderTest, Test, among, are_integers
from app.filters.earlier import Earlier
from app.filters.fields import Kind, Value
from app.filters.filter import ORDERS, AllOf, AnyOf, Exists, Expression, Filter, Not, OneOf, Ordered
from app.filters.names import CODED, EVERY_STORING, KINDS, STORINGS, Names, Stored

Labelled = tuple[Kind, Value]
"""A value and its kind, since in Python True equals 1."""

# A comparison in Python, and a search in a list, cost as much as this many numbers compared by numpy.
_PYTHON = 50
_SEARCH = 20

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
            paths = ((stored, self.names.path(name, stored)) for stored in KINDS)
            found = ((stored, self.blocks[at].column(path)) for stored, path in paths if path is not None)
            known[at] = [(stored, column) for stored, column in found if len(column)]
        place = entry - self.firsts[at]
        values = (
            (KINDS[stored], self.names.value(stored, number))
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
                    len(column) + (_PYTHON * column.to_test if stored in CODED else 0)
                    for stored, column in self._columns(name, blocks)
                )
            case Not(part):
                return self._work(part, blocks)
            case AllOf(parts) | AnyOf(parts):
                return sum(self._work(part, blocks) for part in parts)

    def _columns(self, name: str, blocks: Sequence[Block]) -> Iterator[tuple[Stored, Column]]:
        """The columns of a field; what has none in a block is too little to count."""
        number = self.names.fields.numbers.get(name)
        if number is None:
            return
        for block in blocks:
            for stored in EVERY_STORING:
                column = block.columns.get(number * STORINGS + stored)
                if column is not None:
                    yield stored, column


def _tested(tests: Sequence[tuple[int, Test | None]], block: Block) -> Mask:
    found = (block.with_test(path, test) for path, test in tests)
    masks = [mask for mask in found if mask is not None]
    if len(masks) == 1:
        return masks[0]
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
    same: Mask = numbers == (int(number) if are_integers(numbers) and number.is_integer() else number)
    return same


def _order_tests(names: Names, symbol: str, bound: Value) -> dict[Stored, Test]:
    """Which numbers stand in this order to the bound, by how they are stored."""
    by_code = partial(_ordered_codes, names.values.names, ORDERS[symbol], bound)
    if isinstance(bound, str):
        return {Stored.STRING: by_code}
    return {Stored.NUMBER: OrderTest(*_float_order(symbol, bound)), Stored.INTEGER: by_code}


def _ordered_codes(
    names: Sequence[str | int], order: Callable[[Any, Any], bool], bound: Value, codes: Numbers
) -> Mask:
    return np.array([order(names[code], bound) for code in codes.astype(np.int64).tolist()], dtype=np.bool_)


def _float_order(symbol: str, bound: float) -> tuple[Callable[[Any, Any], Any], np.float64]:
    """An order to a float64, which holds for the same float64s as the order to ``bound``."""
    nearest = float(bound)
    if nearest == bound:
        return ORDERS[symbol], np.float64(nearest)
    # No float64 lies between the two, and none equals the bound: what remains is the side of the nearest.
    below = symbol in {"$lt", "$lte"}
    inclusive = (nearest < bound) == below
    return ORDERS[("$lt" if below else "$gt") + ("e" if inclusive else "")], np.float64(nearest)
