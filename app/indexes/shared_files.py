"""Mapped files of several processes: the arms of a catalogue at one moment, and their attributes.

A folder has a file for each growing array, and files of all else (``write_packed``), whose headers are
written last and hold checksums: all is verified before use. Growing arrays have room for more rows, as a
table does. Appended rows are the process's own (copy on write), so a process goes on writing into its mapped
arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.filters.attribute_snapshot import AttributeSnapshot
from app.filters.attributes import AttributeTable
from app.filters.columns import ColumnBlock
from app.filters.field_numbers import Names, Numbering
from shortlist.index.arm_ids import ArmIds
from shortlist.index.arrays import MappedStrings
from shortlist.index.shared_format import (
    Array,
    created,
    digest_of,
    mapped,
    packed_names,
    read_packed,
    write,
    write_all,
    write_packed,
)
from shortlist.index.table import ALIVE, ArmColumns, ArmTable, TableSnapshot, is_dimension_major, laid_out
from shortlist.types import Rows

_ARM_NAME, _ARM_FORMAT = "arms", 3
ARM_FILES = ("norms", "revisions", "came", "features", "working", *packed_names(_ARM_NAME))
_CHUNK = 8_192
_LINE, _LEAST_ROOM = 16, 64
_ROOM = 2.0  # times the rows: it takes neither memory nor disk before it is used
_FLOAT32 = np.dtype(np.float32)
_COLUMN_NAME, _COLUMN_FORMAT = "columns", 2


class Arms(msgspec.Struct, frozen=True):
    """The content of a folder. ``digest``: of the arrays with files of their own."""

    dim: int
    rows: int
    capacity: int
    largest_norm: float
    ids: MappedStrings
    digest: str


def write_arms(folder: Path, table: TableSnapshot, *, check: Callable[[], None]) -> None:
    """Write the live rows of ``table``, in their order, into an empty folder. Raises OSError.

    Cost: 12 d + 58 bytes a row.
    """
    live_rows = table.live_rows
    rows = len(live_rows)
    # Room for more, in whole cache lines.
    capacity = -(-int(rows * _ROOM + _LEAST_ROOM) // _LINE) * _LINE
    write(folder / "norms", table.norms[live_rows], length=8 * capacity)
    write(folder / "revisions", table.revisions[live_rows], length=8 * capacity)
    write(folder / "came", table.came[live_rows], length=8 * capacity)
    _write_features(folder, table, live_rows, capacity, check)
    arms = Arms(table.dim, rows, capacity, table.largest_norm, table.ids.strings_of(live_rows), "")
    arms = msgspec.structs.replace(arms, digest=_digest(arms, _columns(folder, arms)))
    write_packed(folder, _ARM_NAME, arms, number=_ARM_FORMAT, check=check)


def read_arms(folder: Path) -> ArmTable:
    """The table in a folder, whose arrays are mapped. Raises OSError, ValueError (a changed file)."""
    arms, _ = read_packed(folder, _ARM_NAME, Arms, number=_ARM_FORMAT)
    columns = _columns(folder, arms)
    if _digest(arms, columns) != arms.digest:
        raise ValueError(f"the checksum of {folder.name} is wrong")
    return ArmTable.mapped(columns, ArmIds(arms.ids), largest_norm=arms.largest_norm)


def _write_features(
    folder: Path, table: TableSnapshot, live_rows: Rows, capacity: int, check: Callable[[], None]
) -> None:
    """The features row by row, and their float32 copy for scans in the layout of a table."""
    parts = [live_rows[start : start + _CHUNK] for start in range(0, len(live_rows), _CHUNK)]
    with created(folder / "features") as file:
        for part in parts:
            check()
            write_all(file, table.features[part])
        # Longer than its content: the room is a hole in the file, and takes no disk.
        file.truncate(8 * table.dim * capacity)
    axes: Sequence[int | slice] = range(table.dim) if is_dimension_major(table.dim) else [slice(None)]
    with created(folder / "working") as file, np.errstate(over="ignore"):
        for number, axis in enumerate(axes):
            check()
            file.seek(4 * number * capacity)
            for part in parts:
                write_all(file, table.working[part, axis].astype(_FLOAT32, copy=False))
        file.truncate(4 * table.dim * capacity)


def _columns(folder: Path, arms: Arms) -> ArmColumns:
    """Raises OSError, ValueError (a file has another length)."""

    def array(name: str, dtype: type[Any], numbers: int) -> Array:
        return mapped(folder / name, dtype, numbers)

    capacity, dim = arms.capacity, arms.dim
    return ArmColumns(
        features=array("features", np.float64, capacity * dim).reshape(capacity, dim),
        working=laid_out(array("working", np.float32, capacity * dim), capacity, dim),
        norms=array("norms", np.float64, capacity),
        revisions=array("revisions", np.int64, capacity),
        came=array("came", np.int64, capacity),
        # Not in the files: each process counts its own deaths.
        died=np.full(capacity, ALIVE, dtype=np.int64),
    )


def _digest(arms: Arms, columns: ArmColumns) -> str:
    """Digest of the rows in use: the rest of a file is not read, and so takes no memory."""
    rows = arms.rows
    working = columns.working[:rows]
    return digest_of(
        *(columns.features[:rows], columns.norms[:rows], columns.revisions[:rows], columns.came[:rows]),
        *(working.T if is_dimension_major(arms.dim) else [working]),
    )


class Attributes(msgspec.Struct, frozen=True):
    """``rows``: of the entries of ``blocks``. ``fields``, ``values``: the ``Names``."""

    rows: NDArray[np.int32]
    fields: MappedStrings
    values: MappedStrings
    blocks: list[ColumnBlock]


def write_columns(
    folder: Path, attributes: AttributeSnapshot, position: Rows, *, check: Callable[[], None]
) -> None:
    """Write the last entry of every row r with ``position[r]`` >= 0, as the entry of row ``position[r]``.

    Raises OSError. Cost: a read of all, and a renumbering of the blocks with other entries.
    """
    rows, blocks = attributes.latest_of(position, check)
    names = attributes.names
    contents = Attributes(rows, names.fields.strings(), names.values.strings(), blocks)
    write_packed(folder, _COLUMN_NAME, contents, number=_COLUMN_FORMAT, check=check)


def read_columns(folder: Path) -> AttributeTable:
    """The attributes in a folder, whose arrays are mapped. Raises OSError, ValueError (they were changed)."""
    stored, _ = read_packed(folder, _COLUMN_NAME, Attributes, number=_COLUMN_FORMAT)
    names = Names(Numbering(stored.fields), Numbering(stored.values))
    return AttributeTable.of(names, stored.blocks, stored.rows)
