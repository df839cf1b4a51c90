"""Logs of other systems, read as rows of a decision log, to compare a policy on an existing log.

    vw-dsjson  JSON lines of Vowpal Wabbit (``--dsjson``): ``a``, ``p`` and ``c`` of a decision with its cost
    table      CSV, Parquet or NDJSON with the columns action, probability and reward; besides, if they are
               there: actions (the offered ones, separated by blanks), time, key, and the context

An action is an arm of the catalogue, by its id. Arms that were not offered count as not allowed. An
incomplete row is left out; ``UnreadRows`` counts such rows, and knows the first of each kind.

Of Vowpal Wabbit's events those with ``_skipLearn`` count only where an activation follows, and one with
``pdrop`` stands for 1 / (1 - pdrop) of them. A feature is found by its name, or by that of its namespace, a
point and its name; a list of texts is one value.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from shortlist_client.phrases import counted
from shortlist_client.progress import meter
from shortlist_files.arm_rows import FileError
from shortlist_files.opening import opened
from shortlist_files.tables import open_tables
from shortlist_service.decision_log import (
    NOTHING_BARRED,
    Barred,
    Encoding,
    LoggedArm,
    LoggedReward,
    Row,
    ThinnedRow,
)
from shortlist_service.errors import Invalid

BLOCK_BYTES = 1 << 20
VW, TABLE = "vw-dsjson", "table"
ARM_FIELD = "id"
COLUMNS = ("action", "probability", "reward")
SHOWN_REASONS = 3
LAST_MS = 10**13  # since 1970: the year 2286
SEVERAL = object()  # values of one name
SINGULAR = {"have": "has", "are": "is", "do": "does"}  # the verbs that a reason begins with


Numbered = Iterator[tuple[int, Callable[[], "LoggedEvent"]]]


class Unread(Exception):
    """A row that cannot be used. The text says what it lacks, without its values."""


@dataclass(slots=True)
class UnreadRows:
    """The number of rows left out by reason, and the number of the first of each.

    ``thinned``: used rows which stand for others dropped by their log.
    """

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    thinned: int = 0

    def add(self, reason: str, number: int) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + 1
        self.first.setdefault(reason, number)

    def sentences(self) -> Iterator[str]:
        for reason, count in sorted(self.counts.items(), key=lambda pair: -pair[1]):
            verb, predicate = reason.split(" ", 1)
            rows = counted(count, f"row {SINGULAR[verb]}", f"rows {verb}")
            yield f"{rows} {predicate}: left out, the first is row {self.first[reason]:,}"
        if self.thinned:
            rows = counted(self.thinned, "row stands", "rows stand")
            yield f"{rows} for others that were dropped (pdrop): estimates count these, learners do not"


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """A decision of another system. ``offered``: None, all arms of the catalogue were.

    ``dropped``: the probability with which its log would have dropped it.
    """

    id: str
    time_ms: int
    action: str
    probability: float
    reward: float
    offered: Sequence[str] | None
    context: Mapping[str, Any]
    key: str | None = None
    dropped: float = 0.0


class OtherLog:
    """Reads the log of another system.

    ``arms``       the ids of the catalogue
    ``encoding``   how the context is encoded; None: it is not used
    ``arm_field``  of dsjson: the feature of an action that is the id of its arm
    """

    def __init__(
        self,
        path: Path,
        kind: str,
        arms: Sequence[str],
        encoding: Encoding | None,
        *,
        arm_field: str = ARM_FIELD,
    ) -> None:
        if encoding is not None and encoding.rule.fields is None:
            raise Invalid("--policy: context: name its fields: logs of others have no vectors")
        self._path = path
        self._arms, self._known = arms, frozenset(arms)
        self._encoding = encoding
        if kind == VW:
            self._read = partial(_dsjson, path, arm_field, _activated(path))
        else:
            self._read = partial(_table, path)

    def rows(self, desc: str, unread: UnreadRows) -> Iterator[Sequence[Row]]:
        """The decisions in pieces, with a bar that says ``desc``. Raises FileError: none can be used."""
        used = 0
        for events in self._read(desc):
            rows = list[ThinnedRow]()
            for number, read in events:
                try:
                    rows.append(self._row(read()))
                except Unread as error:
                    unread.add(str(error), number)
            used += len(rows)
            unread.thinned += sum(row.stands_for > 1.0 for row in rows)
            yield rows
        if not used:
            reasons = "; ".join(list(unread.sentences())[:SHOWN_REASONS]) or "there are no rows"
            raise FileError(f"{self._path}: no decision can be used: {reasons}")

    def _row(self, event: LoggedEvent) -> ThinnedRow:
        if event.action not in self._known:
            raise Unread("have an action that is no arm of the catalogue")
        if not 0.0 < event.probability <= 1.0:
            raise Unread("have a probability that is not above 0 and at most 1")
        if not math.isfinite(event.reward):
            raise Unread("have a reward that is no finite number")
        barred = NOTHING_BARRED
        if event.offered is not None:
            offered = frozenset(event.offered)
            if event.action not in offered:
                raise Unread("have an action that was not offered")
            if left := [arm for arm in self._arms if arm not in offered]:
                barred = Barred([], left)
        arm = LoggedArm(event.action, 1, 0.0, event.probability, pinned=False)
        return ThinnedRow(
            decision=event.id,
            time=event.time_ms,
            key=event.key,
            bandit_version=1,
            learner_version=0,
            catalogue_version=0,
            policy="other",
            group=None,
            context=self._encoded(event.context),
            filter=None,
            eligible=None,
            arms=[arm],
            rewards=[LoggedReward(event.action, event.reward, event.time_ms, default=False)],
            barred=barred,
            stands_for=1.0 / (1.0 - event.dropped),
        )

    def _encoded(self, context: Mapping[str, Any]) -> list[float] | None:
        if self._encoding is None:
            return None
        values = dict[str, Any]()
        for rule in self._encoding.rule.fields or ():
            value = context.get(rule.name)
            if value is SEVERAL:
                raise Unread(f"have several features {rule.name}: name one NAMESPACE.{rule.name}")
            # a CSV file has texts alone
            values[rule.name] = _as_number(value) if rule.kind in {"number", "cycle"} else value
        try:
            return [float(number) for number in self._encoding.encode(values)]
        except Invalid as error:
            path, message = next(iter(error.errors), ((), error.detail))
            raise Unread(f"have a context that the policy cannot take ({path[-1]}: {message})") from None


def _activated(path: Path) -> frozenset[str]:
    """Ids of the events that an activation in a line of its own is of."""
    decode, ids = msgspec.json.Decoder(_Activation).decode, set[str]()
    with opened(path, "rb") as file:
        for line in file:
            if b"ActionTaken" in line:
                with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                    activation = decode(line)
                    if activation.taken and activation.cost is None:
                        ids.add(activation.event)
    return frozenset(ids)


class _Activation(msgspec.Struct, rename={"event": "EventId", "taken": "ActionTaken", "cost": "_label_cost"}):
    event: str
    taken: bool
    cost: Any = None


def _is_activated(event: Mapping[str, Any], activated: frozenset[str]) -> bool:
    """True if a line of its own, or one of the outcomes in the event, is an activation."""
    outcomes = event.get("o")
    within = outcomes if isinstance(outcomes, list) else []
    return event.get("EventId") in activated or any(
        isinstance(outcome, dict) and outcome.get("ActionTaken") is True for outcome in within
    )


def _dsjson(path: Path, arm_field: str, activated: frozenset[str], desc: str) -> Iterator[Numbered]:
    decode, number = msgspec.json.Decoder(dict[str, Any]).decode, 0
    with opened(path, "rb") as file, meter(desc, path.stat().st_size, "bytes") as advance:
        while lines := file.readlines(BLOCK_BYTES):
            numbered = enumerate(lines, start=number + 1)
            yield (
                (row_number, partial(_event_of_line, decode, line, row_number, arm_field, activated))
                for row_number, line in numbered
                if line.strip()
            )
            number += len(lines)
            advance(sum(map(len, lines)))


def _event_of_line(
    decode: Callable[[bytes], dict[str, Any]],
    line: bytes,
    number: int,
    arm_field: str,
    activated: frozenset[str],
) -> LoggedEvent:
    try:
        event = decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Unread("are not JSON objects") from None
    _check_kind(event, activated)
    cost, actions, shared = event["_label_cost"], event.get("a"), event.get("c")
    if not isinstance(shared, dict) or not isinstance(shared.get("_multi"), list):
        raise Unread("have no actions (c._multi)")
    multi = shared["_multi"]
    # Of old files the chosen action is the first of ``a``, from 1.
    chosen = event.get("_labelIndex")
    if not isinstance(chosen, int):
        first = event.get("_label_Action", actions[0] if isinstance(actions, list) and actions else None)
        chosen = first - 1 if isinstance(first, int) else None
    if chosen is None or not 0 <= chosen < len(multi):
        raise Unread("do not say which action was chosen (_labelIndex)")
    probabilities = event.get("p")
    probability = event.get("_label_probability")
    if probability is None and isinstance(probabilities, list) and probabilities:
        probability = probabilities[0]
    if not _is_number(probability):
        raise Unread("have no probability (_label_probability)")
    dropped = event.get("pdrop", 0.0)
    if not _is_number(dropped) or not 0.0 <= dropped < 1.0:
        raise Unread("have a pdrop that is not at least 0 and below 1")
    ids = [_features(action).get(arm_field) for action in multi]
    if SEVERAL in ids:
        raise Unread(f"have an action with several features {arm_field}: name one NAMESPACE.{arm_field}")
    if not all(isinstance(arm, str | int) for arm in ids):
        raise Unread(f"have an action without the feature {arm_field}")
    name = event.get("EventId")
    return LoggedEvent(
        name if isinstance(name, str) else f"row {number}",
        _ms_of(event.get("Timestamp"), number),
        str(ids[chosen]),
        float(probability),
        -float(cost),
        [str(arm) for arm in ids],
        _features(shared),
        dropped=float(dropped),
    )


def _check_kind(event: Mapping[str, Any], activated: frozenset[str]) -> None:
    """Raise Unread for what is no decision with a cost, and for one that nobody was shown."""
    cost = event.get("_label_cost")
    if "_outcomes" in event:
        raise Unread("have several slots (_outcomes)")
    if cost is None and event.get("ActionTaken") is True:
        raise Unread("are of activations, and no decisions")
    if event.get("_skipLearn") is True and not _is_activated(event, activated):
        raise Unread("have _skipLearn, and no activation follows")
    if not _is_number(cost):
        raise Unread("have no cost (_label_cost)")


def _features(document: Any) -> dict[str, Any]:
    """The features of a document, by their own names and with those of namespaces before them.

    Those of actions are left out. A name that stands for different values is ``SEVERAL``.
    """
    features = dict[str, Any]()
    for path, value in _leaves(document, ()):
        for start in range(len(path)):
            name = ".".join(path[start:])
            features[name] = value if features.get(name, value) == value else SEVERAL
    return features


def _leaves(features: Any, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Values with the names of what they are in; a list of texts and numbers is one value."""
    if isinstance(features, dict):
        for name, value in features.items():
            if name != "_multi":
                yield from _leaves(value, (*above, name))
    elif isinstance(features, list) and any(isinstance(part, dict | list) for part in features):
        for part in features:
            yield from _leaves(part, above)
    elif above:
        yield above, features


def _table(path: Path, desc: str) -> Iterator[Numbered]:
    for table in open_tables(path, id_column="action"):
        missing = [name for name in COLUMNS if name not in table.names]
        if missing:
            raise FileError(f"{table.path}: has no column {', '.join(missing)}")
        with meter(desc, None, "rows") as advance:
            for rows in table.rows():
                cells = rows.cells
                yield (
                    (number, partial(_event_of_cells, {name: cells[name][at] for name in cells}, number))
                    for at, number in enumerate(rows.numbers)
                )
                advance(len(rows))


def _event_of_cells(cells: Mapping[str, Any], number: int) -> LoggedEvent:
    action = cells["action"]
    if action in (None, ""):
        raise Unread("have no action")
    offered = cells.get("actions")
    if isinstance(offered, str):
        offered = offered.split() or None
    if not isinstance(offered, list | None):
        raise Unread("have actions that are neither a text nor a list")
    return LoggedEvent(
        f"row {number}",
        _ms_of(cells.get("time"), number),
        str(action),
        _number(cells["probability"], "probability"),
        _number(cells["reward"], "reward"),
        None if offered is None else [str(arm) for arm in offered],
        {name: cell for name, cell in cells.items() if cell not in (None, "")},
        None if cells.get("key") in (None, "") else str(cells["key"]),
    )


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(cell: Any, name: str) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError):
        raise Unread(f"have a {name} that is no number") from None


def _as_number(cell: Any) -> Any:
    """A text that is a number as one; anything else as it is: the encoding says what it cannot take."""
    try:
        return float(cell) if isinstance(cell, str) else cell
    except ValueError:
        return cell


def _ms_of(time: Any, number: int) -> int:
    """When it was, in ms since 1970; the number of the row where nobody says: rows are in order."""
    time = _as_number(time)
    if _is_number(time):
        if not abs(time) <= LAST_MS:  # nor NaN
            raise Unread("have a time that cannot be read")
        return int(time)
    if isinstance(time, str) and time:
        # Vowpal Wabbit writes seven digits of a second, which Python 3.11 takes with Z.
        try:
            parsed = dt.datetime.fromisoformat(time)
        except ValueError:
            raise Unread("have a time that cannot be read") from None
        return int((parsed if parsed.tzinfo else parsed.replace(tzinfo=dt.UTC)).timestamp() * 1_000)
    return number
