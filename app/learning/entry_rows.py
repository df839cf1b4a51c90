"""Entries of the reward log as rows of features and values: what each adds to the sums of its learner."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.records.records import RewardPayload, RewardSource, RewardTerms, SignalTerms, bytes_to_vector, unpack
from app.storage.types import LogEntry
from shortlist.errors import InvalidShape
from shortlist.linear.shifted_rewards import shift_features
from shortlist.types import Matrix, Rows, Vector

Item = tuple[LogEntry, RewardPayload]
NO_TERMS = RewardTerms()
NO_SIGNAL = SignalTerms(None)


def source_of(entry: LogEntry) -> RewardSource | None:
    """What an entry is of; None: nobody noted it, or nobody can read it. The fold needs none of it."""
    try:
        return unpack(entry.source, RewardSource) if entry.source else None
    except msgspec.DecodeError:
        return None


def replaced_by(entry: LogEntry, payload: RewardPayload) -> float | None:
    """The value that an entry of a bandit without signals replaces: a default or, where only the last reward
    counts, the earlier one of the same decision and arm. None: it replaces none, and is added.
    """
    if entry.came:
        return entry.came[0][1]
    return (payload.terms or NO_TERMS).default if entry.replaces else None


def signals_before(entry: LogEntry, payload: RewardPayload, count: int) -> tuple[Vector, bool]:
    """The values that the signals of its decision and arm had before an entry: received ones, and defaults.

    And whether the entry replaces the value of its own signal. Shape: (count,).
    """
    terms, had = payload.signal or NO_SIGNAL, np.zeros(count)
    had[: len(terms.defaults) // 8] = bytes_to_vector(terms.defaults)
    came = dict(entry.came)
    for signal, value in came.items():
        had[signal] = value
    own = terms.place
    is_added = entry.first or own is None or (terms.sums and own in came)
    return had, not is_added and bool(had[own or 0])


def rows_of(items: Sequence[Item]) -> tuple[Matrix, Vector, NDArray[np.bool_], Vector, Rows]:
    """What the items add: features, values, whether the first of a decision, the sum of its rewards before,
    and of which item each row is. Values and sums are of each signal, if there are signals.

    An entry that replaces a value is two rows: one that subtracts that value, and its own. Shifted, all
    rewards R of a decision together count as R / 2 + 1 / 2 for [x']: the first of them adds the 1 / 2.

    Shapes: n rows of m items -> (n, d), (n,), (n,), (n,), (n,); m <= n <= 2 m. Of J signals (n, J) each.
    """
    if items[0][1].signal is not None:
        return _signal_rows(items)
    rows, values, first, positions = list[bytes](), list[float](), list[bool](), list[int]()
    before = list[float]()
    for place, (entry, payload) in enumerate(items):
        if (replaced := replaced_by(entry, payload)) is not None:
            rows.append(payload.features)
            # ``first`` is False for both rows: the features were added to V with the value that goes
            values.append(-replaced)
            before.append(replaced)
            first.append(False)
            positions.append(place)
        rows.append(payload.features)
        values.append(payload.value)
        before.append(entry.before)
        first.append(entry.first)
        positions.append(place)
    features = _features(rows)
    begins, added, had = np.array(first), np.array(values), np.array(before)
    if (items[0][1].terms or NO_TERMS).shifted:
        features, added, had = shift_features(features), added / 2 + begins / 2, had / 2 + ~begins / 2
    return features, added, begins, had, np.array(positions)


def _features(rows: Sequence[bytes]) -> Matrix:
    if len(set(map(len, rows))) > 1:
        raise InvalidShape("features must have the same length as in the other rewards", argument="features")
    return bytes_to_vector(b"".join(rows)).reshape(len(rows), -1)


def signals_of(item: Item) -> int:
    """How many signals an item names: those after the last of them are 0."""
    entry, payload = item
    terms = payload.signal or NO_SIGNAL
    places = [place for place, _ in entry.came]
    return max(1, len(terms.defaults) // 8, *(place + 1 for place in (*places, terms.place or 0)))


def _signal_rows(items: Sequence[Item]) -> tuple[Matrix, Vector, NDArray[np.bool_], Vector, Rows]:
    """As ``rows_of``. The first item of a decision and arm brings the defaults of all signals but its own.

    A later item changes its own signal alone: one row subtracts the value that it replaces, the default or
    an earlier one, and one adds its own.
    """
    count = max(map(signals_of, items))
    rows, first, positions = list[bytes](), list[bool](), list[int]()
    values, before = list[Vector](), list[Vector]()

    def add(place: int, added: Vector, had: Vector, *, begins: bool) -> None:
        rows.append(items[place][1].features)
        values.append(added)
        before.append(had)
        first.append(begins)
        positions.append(place)

    for place, (entry, payload) in enumerate(items):
        had, replaces = signals_before(entry, payload, count)
        own, added = (payload.signal or NO_SIGNAL).place, np.zeros(count)
        if entry.first:
            added[:] = had
            if own is not None:
                added[own] = payload.value
            add(place, added, np.zeros(count), begins=True)
        elif own is not None:
            if replaces:
                taken = np.zeros(count)
                taken[own] = -had[own]
                add(place, taken, had, begins=False)
                had = had + taken
            added[own] = payload.value
            add(place, added, had, begins=False)
    return _features(rows), np.array(values), np.array(first), np.array(before), np.array(positions)
