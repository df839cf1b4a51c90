"""Who liked what, out of tables: arrays for an embedding of arms by behaviour.

Tables and columns are those of ``import --history``.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shortlist_client.phrases import counted
from shortlist_client.progress import meter
from shortlist_files.arm_rows import FileError
from shortlist_files.bad_rows import BadRows
from shortlist_files.history import History, HistoryOptions
from shortlist_files.tables import shown


@dataclass(frozen=True, slots=True, eq=False)
class Behaviour:
    """Events of known arms. ``unknown``: number of others, ``unknown_arm``: the arm of the first of these.
    ``lines``: sentences for the user. ``key_names``: of the keys, in the order of their numbers.

    Shapes: keys, arms and values (events,): numbers of keys below ``key_count``, and of arms. ``span_ms``:
    when the first and the last event were, also of unknown arms, ms since 1970; None: not asked for.
    """

    keys: NDArray[np.int32]
    arms: NDArray[np.int32]
    values: NDArray[np.float32]
    key_count: int
    unknown: int
    lines: Sequence[str]
    span_ms: tuple[float, float] | None = None
    unknown_arm: str = ""
    key_names: Sequence[str] = ()


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
    history = History(files, options if timed else options.without_times())
    bad = BadRows(options.skip_bad, history.rows_total)
    keys, numbers, values, key_numbers = array("i"), array("i"), array("f"), dict[str, int]()
    unknown, unknown_arm, first_ms, last_ms = 0, "", math.inf, -math.inf
    with meter("read", history.rows_total, "rows") as advance:
        for observed in history.observed():
            bad.note(observed.path, observed.bad)
            for _, key, arm, value, at_ms in observed.rows:
                if timed:
                    first_ms, last_ms = min(first_ms, at_ms), max(last_ms, at_ms)
                number = arms.get(arm, -1)
                # also keys of arms that are not known: they are counted
                key_number = key_numbers.setdefault(key, len(key_numbers))
                if number < 0:
                    unknown, unknown_arm = unknown + 1, unknown_arm or arm
                    continue
                keys.append(key_number)
                numbers.append(number)
                values.append(value if liked is None else float(value >= liked))
            advance(len(observed.rows) + len(observed.bad))
    if bad.refusal is not None:
        raise bad.refusal
    if not history.rows_total:
        raise FileError(f"{files[0]}: there are no rows in it")
    liked_values, lines = np.array(values, dtype=np.float32), [*history.notes]
    if options.value is not None and len(liked_values):
        lines.append(_liked_line(liked_values, options.value, liked))
    if not options.dry_run:
        bad.write()
    return Behaviour(
        np.array(keys, dtype=np.int32),
        np.array(numbers, dtype=np.int32),
        liked_values,
        len(key_numbers),
        unknown,
        [*lines, *bad.lines()],
        (first_ms, last_ms) if timed else None,
        unknown_arm,
        list(key_numbers),
    )


def _liked_line(values: NDArray[np.float32], column: str, liked: float | None) -> str:
    """How many rows count as liked. Raises FileError: the values are ratings, and ``liked`` is None."""
    if liked is None and 0.0 < values.min() < values.max():
        raise FileError(
            f"--liked: all values of {shown(column)} are above 0, and they differ as ratings do: "
            "name the value from which on they mean liked, or --liked 0 where each of them does"
        )
    count, rule = np.count_nonzero(values > 0.0), "above 0" if liked is None else f"from {liked:g} on"
    return f"{count:,} of {counted(len(values), 'row', 'rows')} count as liked: {rule}"
