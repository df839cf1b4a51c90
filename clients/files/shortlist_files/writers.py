"""Rows into files: arms and learners, as ``docs/files.md`` says of each ending.

Each function is entered with a path and the number of features of an arm, 0 for learners. It gives a
function that appends rows as the service gives them.
"""

from __future__ import annotations

import base64
import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from shortlist_client.answers import Arm, LearnerCopy
from shortlist_files.arm_rows import FileError
from shortlist_files.opening import arrow

Write = Callable[[Sequence[Any]], object]
LEARNER_COLUMNS = ("key", "version", "observations", "state", "prior_version")


@contextmanager
def ndjson_writer(path: Path, dim: int) -> Iterator[Write]:  # noqa: ARG001
    with path.open("wb") as file:
        yield lambda rows: file.writelines(msgspec.json.encode(row) + b"\n" for row in rows)


@contextmanager
def csv_writer(path: Path, dim: int) -> Iterator[Write]:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        numbers = (f"x{number}" for number in range(dim))
        table.writerow(["id", *numbers, "tags", "metadata"] if dim else LEARNER_COLUMNS)
        yield lambda rows: table.writerows(map(_cells, rows))


def _cells(row: Arm | LearnerCopy) -> list[Any]:
    if isinstance(row, Arm):
        return [row.id, *row.features, _json(row.tags), _json(row.metadata)]
    return [getattr(row, name) for name in LEARNER_COLUMNS]


@contextmanager
def parquet_writer(path: Path, dim: int) -> Iterator[Write]:
    pa, pq = arrow()
    text, number = pa.string(), pa.int64()
    arm = {"id": text, "features": pa.list_(pa.float64(), dim), "tags": pa.list_(text), "metadata": text}
    learner = dict(zip(LEARNER_COLUMNS, (text, number, number, pa.binary(), number), strict=True))
    schema = pa.schema(arm if dim else learner)
    with pq.ParquetWriter(path, schema) as file:
        yield lambda rows: file.write_table(pa.Table.from_pylist([*map(_values, rows)], schema=schema))


def _values(row: Arm | LearnerCopy) -> dict[str, Any]:
    if isinstance(row, Arm):
        return {"id": row.id, "features": row.features, "tags": row.tags, "metadata": _json(row.metadata)}
    return {**asdict(row), "state": base64.b64decode(row.state or "")}


@contextmanager
def npy_writer(path: Path, dim: int) -> Iterator[Write]:
    """Ids and features alone."""
    count = 0

    def head() -> None:
        """Numpy leaves room in it for a number of rows that is not known yet."""
        shape = {"descr": "<f8", "fortran_order": False, "shape": (count, dim)}
        np.lib.format.write_array_header_1_0(file, shape)

    def write(arms: Sequence[Arm]) -> None:
        nonlocal count
        file.write(np.array([arm.features for arm in arms], dtype="<f8").tobytes())
        ids.writelines(arm.id + "\n" for arm in arms)
        count += len(arms)

    with path.open("wb") as file, ids_path_of_part(path).open("w", encoding="utf-8") as ids:
        head()
        yield write
        file.seek(0)
        head()


Writer = Callable[[Path, int], AbstractContextManager[Write]]
WRITERS: Mapping[str, Writer] = {
    ".ndjson": ndjson_writer, ".jsonl": ndjson_writer, ".csv": csv_writer, ".parquet": parquet_writer,
    ".npy": npy_writer,
}  # fmt: skip


def arm_writer_of(path: Path) -> Writer:
    """What writes arms into a file of this name. Raises FileError."""
    try:
        return WRITERS[path.suffix.lower()]
    except KeyError:
        raise FileError(f"{path}: the name must end with {', '.join(WRITERS)}") from None


def writer_of(path: Path) -> Callable[[Path], AbstractContextManager[Write]]:
    """What writes learners into a file of this name. Raises FileError."""
    kind = WRITERS.get(path.suffix.lower(), npy_writer)
    if kind is npy_writer:
        raise FileError(f"{path}: learners are kept in {', '.join(list(WRITERS)[:-1])}")
    return partial(kind, dim=0)  # type: ignore[call-arg]


def ids_path_of_part(path: Path) -> Path:
    """Where the ids are of a matrix that is being written."""
    return path.with_name(path.name + ".ids")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if value else ""
