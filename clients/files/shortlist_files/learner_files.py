"""Files of learners: ``key``, ``version``, ``observations`` and ``state``, all that is stored of a learner.

``prior_version`` is of the learned prior that they were served with: it is not in the state.
The state is bytes in Parquet, and base64 in NDJSON and CSV. Only ``key`` and ``state`` are read.
"""

from __future__ import annotations

import base64
import binascii
import csv
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from shortlist_client.answers import LearnerCopy
from shortlist_files.arm_readers import opened
from shortlist_files.arm_rows import FileError, wrong
from shortlist_files.parquet import arrow, parquet_file

COLUMNS = ("key", "version", "observations", "state", "prior_version")
ROWS = 100  # of a Parquet file, that are held together


@dataclass(frozen=True, slots=True)
class LearnerRow:
    """A key, and all that is stored of its learner; neither is empty."""

    key: str
    state: bytes


def _ndjson(path: Path) -> Iterator[Mapping[str, Any]]:
    with opened(path, "rb") as file:
        for row, line in enumerate(file, start=1):
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                wrong(path, row, None, "is not JSON")
            if not isinstance(found, dict):
                wrong(path, row, None, "is not a JSON object")
            yield found


def _csv(path: Path) -> Iterator[Mapping[str, Any]]:
    csv.field_size_limit(1 << 26)
    with opened(path) as file:
        try:
            yield from csv.DictReader(file)
        except csv.Error as error:
            wrong(path, None, None, str(error))


def _parquet(path: Path) -> Iterator[Mapping[str, Any]]:
    with parquet_file(path) as file:
        for batch in file.iter_batches(batch_size=ROWS):
            yield from batch.to_pylist()


class LearnerWriter(ABC):
    """Writes learners into a file of one kind."""

    @abstractmethod
    def __init__(self, path: Path) -> None: ...

    @abstractmethod
    def write(self, learners: Sequence[LearnerCopy]) -> None:
        """Append learners as the service gives them."""

    @abstractmethod
    def close(self) -> None:
        """All is written."""


class NdjsonWriter(LearnerWriter):
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def write(self, learners: Sequence[LearnerCopy]) -> None:
        self._file.writelines(json.dumps(asdict(learner)) + "\n" for learner in learners)

    def close(self) -> None:
        self._file.close()


class CsvWriter(LearnerWriter):
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", newline="")
        self._table = csv.DictWriter(self._file, COLUMNS, lineterminator="\n")
        self._table.writeheader()

    def write(self, learners: Sequence[LearnerCopy]) -> None:
        self._table.writerows(map(asdict, learners))

    def close(self) -> None:
        self._file.close()


class ParquetWriter(LearnerWriter):
    def __init__(self, path: Path) -> None:
        self._pa, pq = arrow()
        pa = self._pa
        types = (pa.string(), pa.int64(), pa.int64(), pa.binary(), pa.int64())
        self._schema = pa.schema(list(zip(COLUMNS, types, strict=True)))
        self._file = pq.ParquetWriter(path, self._schema)

    def write(self, learners: Sequence[LearnerCopy]) -> None:
        rows = [{**asdict(learner), "state": base64.b64decode(learner.state or "")} for learner in learners]
        self._file.write_table(self._pa.Table.from_pylist(rows, schema=self._schema))

    def close(self) -> None:
        self._file.close()


Read = Callable[[Path], Iterator[Mapping[str, Any]]]
Make = Callable[[Path], LearnerWriter]

KINDS: Mapping[str, tuple[Read, Make]] = {
    ".ndjson": (_ndjson, NdjsonWriter),
    ".jsonl": (_ndjson, NdjsonWriter),
    ".csv": (_csv, CsvWriter),
    ".parquet": (_parquet, ParquetWriter),
}


def learners_of(path: Path) -> Callable[[], Iterator[LearnerRow]]:
    """What reads the learners of a file, as often as it is called. Raises FileError: no such ending."""
    read, _ = _kind(path)
    return partial(_rows, path, read)


def writer_of(path: Path) -> Make:
    """What writes a file of this name. Raises FileError."""
    return _kind(path)[1]


def _kind(path: Path) -> tuple[Read, Make]:
    try:
        return KINDS[path.suffix.lower()]
    except KeyError:
        raise FileError(f"{path}: learners are kept in {', '.join(KINDS)}") from None


def _rows(path: Path, read: Read) -> Iterator[LearnerRow]:
    for row, found in enumerate(read(path), start=1):
        for name, kinds in (("key", str), ("state", str | bytes)):
            if not found.get(name):
                wrong(path, row, name, "is missing")
            if not isinstance(found[name], kinds):
                wrong(path, row, name, "is of another kind")
        yield LearnerRow(found["key"], _bytes(path, row, found["state"]))


def _bytes(path: Path, row: int, state: str | bytes) -> bytes:
    if isinstance(state, bytes):
        return state
    try:
        return base64.b64decode(state, validate=True)
    except (binascii.Error, ValueError):
        wrong(path, row, "state", "is not base64")
