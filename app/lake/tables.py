"""The tables of a lake: what their columns are, and the rows of the service's answers as such columns.

Times are of UTC, to the millisecond. A row is in the day of its ``time``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, TypeVar

import pyarrow as pa

from app.learning.tokens import Decision, decision_of, raw_of

DAY_MS = 86_400_000
TIME = pa.timestamp("ms", tz="UTC")

_ARM = pa.struct(
    [
        ("id", pa.string()),
        ("revision", pa.int64()),
        ("place", pa.int64()),
        ("score", pa.float64()),
        ("propensity", pa.float64()),
        ("pinned", pa.bool_()),
    ]
)
DECISIONS = pa.schema(
    [
        ("time", TIME),
        ("decision_id", pa.string()),
        ("key", pa.string()),
        ("bandit_version", pa.int64()),
        ("learner_version", pa.int64()),
        ("catalogue_version", pa.int64()),
        ("policy", pa.string()),
        ("group", pa.string()),
        ("context", pa.list_(pa.float32())),
        ("filter", pa.string()),
        ("eligible", pa.int64()),
        ("arms", pa.list_(_ARM)),
        ("decision", pa.string()),
        ("weights", pa.string()),
        ("prior_version", pa.int64()),
    ]
)
PRIORS = pa.schema(
    [
        ("time", TIME),
        ("version", pa.int64()),
        ("keys", pa.int64()),
        ("observations", pa.float64()),
        ("mean", pa.list_(pa.list_(pa.float64()))),
        ("precision", pa.list_(pa.float64())),
        ("residuals", pa.list_(pa.list_(pa.float64()))),
        ("variation", pa.float64()),
    ]
)
REWARDS = pa.schema(
    [
        ("time", TIME),
        ("partition", pa.int32()),
        ("number", pa.int64()),
        ("kind", pa.string()),
        ("key", pa.string()),
        ("decision_id", pa.string()),
        ("observation_id", pa.string()),
        ("arm", pa.string()),
        ("revision", pa.int64()),
        ("value", pa.float64()),
        ("decided", TIME),
        ("first", pa.bool_()),
        ("before", pa.float64()),
        ("replaces", pa.float64()),
        ("context", pa.list_(pa.float32())),
        ("logged", pa.bool_()),
        ("replayed", pa.int64()),
        ("features", pa.list_(pa.float64())),
        ("state", pa.binary()),
        ("examined", pa.float64()),
        ("signal", pa.string()),
        ("signal_number", pa.int32()),
        ("had", pa.list_(pa.float64())),
        ("space", pa.int32()),
    ]
)
ARMS = pa.schema(
    [
        ("time", TIME),
        ("arm", pa.string()),
        ("revision", pa.int64()),
        ("features", pa.list_(pa.float64())),
    ]
)


def day_of(time_ms: int) -> str:
    """The day of a time, as partitions are named."""
    return datetime.fromtimestamp(time_ms / 1_000, UTC).date().isoformat()


def decisions(rows: Iterable[Any]) -> Mapping[str, Any]:
    """Rows of the decision log by day, as tables. Cost: some ten microseconds a row."""
    return _by_day(rows, lambda row: int(row.time), _decisions)


def rewards(rows: Iterable[tuple[int, Any]]) -> Mapping[str, Any]:
    """Entries of the reward log, each with its partition, by day."""
    return _by_day(rows, lambda row: int(row[1].time), _rewards)


def arms(rows: Iterable[Any], time_ms: int) -> Mapping[str, Any]:
    """Revisions of arms that were first seen at a time."""
    found = list(rows)
    columns = [
        [time_ms] * len(found),
        [arm.id for arm in found],
        [arm.revision for arm in found],
        [arm.features for arm in found],
    ]
    return {day_of(time_ms): _table(ARMS, columns)} if found else {}


def token(row: Any) -> Decision:
    """What the token of a row says."""
    return decision_of(raw_of(row.decision))


def _decisions(rows: Sequence[Any]) -> Any:
    tokens = [token(row) for row in rows]
    shown = [
        [
            (arm.id, revision, arm.place, arm.score, arm.propensity, arm.pinned)
            for arm, revision in zip(row.arms, of.revisions, strict=True)
        ]
        for row, of in zip(rows, tokens, strict=True)
    ]
    flat = list(zip(*(arm for arms in shown for arm in arms), strict=True)) or [()] * len(_ARM)
    ends = [0]
    for each in shown:
        ends.append(ends[-1] + len(each))
    values = pa.StructArray.from_arrays(
        [pa.array(column, field.type) for column, field in zip(flat, _ARM, strict=True)], fields=list(_ARM)
    )
    columns = [
        [row.time for row in rows],
        [of.id for of in tokens],
        [row.key for row in rows],
        [row.bandit_version for row in rows],
        [row.learner_version for row in rows],
        [row.catalogue_version for row in rows],
        [row.policy for row in rows],
        [row.group for row in rows],
        [row.context for row in rows],
        [None if row.filter is None else json.dumps(row.filter) for row in rows],
        [row.eligible for row in rows],
        pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values, type=pa.list_(_ARM)),
        [row.decision for row in rows],
        [None if row.weights is None else json.dumps(row.weights) for row in rows],
        [row.prior_version for row in rows],
    ]
    return _table(DECISIONS, columns)


def priors(rows: Iterable[Any]) -> Mapping[str, Any]:
    """Versions of the learned prior, by the day when they were made."""
    return _by_day(rows, lambda row: int(row.since_ms), _priors)


def _priors(rows: Sequence[Any]) -> Any:
    names = ("since_ms", *PRIORS.names[1:])
    return _table(PRIORS, [[getattr(row, name) for row in rows] for name in names])


def _rewards(rows: Sequence[tuple[int, Any]]) -> Any:
    entries = [entry for _, entry in rows]
    columns = [
        [entry.time for entry in entries],
        [partition for partition, _ in rows],
        [entry.number for entry in entries],
        [entry.kind for entry in entries],
        [entry.key for entry in entries],
        [None if entry.kind == "observation" else entry.id for entry in entries],
        [entry.id if entry.kind == "observation" else None for entry in entries],
        [entry.arm for entry in entries],
        [entry.revision for entry in entries],
        [entry.value for entry in entries],
        [entry.decided for entry in entries],
        [entry.first for entry in entries],
        [entry.before for entry in entries],
        [entry.replaces for entry in entries],
        [entry.context for entry in entries],
        [entry.logged for entry in entries],
        [entry.replayed for entry in entries],
        [entry.features for entry in entries],
        [None if entry.state is None else base64.b64decode(entry.state) for entry in entries],
        [entry.examined for entry in entries],
        [entry.signal for entry in entries],
        [entry.signal_number for entry in entries],
        [entry.had for entry in entries],
        [entry.space for entry in entries],
    ]
    return _table(REWARDS, columns)


def _table(schema: Any, columns: Sequence[Any]) -> Any:
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


T = TypeVar("T")


def _by_day(
    rows: Iterable[T], time_ms: Callable[[T], int], table: Callable[[Sequence[T]], Any]
) -> Mapping[str, Any]:
    ordered = sorted(rows, key=time_ms)
    days = groupby(ordered, key=lambda row: time_ms(row) // DAY_MS)
    return {day_of(day * DAY_MS): table(list(some)) for day, some in days}
