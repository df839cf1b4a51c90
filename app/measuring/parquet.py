"""Rows of the decision log as Parquet, a part of the file at a time. Needs the extra ``parquet`` (pyarrow).

A module of its own, since a service without the extra must not import pyarrow.

A row read back is the row as JSON, with these exceptions: ``timestamp`` of a decision and of a reward
is its ``time`` as a timestamp of UTC; ``filter``, ``weights`` and ``barred``, whose shapes vary, are JSON
text. A bandit without signals has neither ``weights`` nor the ``signal`` of rewards; ``revised`` is there
only where the last reward counts, ``prior_version`` only with a learned prior, ``agreement`` only with a
holdout of candidates, ``examined`` and ``weight`` of arms only where rewards weigh by place, ``age`` only
with arm effects of one reward.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from app.decision_log.rows import Row

GROUP_ROWS = 8_192
GROUP_BYTES = 4 << 20
REPEATED = (
    "key",
    "policy",
    "group",
    "filter",
    "barred",
    "context.list.element",
    "arms.list.element.id",
    "arms.list.element.place",
    "candidates.list.element.id",
    "rewards.list.element.arm",
    "rewards.list.element.value",
)

_NUMBERS = pa.list_(pa.float32())
CANDIDATE = [("id", pa.string()), ("features", _NUMBERS), ("match", _NUMBERS)]
AGREEMENT = pa.struct([("same_first", pa.bool_()), ("overlap", pa.float64())])
_OF_SIGNALS = ("expected", "effect")
_OF_PLACES = ("examined", "weight")
_TIMESTAMP = ("timestamp", pa.timestamp("ms", tz="UTC"))  # ``time``, for whom reads tables
_TEXTS = {"filter", "weights", "barred"}
_encode = msgspec.json.Encoder().encode
pa.set_memory_pool(pa.system_memory_pool())  # Arrow's own keeps what it has had once: 30 MB for an export


def schema_of(
    *,
    signals: bool = False,
    revised: bool = False,
    learned: bool = False,
    effects: bool = False,
    places: bool = False,
    ages: bool = False,
    agreement: bool = False,
) -> Any:
    """The columns of a bandit with signals, where the last reward counts, with a prior or arm effects, which
    learns of places and of ages, with a holdout that serves candidates.
    """
    arm = [
        ("id", pa.string()),
        ("place", pa.int64()),
        ("score", pa.float64()),
        ("propensity", pa.float64()),
        ("pinned", pa.bool_()),
        *[(name, pa.float64()) for name in _OF_PLACES if places],
        *[("age", pa.float64())] * ages,
        *[(name, pa.list_(pa.float64())) for name in _OF_SIGNALS if effects],
    ]
    reward = [
        ("arm", pa.string()),
        ("value", pa.float64()),
        ("time", pa.int64()),
        _TIMESTAMP,
        ("default", pa.bool_()),
        *[("signal", pa.string())] * signals,
        *[("revised", pa.int64())] * revised,
    ]
    return pa.schema(
        [
            ("decision", pa.string()),
            ("time", pa.int64()),
            _TIMESTAMP,
            ("key", pa.string()),
            ("bandit_version", pa.int64()),
            ("learner_version", pa.int64()),
            ("catalogue_version", pa.int64()),
            ("policy", pa.string()),
            ("group", pa.string()),
            ("context", pa.list_(pa.float64())),
            ("filter", pa.string()),
            ("eligible", pa.int64()),
            ("arms", pa.list_(pa.struct(arm))),
            ("barred", pa.string()),
            ("candidates", pa.list_(pa.struct(CANDIDATE))),
            ("rewards", pa.list_(pa.struct(reward))),
            *[("weights", pa.string())] * signals,
            *[("prior_version", pa.int64())] * learned,
            *[("effects_version", pa.int64())] * effects,
            *[("agreement", AGREEMENT)] * agreement,
        ]
    )


class ParquetEncoder:
    """Makes a file of rows. What ``add`` and ``end`` return is the file, in pieces.

    Rows are kept as columns until they fill a row group of ``group_rows`` or ``group_bytes``.
    """

    def __init__(self, schema: Any, *, group_rows: int = GROUP_ROWS, group_bytes: int = GROUP_BYTES) -> None:
        self._group_rows, self._group_bytes = group_rows, group_bytes
        self._sink, self._schema = _Sink(), schema
        self._writer = pq.ParquetWriter(
            self._sink, self._schema, compression="zstd", compression_level=1, use_dictionary=list(REPEATED)
        )
        self._batches: list[Any] = []

    def add(self, rows: Sequence[Row]) -> bytes:
        """Take up rows. Cost: some microseconds a row."""
        if rows:
            columns = [_column(field, rows) for field in self._schema]
            self._batches.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        if (
            sum(batch.num_rows for batch in self._batches) >= self._group_rows
            or sum(batch.nbytes for batch in self._batches) >= self._group_bytes
        ):
            self._write_group()
        return self._sink.take_written()

    def end(self) -> bytes:
        """The rest of the file. Without it the file cannot be read."""
        self._write_group()
        self._writer.close()
        return self._sink.take_written()

    def _write_group(self) -> None:
        if self._batches:
            table = pa.Table.from_batches(self._batches)
            self._batches.clear()
            self._writer.write_table(table, row_group_size=table.num_rows)


class _Sink(io.RawIOBase):
    """A file which hands on all written bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._size += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._size

    def take_written(self) -> bytes:
        """The bytes written since the last call."""
        result = b"".join(self._pieces)
        self._pieces.clear()
        return result


def _column(field: Any, rows: Sequence[Row]) -> Any:
    values = list(map(attrgetter(_attribute(field.name)), rows))
    if field.name in _TEXTS:
        values = [None if value is None else _encode(value).decode() for value in values]
    elif pa.types.is_struct(field.type):
        values = [None if value is None else msgspec.structs.astuple(value) for value in values]
    elif pa.types.is_list(field.type) and pa.types.is_struct(field.type.value_type):
        names = (_attribute(part.name) for part in field.type.value_type)
        as_tuple = attrgetter(*names)  # as Arrow takes structs
        values = [None if value is None else list(map(as_tuple, value)) for value in values]
        if _OF_SIGNALS[0] in {part.name for part in field.type.value_type}:
            values = [[(*arm[:-2], *map(_listed, arm[-2:])) for arm in value] for value in values]
    return pa.array(values, field.type)


def _attribute(column: str) -> str:
    return "time" if column == _TIMESTAMP[0] else column


def _listed(numbers: object) -> object:
    """A list of each signal's number; a bandit without signals has one number."""
    return [numbers] if isinstance(numbers, float) else numbers
