"""Rows of the service's answers as the tables of a lake, by day."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, TypeVar

import pyarrow as pa

from shortlist_lake.schemas import ARMS, DECISIONS, PRIORS, REWARDS
from shortlist_service.tokens import Decision, decision_of, raw_of

DAY_MS = 86_400_000
T = TypeVar("T")


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
    """Revisions of arms first seen at a time."""
    revisions = list(rows)
    columns = {"time": [time_ms] * len(revisions), "arm": [arm.id for arm in revisions]}
    return {day_of(time_ms): _table(ARMS, revisions, columns)} if revisions else {}


def priors(rows: Iterable[Any]) -> Mapping[str, Any]:
    """Versions of the learned prior, by the day when they were made."""

    def table(versions: Sequence[Any]) -> Any:
        return _table(PRIORS, versions, {"time": [row.since_ms for row in versions]})

    return _by_day(rows, lambda row: int(row.since_ms), table)


def token(row: Any) -> Decision:
    """The decision in the token of a row."""
    return decision_of(raw_of(row.decision))


def _decisions(rows: Sequence[Any]) -> Any:
    tokens = [token(row) for row in rows]
    shown = [
        [
            (
                *(arm.id, revision, arm.place, arm.score, arm.propensity, arm.pinned),
                *(_listed(getattr(arm, name, None)) for name in ("expected", "effect")),
                *(getattr(arm, name, None) for name in ("examined", "weight", "age")),
            )
            for arm, revision in zip(row.arms, of.revisions, strict=True)
        ]
        for row, of in zip(rows, tokens, strict=True)
    ]
    candidates = [
        None
        if row.candidates is None
        else [(candidate.id, candidate.features, candidate.match) for candidate in row.candidates]
        for row in rows
    ]
    columns: dict[str, list[Any]] = {
        "decision_id": [of.id for of in tokens],
        "arms": shown,
        "candidates": candidates,
    }
    for name in ("filter", "weights"):
        values = [getattr(row, name) for row in rows]
        columns[name] = [None if value is None else json.dumps(value) for value in values]
    agreements = [row.agreement for row in rows]
    columns["agreement"] = [
        None if agreement is None else (agreement.same_first, agreement.overlap) for agreement in agreements
    ]
    return _table(DECISIONS, rows, columns)


def _listed(numbers: Any) -> Any:
    """A list of each signal's number; a bandit without signals has one number."""
    return [numbers] if isinstance(numbers, float) else numbers


def _rewards(rows: Sequence[tuple[int, Any]]) -> Any:
    entries = [entry for _, entry in rows]
    columns: dict[str, list[Any]] = {
        "partition": [partition for partition, _ in rows],
        "decision_id": [None if entry.kind == "observation" else entry.id for entry in entries],
        "observation_id": [entry.id if entry.kind == "observation" else None for entry in entries],
    }
    states = [entry.state for entry in entries]
    columns["state"] = [None if data is None else base64.b64decode(data) for data in states]
    return _table(REWARDS, entries, columns)


def _table(schema: Any, rows: Sequence[Any], columns: Mapping[str, list[Any]]) -> Any:
    """A column is in ``columns``, or is what each row has under its name."""

    def values(name: str) -> list[Any]:
        return columns[name] if name in columns else [getattr(row, name) for row in rows]

    arrays = [pa.array(values(field.name), field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _by_day(
    rows: Iterable[T], time_ms: Callable[[T], int], table: Callable[[Sequence[T]], Any]
) -> Mapping[str, Any]:
    ordered = sorted(rows, key=time_ms)
    days = groupby(ordered, key=lambda row: time_ms(row) // DAY_MS)
    return {day_of(day * DAY_MS): table(list(rows_of_day)) for day, rows_of_day in days}
