"""Files of arms: how each kind is read, some rows at a time, and written.

    ending             columns
    .ndjson, .jsonl    id, features (a list), tags (a list), metadata (an object)
    .csv               id, x0 .. x<d-1>, tags and metadata (JSON texts)
    .parquet           id, features (a list of floats), tags (a list of strings), metadata (JSON texts)
    .npy               features, a matrix; the ids are lines of the file of the same name that ends with .ids

``tags`` and ``metadata`` may be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from app.files.arm_readers import read_csv, read_ndjson, read_npy, read_parquet
from app.files.arm_rows import ArmRows, FileError
from app.files.arm_writers import ArmWriter, CsvWriter, NdjsonWriter, NpyWriter, ParquetWriter


@dataclass(frozen=True, slots=True)
class Kind:
    """How files of one ending are read and written."""

    read: Callable[[Path, int], Iterator[ArmRows]]
    writer: Callable[[Path, int], ArmWriter]


KINDS: Mapping[str, Kind] = {
    ".ndjson": Kind(read_ndjson, NdjsonWriter),
    ".jsonl": Kind(read_ndjson, NdjsonWriter),
    ".csv": Kind(read_csv, CsvWriter),
    ".parquet": Kind(read_parquet, ParquetWriter),
    ".npy": Kind(read_npy, NpyWriter),
}


def kind_of(path: Path) -> Kind:
    """How a file of this name is read and written. Raises FileError."""
    try:
        return KINDS[path.suffix.lower()]
    except KeyError:
        raise FileError(f"{path}: the name must end with {', '.join(KINDS)}") from None
