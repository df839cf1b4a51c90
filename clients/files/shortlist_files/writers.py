"""Rows into files: arms and learners, as ``docs/files.md`` says of each ending."""

from __future__ import annotations

import base64
import csv
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from shortlist_client.answers import Arm, LearnerCopy
from shortlist_files.arm_rows import FileError
from shortlist_files.opening import arrow

LEARNER_COLUMNS = ("key", "version", "observations", "state", "prior_version")


class Writer(ABC):
    """Writes rows into a file of one kind. ``dim``: numbers of each arm; 0: the rows are learners."""

    @abstractmethod
    def __init__(self, path: Path, dim: int) -> None: ...

    @abstractmethod
    def write(self, rows: Sequence[Arm] | Sequence[LearnerCopy]) -> None:
        """Append rows as the service gives them."""

    @abstractmethod
    def close(self) -> None:
        """All is written."""


class NdjsonWriter(Writer):
    def __init__(self, path: Path, dim: int) -> None:  # noqa: ARG002
        self._file = path.open("wb")

    def write(self, rows: Sequence[Arm] | Sequence[LearnerCopy]) -> None:
        self._file.writelines(msgspec.json.encode(row) + b"\n" for row in rows)

    def close(self) -> None:
        self._file.close()


class CsvWriter(Writer):
    def __init__(self, path: Path, dim: int) -> None:
        self._file = path.open("w", encoding="utf-8", newline="")
        self._table = csv.writer(self._file, lineterminator="\n")
        numbers = (f"x{number}" for number in range(dim))
        self._table.writerow(["id", *numbers, "tags", "metadata"] if dim else LEARNER_COLUMNS)

    def write(self, rows: Sequence[Arm] | Sequence[LearnerCopy]) -> None:
        for row in rows:
            if isinstance(row, Arm):
                self._table.writerow([row.id, *row.features, _json(row.tags), _json(row.metadata)])
            else:
                self._table.writerow([getattr(row, name) for name in LEARNER_COLUMNS])

    def close(self) -> None:
        self._file.close()


class ParquetWriter(Writer):
    def __init__(self, path: Path, dim: int) -> None:
        self._pa, pq = arrow()
        pa, text = self._pa, self._pa.string()
        arm = {"id": text, "features": pa.list_(pa.float64(), dim), "tags": pa.list_(text), "metadata": text}
        kinds = (text, pa.int64(), pa.int64(), pa.binary(), pa.int64())
        learner = dict(zip(LEARNER_COLUMNS, kinds, strict=True))
        self._schema = pa.schema(arm if dim else learner)
        self._file = pq.ParquetWriter(path, self._schema)

    def write(self, rows: Sequence[Arm] | Sequence[LearnerCopy]) -> None:
        table = self._pa.Table.from_pylist([_parquet_row(row) for row in rows], schema=self._schema)
        self._file.write_table(table)

    def close(self) -> None:
        self._file.close()


class NpyWriter(Writer):
    """Ids and features alone. ``bare`` counts the arms that have tags or metadata, which are left out."""

    def __init__(self, path: Path, dim: int) -> None:
        self._file = path.open("wb")
        self._ids = ids_path_of_part(path).open("w", encoding="utf-8")
        self._dim = dim
        self._count = self.bare = 0
        self._head()

    def write(self, rows: Sequence[Arm] | Sequence[LearnerCopy]) -> None:
        arms = [row for row in rows if isinstance(row, Arm)]
        self._file.write(np.array([arm.features for arm in arms], dtype="<f8").tobytes())
        self._ids.writelines(arm.id + "\n" for arm in arms)
        self._count += len(arms)
        self.bare += sum(1 for arm in arms if arm.tags or arm.metadata)

    def close(self) -> None:
        self._file.seek(0)
        self._head()
        self._file.close()
        self._ids.close()

    def _head(self) -> None:
        """Numpy leaves room in it for a number of rows that is not known yet."""
        shape = {"descr": "<f8", "fortran_order": False, "shape": (self._count, self._dim)}
        np.lib.format.write_array_header_1_0(self._file, shape)


WRITERS: Mapping[str, type[Writer]] = {
    ".ndjson": NdjsonWriter, ".jsonl": NdjsonWriter, ".csv": CsvWriter, ".parquet": ParquetWriter,
    ".npy": NpyWriter,
}  # fmt: skip


def arm_writer_of(path: Path) -> type[Writer]:
    """What writes arms into a file of this name. Raises FileError."""
    try:
        return WRITERS[path.suffix.lower()]
    except KeyError:
        raise FileError(f"{path}: the name must end with {', '.join(WRITERS)}") from None


def writer_of(path: Path) -> Callable[[Path], Writer]:
    """What writes learners into a file of this name. Raises FileError."""
    kind = WRITERS.get(path.suffix.lower(), NpyWriter)
    if kind is NpyWriter:
        raise FileError(f"{path}: learners are kept in {', '.join(list(WRITERS)[:-1])}")
    return partial(kind, dim=0)


def ids_path_of_part(path: Path) -> Path:
    """Where the ids are of a matrix that is being written."""
    return path.with_name(path.name + ".ids")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if value else ""


def _parquet_row(row: Arm | LearnerCopy) -> dict[str, Any]:
    if isinstance(row, Arm):
        return {"id": row.id, "features": row.features, "tags": row.tags, "metadata": _json(row.metadata)}
    return {**asdict(row), "state": base64.b64decode(row.state or "")}
