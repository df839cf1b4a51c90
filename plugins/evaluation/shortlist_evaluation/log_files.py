"""Exported logs, read a piece at a time: NDJSON, or Parquet with the extra ``parquet``.

Files that were written at several times may have the same decisions: each is read once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from shortlist_client.progress import meter
from shortlist_files.arm_rows import FileError, wrong
from shortlist_files.opening import opened, parquet_file
from shortlist_service.decision_log import LATEST_MS, Row
from shortlist_service.learners import PriorVersion, imported
from shortlist_service.policies import Bandit

BLOCK_BYTES = 1 << 20
BATCH_ROWS = 1_000
RECENT = 100_000  # decisions
MOST_NUMBER = float(np.finfo(np.float32).max)
COLUMNS = tuple(field.encode_name for field in msgspec.structs.fields(Row))
NEEDED = tuple(field.encode_name for field in msgspec.structs.fields(Row) if field.required)


def rows_of(path: Path, desc: str, *, read: ReadDecisions | None = None) -> Iterator[Sequence[Row]]:
    """The decisions of an exported log, in pieces, with a bar that says ``desc``. Raises FileError.

    ``read``: those that were read before, which are left out. None: none yet.
    """
    match path.suffix.lower():
        case ".ndjson" | ".jsonl":
            pieces = _ndjson(path, desc)
        case ".parquet":
            pieces = _parquet(path, desc)
        case _:
            raise FileError(f"{path}: the name must end with .ndjson, .jsonl, .parquet")
    read = ReadDecisions() if read is None else read
    for rows in pieces:
        yield [row for row in rows if read.is_new(row)]


class ReadDecisions:
    """The decisions read so far, by hashes of 64 bits of the decision and of its rewards: 16 bytes each.

    ``decisions``     that were read, each once
    ``unknown``       of these, with an arm without a propensity: no policy is evaluated on them
    ``repeated``      how often a decision came again
    ``differing``     how often with other rewards than the first time

    That any two of a million have the same hash has probability 3e-8; the second would be left out.
    """

    def __init__(self, recent: int = RECENT) -> None:
        self._most_recent = recent
        self.decisions = self.unknown = self.repeated = self.differing = 0
        self._earlier = np.empty((2, 0), dtype=np.int64)
        self._recent = dict[int, int]()

    def is_new(self, row: Row) -> bool:
        """Note a decision; False: it was read before. Cost: O(log n), amortised."""
        name, rewards = hash(row.decision), hash(msgspec.msgpack.encode(row.rewards))
        first = self._recent.get(name)
        if first is None:
            names = self._earlier[0]
            position = int(np.searchsorted(names, name))
            if position < len(names) and names[position] == name:
                first = int(self._earlier[1, position])
        if first is not None:
            self.repeated += 1
            self.differing += rewards != first
            return False
        self.decisions += 1
        self.unknown += any(arm.propensity is None and not arm.pinned for arm in row.arms)
        self._recent[name] = rewards
        if len(self._recent) >= max(self._most_recent, self._earlier.shape[1] // 4):
            recent = np.array((list(self._recent), list(self._recent.values())))
            merged = np.concatenate((self._earlier, recent), axis=1)
            self._earlier = merged[:, np.argsort(merged[0])]
            self._recent.clear()
        return True


def priors_of(path: Path, bandit: Bandit) -> Mapping[int, PriorVersion]:
    """Versions of the learned prior of a bandit, by number: NDJSON. Raises FileError."""
    versions = dict[int, PriorVersion]()
    with opened(path, "rb") as file:
        for row, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                version = imported(line)
            except (ValueError, RecursionError) as error:
                wrong(path, row, None, f"is not a version of a prior, as export writes them: {error}")
            if version.learned is not None and version.learned.dim != bandit.learner_dim:
                wrong(path, row, "mean", f"is of {version.learned.dim} numbers, not {bandit.learner_dim}")
            signals = bandit.record.signal_count
            if version.learned is not None and len(version.learned.mean) > signals:
                wrong(path, row, "mean", f"is of {len(version.learned.mean)} signals, not {signals}")
            if versions.setdefault(version.number, version).record != version.record:
                wrong(path, row, "version", f"{version.number} was there before, with other numbers")
    if not versions:
        raise FileError(f"{path}: has no version of a prior")
    return versions


def _ndjson(path: Path, desc: str) -> Iterator[Sequence[Row]]:
    decode, number = msgspec.json.Decoder(Row).decode, 0
    with opened(path, "rb") as file, meter(desc, path.stat().st_size, "bytes") as advance:
        while lines := file.readlines(BLOCK_BYTES):
            numbered = enumerate(lines, start=number + 1)
            yield [_decoded(decode, line, path, row_number) for row_number, line in numbered if line.strip()]
            number += len(lines)
            advance(sum(map(len, lines)))


def _decoded(decode: Callable[[bytes], Row], line: bytes, path: Path, number: int) -> Row:
    try:
        return _checked(decode(line), path, number)
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
        return _checked(msgspec.convert(row, Row), path, number)
    except msgspec.ValidationError as error:
        wrong(path, number, None, str(error))
    except (TypeError, ValueError):
        wrong(path, number, name, "is not JSON")


def _checked(row: Row, path: Path, number: int) -> Row:
    """The row. Raises FileError: it has values that no service writes."""
    times, arms = {"time": row.time}, {arm.id for arm in row.arms}
    if not arms:
        wrong(path, number, "arms", "must not be empty")
    for position, arm in enumerate(row.arms):
        if arm.propensity is not None and not 0.0 < arm.propensity <= 1.0:
            wrong(path, number, f"arms[{position}].propensity", "must be above 0 and at most 1, or null")
    for position, reward in enumerate(row.rewards):
        name = f"rewards[{position}]"
        if reward.arm not in arms:
            wrong(path, number, f"{name}.arm", "must be one of the arms of the decision")
        if not math.isfinite(reward.value):
            wrong(path, number, f"{name}.value", "must be a finite number")
        times |= {f"{name}.time": reward.time, f"{name}.revised": reward.revised}
    for name, value in times.items():
        if not 0 <= value <= LATEST_MS:
            wrong(path, number, name, f"must be from 0 to {LATEST_MS}")
    if row.context is not None and not all(abs(number) <= MOST_NUMBER for number in row.context):
        wrong(path, number, "context", "must be finite numbers of 32 bits")
    for position, candidate in enumerate(row.candidates or ()):
        if not all(
            abs(value) <= MOST_NUMBER for value in (*(candidate.features or ()), *(candidate.match or ()))
        ):
            wrong(path, number, f"candidates[{position}]", "must have finite numbers of 32 bits")
    return row
