"""Arms into files. The columns of each kind: ``arm_files``."""

from __future__ import annotations

import csv
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from shortlist_client.answers import Arm
from shortlist_files.parquet import arrow


class ArmWriter(ABC):
    """Writes arms into a file of one kind. Shape: features (dim,)."""

    @abstractmethod
    def __init__(self, path: Path, dim: int) -> None: ...

    @abstractmethod
    def write(self, arms: Sequence[Arm]) -> None:
        """Append arms as the service gives them."""

    @abstractmethod
    def close(self) -> None:
        """All is written."""


class NdjsonWriter(ArmWriter):
    def __init__(self, path: Path, dim: int) -> None:  # noqa: ARG002
        self._file = path.open("wb")

    def write(self, arms: Sequence[Arm]) -> None:
        self._file.writelines(msgspec.json.encode(arm) + b"\n" for arm in arms)

    def close(self) -> None:
        self._file.close()


class CsvWriter(ArmWriter):
    def __init__(self, path: Path, dim: int) -> None:
        self._file = path.open("w", encoding="utf-8", newline="")
        self._table = csv.writer(self._file, lineterminator="\n")
        self._table.writerow(["id", *(f"x{number}" for number in range(dim)), "tags", "metadata"])

    def write(self, arms: Sequence[Arm]) -> None:
        for arm in arms:
            tags, metadata = _text(arm.tags), _text(arm.metadata)
            self._table.writerow([arm.id, *map(repr, arm.features), tags, metadata])

    def close(self) -> None:
        self._file.close()


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if value else ""


def ids_path_of_part(path: Path) -> Path:
    """Where the ids are of a matrix that is being written."""
    return path.with_name(path.name + ".ids")


class NpyWriter(ArmWriter):
    """Ids and features alone. ``bare`` counts the arms that have tags or metadata, which are left out."""

    def __init__(self, path: Path, dim: int) -> None:
        self._file = path.open("wb")
        self._ids = ids_path_of_part(path).open("w", encoding="utf-8")
        self._dim = dim
        self._count = self.bare = 0
        self._head()

    def write(self, arms: Sequence[Arm]) -> None:
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


class ParquetWriter(ArmWriter):
    def __init__(self, path: Path, dim: int) -> None:
        self._pa, pq = arrow()
        self._dim = dim
        pa = self._pa
        self._schema = pa.schema(
            [
                ("id", pa.string()),
                ("features", pa.list_(pa.float64(), dim)),
                ("tags", pa.list_(pa.string())),
                ("metadata", pa.string()),
            ]
        )
        self._file = pq.ParquetWriter(path, self._schema)

    def write(self, arms: Sequence[Arm]) -> None:
        pa = self._pa
        numbers = np.array([arm.features for arm in arms], dtype=np.float64).reshape(-1)
        columns = [
            pa.array([arm.id for arm in arms], pa.string()),
            pa.FixedSizeListArray.from_arrays(pa.array(numbers), self._dim),
            pa.array([arm.tags for arm in arms], pa.list_(pa.string())),
            pa.array([_text(arm.metadata) for arm in arms], pa.string()),
        ]
        self._file.write_table(pa.table(columns, schema=self._schema))

    def close(self) -> None:
        self._file.close()
