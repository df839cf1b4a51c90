"""Exported logs, read a piece at a time: NDJSON, or Parquet with the extra ``parquet``. And files of arms."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from app.files.arm_files import kind_of
from app.files.arm_readers import opened
from app.files.arm_rows import ArmRows, FileError, check, wrong
from app.files.parquet import arrow
from app.progress import meter
from app.services.decision_log.rows import Row

BLOCK_BYTES = 1 << 20
BATCH_ROWS = 1_000
COLUMNS = tuple(field.encode_name for field in msgspec.structs.fields(Row))


class _Features(msgspec.Struct):
    features: list[float]


def rows_of(path: Path, desc: str) -> Iterator[Sequence[Row]]:
    """The decisions of an exported log, in pieces, with a bar that says ``desc``. Raises FileError."""
    if path.suffix.lower() not in _READERS:
        raise FileError(f"{path}: the name must end with {', '.join(_READERS)}")
    yield from _READERS[path.suffix.lower()](path, desc)


def arms_of(path: Path) -> Iterator[ArmRows]:
    """The arms of a file of any kind that ``shortlist export catalogue`` writes. Raises FileError."""
    dim = dim_of(path)
    for rows in kind_of(path).read(path, dim):
        check(path, rows, dim)
        yield rows


def dim_of(path: Path) -> int:
    """How many features the first arm of a file has. Raises FileError."""
    kind_of(path)
    try:
        found = _DIMS[path.suffix.lower()](path)
    except (OSError, ValueError, msgspec.DecodeError, UnicodeDecodeError):
        wrong(path, None, None, "cannot be read, or has no features")
    if not found:
        wrong(path, None, None, "there are no arms in it")
    return found


def _ndjson_dim(path: Path) -> int:
    with path.open("rb") as file:
        first = next((line for line in file if line.strip()), None)
    return 0 if first is None else len(msgspec.json.decode(first, type=_Features).features)


def _csv_dim(path: Path) -> int:
    with opened(path) as file:
        head = next(csv.reader(file), [])
    return sum(name.startswith("x") and name[1:].isdigit() for name in head)


def _npy_dim(path: Path) -> int:
    matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    return int(matrix.shape[1]) if matrix.ndim == 2 and len(matrix) else 0


def _parquet_dim(path: Path) -> int:
    _, pq = arrow()
    with pq.ParquetFile(path) as file:
        if "features" not in file.schema_arrow.names:
            wrong(path, None, None, "has no column features")
        for batch in file.iter_batches(1, columns=["features"]):
            return len(batch.column(0)[0].as_py() or ())
    return 0


_DIMS: Mapping[str, Callable[[Path], int]] = {
    ".ndjson": _ndjson_dim,
    ".jsonl": _ndjson_dim,
    ".csv": _csv_dim,
    ".npy": _npy_dim,
    ".parquet": _parquet_dim,
}


def _ndjson(path: Path, desc: str) -> Iterator[Sequence[Row]]:
    decode = msgspec.json.Decoder(Row).decode
    number, rest = 0, b""
    with opened(path, "rb") as file, meter(desc, path.stat().st_size, "bytes") as advance:
        while block := file.read(BLOCK_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            yield [_decoded(decode, line, path, number + place) for place, line in _numbered(lines)]
            number += len(lines)
            advance(len(block))
    yield [_decoded(decode, line, path, number + place) for place, line in _numbered([rest])]


def _numbered(lines: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    return ((place, line) for place, line in enumerate(lines, start=1) if line.strip())


def _decoded(decode: Callable[[bytes], Row], line: bytes, path: Path, number: int) -> Row:
    try:
        return decode(line)
    except msgspec.ValidationError as error:
        wrong(path, number, None, str(error))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        wrong(path, number, None, "is not JSON")


def _parquet(path: Path, desc: str) -> Iterator[Sequence[Row]]:
    pa, pq = arrow()
    try:
        with pq.ParquetFile(path) as file, meter(desc, file.metadata.num_rows, "rows") as advance:
            names = file.schema_arrow.names
            missing = next((name for name in COLUMNS if name not in names), None)
            if missing is not None:
                wrong(path, None, None, f"has no column {missing}")
            first = 1
            for batch in file.iter_batches(BATCH_ROWS, columns=list(COLUMNS)):
                yield _rows(path, batch, first)
                first += batch.num_rows
                advance(batch.num_rows)
    except OSError as error:
        wrong(path, None, None, error.strerror or "is not a Parquet file")
    except pa.ArrowInvalid:
        wrong(path, None, None, "is not a Parquet file")


def _rows(path: Path, batch: Any, first: int) -> Sequence[Row]:
    columns = {name: batch.column(name).to_pylist() for name in COLUMNS}
    rows = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
    return [_converted(path, row, first + place) for place, row in enumerate(rows)]


def _converted(path: Path, row: dict[str, Any], number: int) -> Row:
    """A row of Parquet, where a filter is JSON text."""
    try:
        if row["filter"] is not None:
            row["filter"] = json.loads(row["filter"])
        return msgspec.convert(row, Row)
    except msgspec.ValidationError as error:
        wrong(path, number, None, str(error))
    except (TypeError, ValueError):
        wrong(path, number, "filter", "is not JSON")


_READERS: Mapping[str, Callable[[Path, str], Iterator[Sequence[Row]]]] = {
    ".ndjson": _ndjson,
    ".jsonl": _ndjson,
    ".parquet": _parquet,
}
