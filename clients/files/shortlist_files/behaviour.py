"""Who liked what, out of tables: arrays for an embedding of arms by behaviour.

Tables and columns are those of ``import --history``.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shortlist_client.phrases import counted
from shortlist_client.progress import meter
from shortlist_files.arm_rows import FileError
from shortlist_files.history import History, HistoryOptions, value_of
from shortlist_files.table_arms import identifier_of, shown
from shortlist_files.table_importing import BadRows
from shortlist_files.tables import BadRow, Rows, note_fault

T = TypeVar("T")
MOST_REMEMBERED = 1_000_000  # different cells of a column


@dataclass(frozen=True, slots=True, eq=False)
class Behaviour:
    """Events of arms that are known. ``unknown``: how many others there were. ``lines``: what is to be said.

    Shapes: keys, arms and values (events,): numbers of keys below ``key_count``, and of arms. ``span_ms``:
    when the first and the last event were, also of unknown arms, ms since 1970; None: it was not asked for.
    """

    keys: NDArray[np.int32]
    arms: NDArray[np.int32]
    values: NDArray[np.float32]
    key_count: int
    unknown: int
    lines: Sequence[str]
    span_ms: tuple[float, float] | None = None


def read_behaviour(
    files: Sequence[Path],
    options: HistoryOptions,
    arms: Mapping[str, int],
    *,
    liked: float | None = None,
    timed: bool = False,
) -> Behaviour:
    """The events of some tables. ``arms``: the number of each arm. ``options.at`` is read if ``timed``.

    ``liked``: values from here on count as 1, and others as 0; None: values are what they are.
    Memory: 12 bytes an event, and a dictionary of the keys. Raises FileError, also for ratings without
    ``liked``: values that differ and are all above 0.
    """
    if options.key is None:
        raise FileError("--key-column: an embedding is made of what the same keys liked: name their column")
    history, bad = History(files, options), BadRows(options.skip_bad)
    events = _Events(history, options, arms, liked, timed)
    with meter("read", history.rows_total, "rows") as advance:
        for table in history.tables:
            for rows in table.rows(options.columns):
                bad.note(table.path, [*rows.bad, *events.add(rows)])
                advance(len(rows) + len(rows.bad))
    if bad.refusal is not None:
        raise bad.refusal
    if not history.rows_total:
        raise FileError(f"{files[0]}: there are no rows in it")
    values = np.frombuffer(events.values, dtype=np.float32) if events.values else np.empty(0, np.float32)
    lines = [*history.notes]
    if options.value is not None and len(values):
        if liked is None and 0.0 < values.min() < values.max():
            raise FileError(
                f"--liked: all values of {shown(options.value)} are above 0, and they differ as ratings do: "
                "name the value from which on they mean liked, or --liked 0 where each of them does"
            )
        count, rule = np.count_nonzero(values > 0.0), "above 0" if liked is None else f"from {liked:g} on"
        lines.append(f"{count:,} of {counted(len(values), 'row', 'rows')} count as liked: {rule}")
    if not options.dry_run:
        bad.write()
    return Behaviour(
        np.frombuffer(events.keys, dtype=np.int32) if events.keys else np.empty(0, np.int32),
        np.frombuffer(events.arms, dtype=np.int32) if events.arms else np.empty(0, np.int32),
        values,
        len(events.key_numbers),
        events.unknown,
        [*lines, *bad.lines()],
        (events.first_ms, events.last_ms) if timed else None,
    )


class _Events:
    """What was read. A cell that was seen before is not parsed again: ids and ratings come many times."""

    def __init__(
        self,
        history: History,
        options: HistoryOptions,
        arms: Mapping[str, int],
        liked: float | None,
        timed: bool,
    ) -> None:
        self.keys, self.arms, self.values = array("i"), array("i"), array("f")
        self.key_numbers: dict[str, int] = {}
        self.unknown = 0
        self.first_ms, self.last_ms = math.inf, -math.inf
        key, value = options.key or "", options.value
        self._value = value

        def key_of(cell: Any) -> int:
            return self.key_numbers.setdefault(identifier_of(cell), len(self.key_numbers))

        def arm_of(cell: Any) -> int:
            return arms.get(identifier_of(cell), -1)

        def number_of(cell: Any) -> float:
            number = value_of(history.columns[value or ""], cell)
            return number if liked is None else float(number >= liked)

        self._columns: list[tuple[str, Callable[[Any], float]]] = [
            (key, _remembering(key_of)), (options.arm or "", _remembering(arm_of))
        ]  # fmt: skip
        if value is not None:
            self._columns.append((value, _remembering(number_of)))
        self._at = options.at if timed else None
        if self._at is not None:
            self._columns.append((self._at, _remembering(history.time_of)))

    def add(self, rows: Rows) -> list[BadRow]:
        """Take some rows; return those that are wrong."""
        bad = dict[int, BadRow]()
        numbers = [self._parsed(name, parse, rows, bad) for name, parse in self._columns]
        keys, arms = numbers[:2]
        values = [1.0] * len(rows) if self._value is None else numbers[2]
        for place in range(len(rows)):
            if bad and place in bad:
                continue
            if self._at is not None:
                self.first_ms = min(self.first_ms, numbers[-1][place])
                self.last_ms = max(self.last_ms, numbers[-1][place])
            if arms[place] < 0:
                self.unknown += 1
                continue
            self.keys.append(keys[place])  # type: ignore[arg-type]
            self.arms.append(arms[place])  # type: ignore[arg-type]
            self.values.append(values[place])
        return list(bad.values())

    @staticmethod
    def _parsed(name: str, parse: Callable[[Any], float], rows: Rows, bad: dict[int, BadRow]) -> list[float]:
        parsed = list[float]()
        for place, cell in enumerate(rows.cells[name]):
            try:
                parsed.append(parse(cell))
            except ValueError as error:
                parsed.append(-1)
                line = None if rows.lines is None else rows.lines[place]
                note_fault(bad, place, BadRow(rows.numbers[place], name, str(error), cell, line))
        return parsed


def _remembering(parse: Callable[[Any], T]) -> Callable[[Any], T]:
    """``parse``, which remembers what it made of the first cells that are different."""
    known = dict[Hashable, T]()

    def remembered(cell: Any) -> T:
        try:
            return known[cell]
        except KeyError:
            result = parse(cell)
            if len(known) < MOST_REMEMBERED:
                known[cell] = result
            return result
        except TypeError:  # a list, which is wrong anyway
            return parse(cell)

    return remembered
