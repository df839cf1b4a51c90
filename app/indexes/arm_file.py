"""Arm files: the arms of a catalogue at one moment, mapped by several processes.

A folder has one file for each array, and a header that is written last. The files have room for more rows, as
a table does: what a process appends there is its own. All of it is verified before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from app.filters.mapped_strings import MappedStrings
from app.indexes.arm_ids import ArmIds
from app.indexes.mapped_file import Array, created, digest_of, mapped, write, write_all
from app.indexes.table import ALIVE, ArmColumns, ArmTable, TableSnapshot, is_dimension_major, laid_out
from shortlist.types import Rows

HEADER = "header"
STRINGS = ("text", "ends", "hashes", "numbers")
FILES = (*STRINGS, "norms", "revisions", "features", "working", HEADER)
_FORMAT = 1
_CHUNK = 8_192
_LINE, _LEAST_ROOM = 16, 64
_ROOM = 2.0  # times the rows: it takes neither memory nor disk before it is used
_FLOAT32 = np.dtype(np.float32)


class ArmHeader(msgspec.Struct, frozen=True):
    """What is in a folder. ``text_bytes``: of the ids. ``digest``: of the other fields and all arrays."""

    format: int
    dim: int
    rows: int
    capacity: int
    text_bytes: int
    largest_norm: float
    digest: str


def write_arms(folder: Path, table: TableSnapshot, *, check: Callable[[], None]) -> None:
    """Write the live rows of ``table``, in their order, into an empty folder. Raises OSError.

    Cost: 12 d + 50 bytes a row.
    """
    kept = table.live_rows
    rows, capacity = len(kept), _capacity(len(kept))
    ids = table.ids.strings_of(kept)
    for name in STRINGS:
        check()
        write(folder / name, getattr(ids, name))
    write(folder / "norms", table.norms[kept], length=8 * capacity)
    write(folder / "revisions", table.revisions[kept], length=8 * capacity)
    _write_features(folder, table, kept, capacity, check)
    header = ArmHeader(_FORMAT, table.dim, rows, capacity, len(ids.text), table.largest_norm, "")
    header = msgspec.structs.replace(header, digest=_digest(header, *_arrays(folder, header)))
    write(folder / HEADER, np.frombuffer(msgspec.json.encode(header), dtype=np.uint8))


def read_arms(folder: Path) -> ArmTable:
    """The table in a folder, whose arrays are mapped. Raises OSError, ValueError (it was changed)."""
    try:
        header = msgspec.json.decode((folder / HEADER).read_bytes(), type=ArmHeader)
    except msgspec.MsgspecError as error:
        raise ValueError(f"the header of {folder.name} is damaged: {error}") from None
    if header.format != _FORMAT:
        raise ValueError(f"{folder.name} has format {header.format}, not {_FORMAT}")
    columns, ids = _arrays(folder, header)
    if _digest(header, columns, ids) != header.digest:
        raise ValueError(f"the checksum of {folder.name} is wrong")
    return ArmTable.mapped(columns, ArmIds(ids), largest_norm=header.largest_norm)


def _capacity(rows: int) -> int:
    """Room for more, in whole cache lines."""
    return -(-int(rows * _ROOM + _LEAST_ROOM) // _LINE) * _LINE


def _write_features(
    folder: Path, table: TableSnapshot, kept: Rows, capacity: int, check: Callable[[], None]
) -> None:
    """The features row by row, and their float32 copy for scans in the layout of a table."""
    parts = [kept[start : start + _CHUNK] for start in range(0, len(kept), _CHUNK)]
    with created(folder / "features") as file:
        for part in parts:
            check()
            write_all(file, table.features[part])
        file.truncate(8 * table.dim * capacity)
    axes: Sequence[int | slice] = range(table.dim) if is_dimension_major(table.dim) else [slice(None)]
    with created(folder / "working") as file, np.errstate(over="ignore"):
        for number, axis in enumerate(axes):
            check()
            file.seek(4 * number * capacity)
            for part in parts:
                write_all(file, table.working[part, axis].astype(_FLOAT32, copy=False))
        file.truncate(4 * table.dim * capacity)


def _arrays(folder: Path, header: ArmHeader) -> tuple[ArmColumns, MappedStrings]:
    """Raises OSError, ValueError (a file has another length)."""

    def array(name: str, dtype: type[Any], numbers: int) -> Array:
        return mapped(folder / name, dtype, numbers)

    rows, capacity, dim = header.rows, header.capacity, header.dim
    ids = MappedStrings(
        text=array("text", np.uint8, header.text_bytes),
        ends=array("ends", np.int64, rows + 1),
        hashes=array("hashes", np.uint64, rows),
        numbers=array("numbers", np.int32, rows),
    )
    columns = ArmColumns(
        features=array("features", np.float64, capacity * dim).reshape(capacity, dim),
        working=laid_out(array("working", np.float32, capacity * dim), capacity, dim),
        norms=array("norms", np.float64, capacity),
        revisions=array("revisions", np.int64, capacity),
        died=np.full(capacity, ALIVE, dtype=np.int64),
    )
    return columns, ids


def _digest(header: ArmHeader, columns: ArmColumns, ids: MappedStrings) -> str:
    """Of what is in use: the rest of a file is not read, so that it takes no memory."""
    fields = msgspec.json.encode(msgspec.structs.replace(header, digest=""))
    rows = header.rows
    working = columns.working[:rows]
    return digest_of(
        fields,
        *(ids.text, ids.ends, ids.hashes, ids.numbers),
        *(columns.features[:rows], columns.norms[:rows], columns.revisions[:rows]),
        *(working.T if is_dimension_major(header.dim) else [working]),
    )
