"""Entries of the reward log as rows of features and values: what each adds to the sums of its learner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import sub

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.records.arm_sums import NUMBER_BYTES, numbers_of
from app.records.records import RewardPayload, RewardSource, RewardTerms, SignalTerms, bytes_to_vector, unpack
from app.storage.types import LogEntry
from shortlist.errors import InvalidShape
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


def payload_of(entry: LogEntry) -> RewardPayload | None:
    """What an entry adds; None: nobody can read it, so it is a dead letter."""
    try:
        return unpack(entry.payload, RewardPayload)
    except msgspec.DecodeError:
        return None


def replaced_by(entry: LogEntry, payload: RewardPayload) -> float | None:
    """The value that an entry of a bandit without signals replaces: a default or, where only the last reward
    counts, the earlier one of the same decision and arm. None: it replaces none, and is added.
    """
    if entry.came:
        return entry.came[0][1]
    return (payload.terms or NO_TERMS).default if entry.replaces else None


def signals_before(entry: LogEntry, payload: RewardPayload, count: int) -> tuple[list[float], bool]:
    """The values that the ``count`` signals of its decision and arm had before an entry: received ones, and
    defaults. And whether the entry replaces the value of its own signal.
    """
    terms = payload.signal or NO_SIGNAL
    values_before = bytes_to_vector(terms.defaults).tolist()
    values_before += [0.0] * (count - len(values_before))
    came = dict(entry.came)
    for signal, value in came.items():
        values_before[signal] = value
    own_signal = terms.place
    is_added = entry.first or own_signal is None or (terms.sums and own_signal in came)
    return values_before, not is_added and bool(values_before[own_signal or 0])


def rows_of(items: Sequence[Item]) -> tuple[Matrix, Vector, NDArray[np.bool_], Vector, Rows]:
    """What the items add: features, values, whether the first of a decision, the sum of its rewards before,
    and of which item each row is. Values and sums are of each signal, if there are signals.

    An entry that replaces a value is two rows: one that subtracts that value, and its own. With arm effects p
    times the effect that was served is taken off, once for a decision and arm.

    Shapes: n rows of m items -> (n, d), (n,), (n,), (n,), (n,); m <= n <= 2 m. Of J signals (n, J) each.
    """
    has_signals = items[0][1].signal is not None
    count = max(map(signals_of, items)) if has_signals else 1
    rows, first, positions = list[bytes](), list[bool](), list[int]()
    values, before = list[list[float]](), list[list[float]]()
    for position, (entry, payload) in enumerate(items):
        served = [0.0] * count
        if payload.effect is not None:
            examined = payload.effect.examined
            of_signals = [examined * number for number in numbers_of(payload.effect.served)[:count]]
            served[: len(of_signals)] = of_signals
        for change, had_before, begins_it in changes_of(entry, payload, count):
            rows.append(payload.features)
            values.append(list(map(sub, change, served)) if begins_it else change)
            before.append(had_before if begins_it else list(map(sub, had_before, served)))
            first.append(begins_it)
            positions.append(position)
    features = _features(rows)
    begins, added, sums_before = np.array(first), np.array(values), np.array(before)
    if not has_signals:
        added, sums_before = added[:, 0], sums_before[:, 0]
    return features, added, begins, sums_before, np.array(positions)


def changes_of(
    entry: LogEntry, payload: RewardPayload, count: int = 1
) -> Iterator[tuple[list[float], list[float], bool]]:
    """What an entry adds to the rewards of its decision and arm, of ``count`` signals or the only reward:
    values, the sums of those before, and whether it is the first. One that replaces a value subtracts that,
    and then adds its own.

    The first item of a decision and arm brings the defaults of all signals but its own, a later one changes
    its own signal alone.
    """
    if payload.signal is None:
        if (replaced := replaced_by(entry, payload)) is not None:
            # No row is the first: the features were added to V with the value that goes.
            yield [-replaced], [replaced], False
        yield [payload.value], [entry.before], entry.first
        return
    values_before, replaces = signals_before(entry, payload, count)
    own_signal = payload.signal.place
    if entry.first:
        added = list(values_before)
        if own_signal is not None:
            added[own_signal] = payload.value
        yield added, [0.0] * count, True
    elif own_signal is not None:
        if replaces:
            yield _at(own_signal, -values_before[own_signal], count), list(values_before), False
            values_before[own_signal] = 0.0
        yield _at(own_signal, payload.value, count), values_before, False


def _at(signal: int, value: float, count: int) -> list[float]:
    return [value if number == signal else 0.0 for number in range(count)]


def _features(rows: Sequence[bytes]) -> Matrix:
    if len(set(map(len, rows))) > 1:
        raise InvalidShape("features must have the same length as in the other rewards", argument="features")
    return bytes_to_vector(b"".join(rows)).reshape(len(rows), -1)


def signals_of(item: Item) -> int:
    """How many signals an item names: those after the last of them are 0."""
    entry, payload = item
    terms = payload.signal or NO_SIGNAL
    places = [number for number, _ in entry.came]
    served = 0 if payload.effect is None else len(payload.effect.served) // NUMBER_BYTES
    return max(1, served, len(terms.defaults) // 8, *(number + 1 for number in (*places, terms.place or 0)))
