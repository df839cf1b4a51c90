"""Exported logs, read a piece at a time: NDJSON, or Parquet with the extra ``parquet``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from app.services.bandits.bandit import Bandit
from app.services.bandits.prior_version import PriorVersion, imported
from app.services.decision_log.rows import Row
from shortlist_client.files.arm_readers import opened
from shortlist_client.files.arm_rows import FileError, wrong
from shortlist_client.files.parquet import parquet_file
from shortlist_client.files.progress import meter

BLOCK_BYTES = 1 << 20
BATCH_ROWS = 1_000
COLUMNS = tuple(field.encode_name for field in msgspec.structs.fields(Row))
NEEDED = tuple(field.encode_name for field in msgspec.structs.fields(Row) if field.required)


def rows_of(path: Path, desc: str) -> Iterator[Sequence[Row]]:
    """The decisions of an exported log, in pieces, with a bar that says ``desc``. Raises FileError."""
    if path.suffix.lower() not in _READERS:
        raise FileError(f"{path}: the name must end with {', '.join(_READERS)}")
    yield from _READERS[path.suffix.lower()](path, desc)


def priors_of(path: Path, bandit: Bandit) -> Mapping[int, PriorVersion]:
    """Versions of the learned prior of a bandit, by number: NDJSON. Raises FileError."""
    found = dict[int, PriorVersion]()
    with opened(path, "rb") as file:
        for row, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                version = imported(json.loads(line))
            except (ValueError, KeyError, TypeError, RecursionError):
                wrong(path, row, None, "is not a version of a prior, as export writes them")
            if version.learned is not None and version.learned.dim != bandit.learner_dim:
                wrong(path, row, "mean", f"is of {version.learned.dim} numbers, not {bandit.learner_dim}")
            found[version.number] = version
    return found


def _ndjson(path: Path, desc: str) -> Iterator[Sequence[Row]]:
    decode, number = msgspec.json.Decoder(Row).decode, 0
    with opened(path, "rb") as file, meter(desc, path.stat().st_size, "bytes") as advance:
        while lines := file.readlines(BLOCK_BYTES):
            numbered = enumerate(lines, start=number + 1)
            yield [_decoded(decode, line, path, place) for place, line in numbered if line.strip()]
            number += len(lines)
            advance(sum(map(len, lines)))


def _decoded(decode: Callable[[bytes], Row], line: bytes, path: Path, number: int) -> Row:
    try:
        return decode(line)
    except msgspec.ValidationError as error:
        wrong(path, number, None, str(error))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        wrong(path, number, None, "is not JSON")


def _parquet(path: Path, desc: str) -> Iterator[Sequence[Row]]:
    with parquet_file(path) as file, meter(desc, file.metadata.num_rows, "rows") as advance:
        names = file.schema_arrow.names
        missing = next((name for name in NEEDED if name not in names), None)
        if missing is not None:
            wrong(path, None, None, f"has no column {missing}")
        first = 1
        for batch in file.iter_batches(BATCH_ROWS, columns=[name for name in COLUMNS if name in names]):
            yield [_converted(path, row, number) for number, row in enumerate(batch.to_pylist(), first)]
            first += batch.num_rows
            advance(batch.num_rows)


def _converted(path: Path, row: dict[str, Any], number: int) -> Row:
    """A row of Parquet, where what varies in shape is JSON text."""
    try:
        for name in ("filter", "weights", "barred"):
            if row.get(name) is not None:
                row[name] = json.loads(row[name])
        return msgspec.convert(row, Row)
    except msgspec.ValidationError as error:
        wrong(path, number, None, str(error))
    except (TypeError, ValueError):
        wrong(path, number, name, "is not JSON")


_READERS: Mapping[str, Callable[[Path, str], Iterator[Sequence[Row]]]] = {
    ".ndjson": _ndjson,
    ".jsonl": _ndjson,
    ".parquet": _parquet,
}
