"""Arm files: the arms of a catalogue at one moment, mapped by several processes.

A folder has one file for each array, and a header that is written last. Each process maps them for itself:
what it reads is in memory once for all of them, and what it writes is its own (copy on write). The files are
longer than what is in them, by the room that a table keeps for more rows; that part takes no space on disk.

A folder is never changed once its header is there, and is for the owner's eyes only. All of it is verified
before it is used.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.indexes.arm_ids import ArmIds, MappedIds
from app.indexes.table import (
    ALIVE,
    SPARE,
    ArmColumns,
    ArmTable,
    TableSnapshot,
    is_dimension_major,
    laid_out,
)
from shortlist.types import Rows

HEADER = "header"
FILES = ("text", "ends", "hashes", "rows", "norms", "revisions", "features", "working", HEADER)
_FORMAT = 1
_CHUNK = 8_192
_LINE, _LEAST_ROOM = 16, 64
_FLOAT32 = np.dtype(np.float32)
_Array = NDArray[Any]


class ArmHeader(msgspec.Struct, frozen=True):
    """What is in a folder. ``text_bytes``: of the ids. ``digest``: of the other fields and all arrays."""

    format: int
    dim: int
    rows: int
    capacity: int
    text_bytes: int
    largest_norm: float
    digest: str


def write(folder: Path, table: TableSnapshot, *, check: Callable[[], None]) -> None:
    """Write the live rows of ``table``, oldest revision first, into an empty folder. Raises OSError.

    Cost: 12 d + 50 bytes a row.
    """
    kept, revisions = table.by_revision
    rows, capacity = len(kept), _capacity(len(kept))
    ids = MappedIds.of((table.ids[row] for row in kept.tolist()), rows)
    for name in FILES[:4]:
        check()
        _write(folder / name, getattr(ids, name))
    _write(folder / "norms", table.norms[kept], length=8 * capacity)
    _write(folder / "revisions", revisions, length=8 * capacity)
    _write_features(folder, table, kept, capacity, check)
    header = ArmHeader(_FORMAT, table.dim, rows, capacity, len(ids.text), table.largest_norm, "")
    header = msgspec.structs.replace(header, digest=_digest(header, *_arrays(folder, header)))
    _write(folder / HEADER, np.frombuffer(msgspec.json.encode(header), dtype=np.uint8))


def read(folder: Path) -> ArmTable:
    """The table in a folder: its features are mapped. Raises OSError, ValueError (it was changed)."""
    try:
        header = msgspec.json.decode((folder / HEADER).read_bytes(), type=ArmHeader)
    except msgspec.MsgspecError as error:
        raise ValueError(f"the header of {folder.name} is damaged: {error}") from None
    if header.format != _FORMAT:
        raise ValueError(f"{folder.name} has format {header.format}, not {_FORMAT}")
    columns, ids = _arrays(folder, header)
    if _digest(header, columns, ids) != header.digest:
        raise ValueError(f"the checksum of {folder.name} is wrong")
    revisions = columns.revisions[: header.rows]
    if (revisions[1:] <= revisions[:-1]).any():
        raise ValueError(f"the revisions of {folder.name} do not ascend")
    return ArmTable.mapped(columns, ArmIds(ids), largest_norm=header.largest_norm)


def _capacity(rows: int) -> int:
    """Room for more, in whole cache lines."""
    return -(-int(rows * SPARE + _LEAST_ROOM) // _LINE) * _LINE


def _write(path: Path, array: _Array, *, length: int = 0) -> None:
    with _created(path) as file:
        _write_all(file, array)
        file.truncate(max(length, array.nbytes))


def _created(path: Path) -> FileIO:
    """A new file for the owner's eyes only."""
    return FileIO(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))


def _write_all(file: FileIO, array: _Array) -> None:
    """A file may take less than it is given, as on a disk that is nearly full."""
    left = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    while left.size:
        left = left[file.write(left.data) :]


def _write_features(
    folder: Path, table: TableSnapshot, kept: Rows, capacity: int, check: Callable[[], None]
) -> None:
    """The features row by row, and their float32 copy for scans in the layout of a table."""
    parts = [kept[start : start + _CHUNK] for start in range(0, len(kept), _CHUNK)]
    with _created(folder / "features") as file:
        for part in parts:
            check()
            _write_all(file, table.features[part])
        file.truncate(8 * table.dim * capacity)
    axes: Sequence[int | slice] = range(table.dim) if is_dimension_major(table.dim) else [slice(None)]
    with _created(folder / "working") as file, np.errstate(over="ignore"):
        for number, axis in enumerate(axes):
            check()
            file.seek(4 * number * capacity)
            for part in parts:
                _write_all(file, table.working[part, axis].astype(_FLOAT32, copy=False))
        file.truncate(4 * table.dim * capacity)


def _arrays(folder: Path, header: ArmHeader) -> tuple[ArmColumns, MappedIds]:
    """Raises OSError, ValueError (a file has another length)."""
    rows, capacity, dim = header.rows, header.capacity, header.dim
    ids = MappedIds(
        text=_mapped(folder / "text", np.uint8, header.text_bytes),
        ends=_mapped(folder / "ends", np.int64, rows + 1),
        hashes=_mapped(folder / "hashes", np.uint64, rows),
        rows=_mapped(folder / "rows", np.int32, rows),
    )
    columns = ArmColumns(
        features=_mapped(folder / "features", np.float64, capacity * dim).reshape(capacity, dim),
        working=laid_out(_mapped(folder / "working", np.float32, capacity * dim), capacity, dim),
        norms=_mapped(folder / "norms", np.float64, capacity),
        revisions=_mapped(folder / "revisions", np.int64, capacity),
        died=np.full(capacity, ALIVE, dtype=np.int64),
    )
    return columns, ids


def _mapped(path: Path, dtype: type[Any], numbers: int) -> _Array:
    """The numbers in a file; what is written to them is not written to the file."""
    with path.open("rb") as file:
        length = os.fstat(file.fileno()).st_size
        if length != numbers * np.dtype(dtype).itemsize:
            raise ValueError(f"{path.parent.name}/{path.name} has {length} bytes")
        if not length:
            return np.empty(0, dtype=dtype)
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), dtype=dtype)


def digest_of(*parts: bytes | _Array) -> str:
    """SHA-256, hexadecimal. It takes half of the time of BLAKE2b."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _digest(header: ArmHeader, columns: ArmColumns, ids: MappedIds) -> str:
    """Of what is in use: the rest of a file is not read, so that it takes no memory."""
    fields = msgspec.json.encode(msgspec.structs.replace(header, digest=""))
    rows = header.rows
    working = columns.working[:rows]
    return digest_of(
        fields,
        *(ids.text, ids.ends, ids.hashes, ids.rows),
        *(columns.features[:rows], columns.norms[:rows], columns.revisions[:rows]),
        *(working.T if is_dimension_major(header.dim) else [working]),
    )
