"""Attributes of consecutive entries, compressed by columns.

Notation
    entry   one document of an arm, see ``attributes``; place: its number in its block
    path    a number for a field and a type of its values, see ``attributes``
    number  stands for a value, as a float64: the value itself, or its code in a dictionary

A column holds the numbers of one path. A path of few numbers has no column: its numbers stand with those of
all other such paths in three arrays. So a block costs memory in proportion to its values, over however many
paths.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, floor
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.floating[Any] | np.integer[Any]]
Mask = NDArray[np.bool_]
Slots = NDArray[np.uint16]
Paths = NDArray[np.uint32]
Test = Callable[[Numbers], Mask]
"""Which of these numbers (m,) fulfil a condition: (m,)."""


# For an integer x, x > b and x <= b hold as with the floor of b; the other two orders as with its ceiling.
_OF_FLOOR = frozenset({operator.gt, operator.le})
_BELOW = frozenset({operator.lt, operator.le})
_COMPARISONS: dict[Callable[[Any, Any], Any], np.ufunc] = {
    operator.lt: np.less,
    operator.le: np.less_equal,
    operator.gt: np.greater,
    operator.ge: np.greater_equal,
}
Rename = Callable[[Paths, NDArray[np.float64]], tuple[Paths, NDArray[np.float64]]]
"""Other paths (m,) and numbers (m,) for what these stand for."""
MAX_ENTRIES = 65_536
_MAX_VALUES = 2**20
# A column of its own costs about this many bytes whatever it holds.
_COLUMN_BYTES = 600
_BLOCK_BYTES = 1_000
_COLUMN_LEAST = 64
# From here on numbers are worth a search for repetitions when columns are merged.
_LARGE = 32_768
_FEW = 256
# A test of the different numbers alone is worth this share of more memory.
_REPEATED = 4
# To search for one of so many places takes as long as to count them all.
_SEARCHED = 16
_INTEGERS = [np.dtype(name) for name in ("uint8", "int8", "uint16", "int16", "uint32", "int32")]
_SIDES: Any = ("left", "right")


@dataclass(frozen=True, slots=True)
class OrderTest:
    """An order to a bound: it holds for numbers which follow one another in ascending order.

    Integers are compared with an integer, ``bound_of_integers``, and not converted.
    """

    order: Callable[[Any, Any], Any]
    bound: np.float64
    bound_of_integers: int = field(init=False)

    def __post_init__(self) -> None:
        bound_of_integers = floor(self.bound) if self.order in _OF_FLOOR else ceil(self.bound)
        # The dataclass is frozen; computed once, since a test is asked of many columns.
        object.__setattr__(self, "bound_of_integers", bound_of_integers)

    def __call__(self, numbers: Numbers, out: Mask | None = None) -> Mask:
        result: Mask = _COMPARISONS[self.order](numbers, self._of(numbers), out=out)
        return result

    def span(self, ascending: Numbers) -> tuple[int, int]:
        """First and last + 1 place of the numbers in this order. Cost: O(log m); O(m) for floats of 32
        bits.
        """
        order, bound, size = self.order, self._of(ascending), len(ascending)
        side: Literal["left", "right"] = "right" if order in _OF_FLOOR else "left"
        if not size or bound < ascending.item(0):
            position = 0
        elif bound > ascending.item(-1):
            position = size
        else:  # an integer fits the type of the numbers; a bound of another type would make a copy of them
            exact = ascending.dtype.type(bound) if are_integers(ascending) else bound
            position = int(ascending.searchsorted(exact, side))
        return (0, position) if order in _BELOW else (position, size)

    def _of(self, numbers: Numbers) -> np.float64 | int:
        return self.bound_of_integers if are_integers(numbers) else self.bound


def are_integers(numbers: Numbers) -> bool:
    """True if the numbers are stored as integers."""
    return numbers.dtype.kind in "iu"


@dataclass(frozen=True, eq=False, slots=True)
class Column:
    """The numbers of one path in ascending order of their places.

    places      (m,) place of each number; None when every place of the block has exactly one
    distinct    (u,) the different numbers in ascending order, or None
    codes       (m,) place of each number in ``distinct``; the numbers themselves when that is None
    """

    places: Slots | None
    distinct: Numbers | None
    codes: Numbers

    @classmethod
    def of(cls, positions: Slots | None, numbers: Numbers) -> Column:
        """The smallest column of these numbers."""
        distinct, codes = np.unique(numbers, return_inverse=True)
        return cls._smallest(positions, distinct, codes, numbers)

    @classmethod
    def _smallest(
        cls, positions: Slots | None, distinct: Numbers, codes: Numbers, numbers: Numbers | None = None
    ) -> Column:
        distinct = _narrowed(distinct)
        width = np.min_scalar_type(max(len(distinct) - 1, 0))
        uncoded_bytes = len(codes) * distinct.itemsize
        has_few = len(distinct) <= max(_FEW, len(codes) // _REPEATED)
        if has_few or len(codes) * width.itemsize + distinct.nbytes < uncoded_bytes:
            return cls(positions, distinct, codes.astype(width))
        return cls(positions, None, (distinct[codes] if numbers is None else numbers).astype(distinct.dtype))

    @classmethod
    def merged(cls, pieces: Sequence[tuple[int, int, Column]], size: int) -> Column:
        """One column of those of several blocks.

        pieces  the first place and the size of each block, and its column
        size    how many places there will be
        """
        columns = [column for _, _, column in pieces]
        dense = all(column.places is None for column in columns) and size == sum(len(c) for c in columns)
        positions = None
        if not dense:
            positions = np.concatenate(
                [
                    np.arange(first, first + count, dtype=np.uint16)
                    if column.places is None
                    else column.places + np.uint16(first)
                    for first, count, column in pieces
                ]
            )
        distinct_values = [column.distinct for column in columns if column.distinct is not None]
        if len(distinct_values) == len(columns):
            distinct = np.unique(np.concatenate(distinct_values))
            codes = [
                np.searchsorted(distinct, have)[column.codes]
                for have, column in zip(distinct_values, columns, strict=True)
            ]
            return cls._smallest(positions, distinct, np.concatenate(codes))
        numbers = np.concatenate([column.numbers for column in columns])
        if len(numbers) < _LARGE:
            return cls(positions, None, _narrowed(numbers))
        return cls.of(positions, numbers)

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def numbers(self) -> Numbers:
        return self.numbers_of(self.codes)

    def numbers_of(self, codes: Numbers) -> Numbers:
        """The numbers of these codes (n,) of the column."""
        return codes if self.distinct is None else self.distinct[codes]

    @property
    def to_test(self) -> int:
        """The number of numbers given to a test."""
        return len(self.codes) if self.distinct is None else len(self.distinct)

    @property
    def memory_bytes(self) -> int:
        arrays = (self.places, self.distinct, self.codes)
        return _COLUMN_BYTES + sum(array.nbytes for array in arrays if array is not None)

    def test(self, test: Test, out: Mask) -> None:
        """Write to ``out`` (m,) which of the numbers fulfil the test."""
        if isinstance(test, OrderTest):
            if self.distinct is None:
                test(self.codes, out)
            else:
                _between(self.codes, *test.span(self.distinct), len(self.distinct), out)
        elif self.distinct is None:
            out[:] = test(self.codes)
        else:
            _chosen(test(self.distinct), self.codes, out)

    def gathered(self, positions: Slots, size: int) -> tuple[NDArray[np.int64], Numbers]:
        """The codes at these places, and for each code the index of its place. ``size``: of the block.

        Shapes: places (n,), any below ``size`` -> (v,), (v,). Cost: O(n log m + v) or O(size + v).
        """
        if self.places is None:
            return np.arange(len(positions)), self.codes[positions]
        if len(positions) * _SEARCHED < size:
            starts, ends = (self.places.searchsorted(positions, side) for side in _SIDES)
        else:
            counts = np.bincount(self.places, minlength=size)
            ends = counts.cumsum()
            starts, ends = (ends - counts)[positions], ends[positions]
        which, code_positions = spread(starts, ends)
        return which, self.codes[code_positions]


def spread(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers from each start to before its end, and which of the pairs each is of.

    Shapes: (n,), (n,) -> which (v,), numbers (v,).
    """
    counts = ends - starts
    which = np.repeat(np.arange(len(counts)), counts)
    return which, np.arange(len(which)) + (starts - counts.cumsum() + counts)[which]


def _narrowed(numbers: Numbers) -> Numbers:
    """The same numbers in the smallest type that holds them all."""
    if not len(numbers):
        return numbers.astype(np.uint8)
    low, high = float(numbers.min()), float(numbers.max())
    if low >= -(2**31) and high < 2**32 and bool((numbers == np.floor(numbers)).all()):
        for dtype in _INTEGERS:
            if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
                return numbers.astype(dtype, copy=False)
    with np.errstate(over="ignore"):
        single = numbers.astype(np.float32)
    return single if bool((single == numbers).all()) else numbers.astype(np.float64, copy=False)


def _chosen(wanted: Mask, codes: Numbers, out: Mask) -> None:
    """Write ``wanted[codes]``, by comparisons where the wanted codes follow one another."""
    count = int(np.count_nonzero(wanted))
    low, high = int(wanted.argmax()), len(wanted) - int(wanted[::-1].argmax())
    if count and high - low > count:
        np.take(wanted, codes.astype(np.intp), out=out, mode="clip")  # twice as fast as wanted[codes]
    else:
        _between(codes, low, high if count else low, len(wanted), out)


def _between(codes: Numbers, low: int, high: int, count: int, out: Mask) -> None:
    """Write which codes, which are below ``count``, are ``low`` to ``high`` - 1."""
    if low >= high or high - low == count:
        out.fill(high > low)
    elif low == high - 1:
        np.equal(codes, low, out=out)
    elif low == 0:
        np.less(codes, high, out=out)
    else:
        np.greater_equal(codes, low, out=out)
        if high < count:
            out &= codes < high


@dataclass(frozen=True, eq=False)
class ColumnBlock:
    """The attributes of ``size`` consecutive entries.

    columns                 by path
    paths, places, numbers  (m,) what has no column, in ascending order of paths and then places
    """

    size: int
    columns: dict[int, Column]
    paths: Paths
    places: Slots
    numbers: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        size: int,
        paths: Paths,
        positions: Slots,
        numbers: NDArray[np.float64],
        columns: Mapping[int, Column] = MappingProxyType({}),
    ) -> ColumnBlock:
        """A block of numbers (m,), their paths, and their places, which ascend within a path.

        ``columns``: what it has besides, of other paths.
        """
        columns = dict(columns)
        order = np.argsort(paths, kind="stable")
        paths, positions, numbers = paths[order], positions[order], numbers[order]
        starts = np.flatnonzero(np.diff(paths, prepend=paths[:1] + np.uint32(1)))
        ends = np.append(starts[1:], len(paths))
        is_loose = np.ones(len(paths), dtype=np.bool_)
        for run in np.flatnonzero(ends - starts >= _COLUMN_LEAST).tolist():
            part = slice(starts[run], ends[run])
            dense = ends[run] - starts[run] == size and bool((positions[part] == np.arange(size)).all())
            columns[int(paths[starts[run]])] = Column.of(
                None if dense else positions[part].copy(), numbers[part]
            )
            is_loose[part] = False
        return cls(size, columns, paths[is_loose], positions[is_loose], numbers[is_loose])

    @classmethod
    def merged(cls, blocks: Sequence[ColumnBlock]) -> ColumnBlock:
        """One block of the entries of several. Cost: that of reading their values, and O(columns) steps."""
        firsts = np.cumsum([0, *(block.size for block in blocks)]).tolist()
        size = firsts.pop()
        columns = {}
        for path in dict.fromkeys(path for block in blocks for path in block.columns):
            result = (
                (first, block.size, block.column(path)) for first, block in zip(firsts, blocks, strict=True)
            )
            columns[path] = Column.merged([piece for piece in result if len(piece[2])], size)
        merged_paths = np.array(sorted(columns), dtype=np.uint32)
        rests = [~is_among(block.paths, merged_paths) for block in blocks]
        parts = [
            (block.paths[loose], block.places[loose] + np.uint16(first), block.numbers[loose])
            for first, block, loose in zip(firsts, blocks, rests, strict=True)
        ]
        paths, positions, numbers = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return cls.of(size, paths, positions, numbers, columns)

    def column(self, path: int) -> Column:
        """The column of a path, empty for one that is not in the block."""
        column = self.columns.get(path)
        if column is not None:
            return column
        # A bound of another type would make the search copy the array.
        first, last = (self.paths.searchsorted(np.uint32(path), side) for side in _SIDES)
        return Column(self.places[first:last], None, self.numbers[first:last])

    @cached_property
    def values(self) -> int:
        """The number of numbers in the block."""
        return len(self.numbers) + sum(len(column) for column in self.columns.values())

    @cached_property
    def memory_bytes(self) -> int:
        arrays = self.paths.nbytes + self.places.nbytes + self.numbers.nbytes
        return _BLOCK_BYTES + arrays + sum(column.memory_bytes for column in self.columns.values())

    def find_column(self, path: int) -> Column | None:
        """The column of a path; None: no entry has a number of it."""
        column = self.columns.get(path)
        if column is None and len(self.paths):
            column = self.column(path)
            return column if len(column) else None
        return column

    def test(self, column: Column, test: Test | None, out: Mask) -> None:
        """Write to ``out`` (size,) which entries have a number of a column that fulfils the test, if any."""
        positions = column.places
        if positions is None:
            if test is None:
                out.fill(True)
            else:
                column.test(test, out)
            return
        if test is not None:
            result = np.empty(len(positions), dtype=np.bool_)
            column.test(test, result)
            positions = positions[result]
        out.fill(False)
        out[positions] = True

    def renumbered(self, stays: Mask, rename: Rename) -> ColumnBlock:
        """A block of the kept entries alone, under other paths and numbers.

        Shapes: kept (size,), at least one of them. Cost: as that of making it.
        """
        stay = stays[self.places]
        parts = [(self.paths[stay], self.places[stay], self.numbers[stay])]
        for path, column in self.columns.items():
            positions = np.arange(self.size, dtype=np.uint16) if column.places is None else column.places
            stay = stays[positions]
            numbers = column.numbers_of(column.codes[stay]).astype(np.float64)
            parts.append((np.full(len(numbers), path, np.uint32), positions[stay], numbers))
        paths, positions, of_all = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        place_of = (np.cumsum(stays) - 1).astype(np.uint16)
        paths, of_all = rename(paths, of_all)
        return ColumnBlock.of(int(np.count_nonzero(stays)), paths, place_of[positions], of_all)


def is_among(values: NDArray[Any], ascending: NDArray[Any]) -> Mask:
    """A mask of the values found in ``ascending``."""
    if not len(ascending):
        return np.zeros(len(values), dtype=np.bool_)
    nearest = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    result: Mask = ascending[nearest] == values
    return result


def pushed(blocks: Sequence[ColumnBlock], block: ColumnBlock) -> list[ColumnBlock]:
    """The blocks and one more after them, some of the last merged.

    Of two neighbours that may be one block, the first has at least twice as many entries as the second. So
    each entry is merged O(log MAX_ENTRIES) times, and there are O(entries / MAX_ENTRIES + log MAX_ENTRIES)
    blocks; more only where the values of an entry are many.
    """
    count = len(blocks)
    size, values = block.size, block.values
    while count:
        before = blocks[count - 1]
        if (
            before.size >= 2 * size
            or before.size + size > MAX_ENTRIES
            or before.values + values > _MAX_VALUES
        ):
            break
        size, values, count = size + before.size, values + before.values, count - 1
    return [*blocks[:count], ColumnBlock.merged([*blocks[count:], block]) if count < len(blocks) else block]
