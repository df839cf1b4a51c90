"""Files of arms: how each kind is read, some rows at a time, and written.

    ending             columns
    .ndjson, .jsonl    id, features (a list), tags (a list), metadata (an object)
    .csv               id, x0 .. x<d-1>, tags and metadata (JSON texts)
    .parquet           id, features (a list of floats), tags (a list of strings), metadata (JSON texts)
    .npy               features, a matrix; the ids are lines of the file of the same name that ends with .ids

``tags`` and ``metadata`` may be missing.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from shortlist_files.arm_readers import (
    csv_dim,
    is_csv_export,
    is_ndjson_export,
    is_parquet_export,
    ndjson_dim,
    npy_dim,
    parquet_dim,
    read_csv,
    read_ndjson,
    read_npy,
    read_parquet,
)
from shortlist_files.arm_rows import ArmRows, FileError, check, wrong
from shortlist_files.arm_writers import ArmWriter, CsvWriter, NdjsonWriter, NpyWriter, ParquetWriter


@dataclass(frozen=True, slots=True)
class Kind:
    """How files of one ending are read and written. ``dim``: how many features the first arm has.

    ``has_layout``: whether a file has the columns of an export; tables with others are ``tables``.
    """

    read: Callable[[Path, int], Iterator[ArmRows]]
    dim: Callable[[Path], int]
    has_layout: Callable[[Path], bool]
    writer: Callable[[Path, int], ArmWriter]


KINDS: Mapping[str, Kind] = {
    ".ndjson": Kind(read_ndjson, ndjson_dim, is_ndjson_export, NdjsonWriter),
    ".jsonl": Kind(read_ndjson, ndjson_dim, is_ndjson_export, NdjsonWriter),
    ".csv": Kind(read_csv, csv_dim, is_csv_export, CsvWriter),
    ".parquet": Kind(read_parquet, parquet_dim, is_parquet_export, ParquetWriter),
    ".npy": Kind(read_npy, npy_dim, Path.is_file, NpyWriter),
}


TABLE_ENDINGS = frozenset({".tsv", ".txt", ".tab", ".json", ".pq", ".gz", ".bz2", ".xz"})


def kind_of(path: Path) -> Kind:
    """How a file of this name is read and written. Raises FileError."""
    try:
        return KINDS[path.suffix.lower()]
    except KeyError:
        raise FileError(f"{path}: the name must end with {', '.join(KINDS)}") from None


def dim_of(path: Path) -> int:
    """How many features the first arm of a file has. Raises FileError."""
    kind = kind_of(path)
    try:
        found = kind.dim(path)
    except (OSError, ValueError, RecursionError, msgspec.DecodeError, csv.Error):
        wrong(path, None, None, "cannot be read, or has no features")
    if not found:
        wrong(path, None, None, "there are no arms in it")
    return found


def arms_of(path: Path) -> Iterator[ArmRows]:
    """The arms of a file, checked, some rows at a time. Raises FileError."""
    dim = dim_of(path)
    for rows in kind_of(path).read(path, dim):
        check(path, rows, dim)
        yield rows


def are_exports(files: Sequence[Path]) -> bool:
    """Whether all files have the columns of an export, so far as their beginnings tell."""
    return all(map(_is_export, files))


def _is_export(path: Path) -> bool:
    """What cannot be read at all counts as one: reading it says why."""
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        return path.is_file() and path.suffix.lower() not in TABLE_ENDINGS
    try:
        return (path.is_dir() and not any(path.iterdir())) or kind.has_layout(path)
    except (OSError, ValueError, RecursionError, csv.Error, FileError):
        return not path.is_dir()
