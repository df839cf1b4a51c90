"""Column files: the tags and metadata of a catalogue's arms at one moment, mapped by several processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from app.filters.attribute_snapshot import AttributeSnapshot
from app.filters.attributes import AttributeTable
from app.filters.columns import Column, ColumnBlock
from app.filters.mapped_strings import MappedStrings
from app.filters.names import Names, Numbering
from app.indexes.mapped_file import Array, ArrayPlace, ArrayWriter, packed_names, read_packed, write_packed
from shortlist.types import Rows

_NAME, _FORMAT = "columns", 1
FILES = packed_names(_NAME)


class ColumnPlaces(msgspec.Struct, frozen=True, array_like=True):
    """Where a ``Column`` is."""

    path: int
    places: ArrayPlace | None
    distinct: ArrayPlace | None
    codes: ArrayPlace


class BlockPlaces(msgspec.Struct, frozen=True, array_like=True):
    """Where a ``ColumnBlock`` is. ``rest``: its paths, places and numbers of what has no column."""

    size: int
    columns: list[ColumnPlaces]
    rest: tuple[ArrayPlace, ArrayPlace, ArrayPlace]


class StringPlaces(msgspec.Struct, frozen=True, array_like=True):
    """Where ``MappedStrings`` are."""

    text: ArrayPlace
    ends: ArrayPlace
    hashes: ArrayPlace
    numbers: ArrayPlace


class Attributes(msgspec.Struct, frozen=True):
    """Where the attributes are. ``rows``: of the entries. ``fields``, ``values``: the ``Names``."""

    rows: ArrayPlace
    fields: StringPlaces
    values: StringPlaces
    blocks: list[BlockPlaces]


def write_columns(
    folder: Path, attributes: AttributeSnapshot, position: Rows, *, check: Callable[[], None]
) -> None:
    """Write the last entry of every row r with ``position[r]`` >= 0, as that of row ``position[r]``.

    Raises OSError. Cost: as that of reading them all, and of renumbering the blocks that have others.
    """
    rows, blocks = attributes.latest_of(position, check)

    def pack(writer: ArrayWriter) -> Attributes:
        return Attributes(
            rows=writer.place(rows),
            fields=_place_names(writer, attributes.names.fields),
            values=_place_names(writer, attributes.names.values),
            blocks=[_place_block(writer, block) for block in blocks],
        )

    write_packed(folder, _NAME, pack, number=_FORMAT, check=check)


def read_columns(folder: Path) -> AttributeTable:
    """The attributes in a folder, whose arrays are mapped. Raises OSError, ValueError (they were changed)."""
    there, data = read_packed(folder, _NAME, Attributes, number=_FORMAT)
    names = Names(_names(data, there.fields), _names(data, there.values))
    return AttributeTable.of(names, [_block(data, each) for each in there.blocks], there.rows.of(data))


def _place_names(writer: ArrayWriter, numbering: Numbering) -> StringPlaces:
    strings = numbering.strings()
    return StringPlaces(
        text=writer.place(strings.text),
        ends=writer.place(strings.ends),
        hashes=writer.place(strings.hashes),
        numbers=writer.place(strings.numbers),
    )


def _place_column(writer: ArrayWriter, path: int, column: Column) -> ColumnPlaces:
    return ColumnPlaces(
        path=path,
        places=None if column.places is None else writer.place(column.places),
        distinct=None if column.distinct is None else writer.place(column.distinct),
        codes=writer.place(column.codes),
    )


def _place_block(writer: ArrayWriter, block: ColumnBlock) -> BlockPlaces:
    columns = [_place_column(writer, *each) for each in block.columns.items()]
    rest = writer.place(block.paths), writer.place(block.places), writer.place(block.numbers)
    return BlockPlaces(block.size, columns, rest)


def _names(data: Array, at: StringPlaces) -> Numbering:
    return Numbering(
        MappedStrings(at.text.of(data), at.ends.of(data), at.hashes.of(data), at.numbers.of(data))
    )


def _block(data: Array, at: BlockPlaces) -> ColumnBlock:
    columns = {
        each.path: Column(
            None if each.places is None else each.places.of(data),
            None if each.distinct is None else each.distinct.of(data),
            each.codes.of(data),
        )
        for each in at.columns
    }
    paths, places, numbers = (each.of(data) for each in at.rest)
    return ColumnBlock(at.size, columns, paths, places, numbers)
