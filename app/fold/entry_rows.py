"""Entries of the reward log as rows of features and values: what each adds to the sums of its learner."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import sub

import numpy as np

from app.fold.learner_sums import RewardRows
from app.records.log_entries import Item, RewardEntry
from app.records.records import bytes_to_vector
from app.storage.types import LogEntry
from shortlist.errors import InvalidShape


def signals_before(entry: LogEntry, reward: RewardEntry, count: int) -> tuple[list[float], bool]:
    """The values that the ``count`` signals of its decision and arm had before an entry: received ones, and
    defaults. And whether the entry replaces the value of its own signal.
    """
    values_before = [*reward.defaults, *(0.0,) * (count - len(reward.defaults))]
    came = dict(entry.came)
    for signal, value in came.items():
        values_before[signal] = value
    is_added = entry.first or reward.signal is None or (reward.sums and reward.signal in came)
    return values_before, not is_added


def rows_of(items: Sequence[Item]) -> RewardRows:
    """Make the rows of items of one space for the sums of their learners.

    With arm effects p times the served effect is taken off, once for a decision and arm. A reward of weight w
    gets sqrt(w) times the row.
    """
    signals = [signals_of(item) for item in items]
    count = max(signals)
    rows, first, positions, roots = list[bytes](), list[bool](), list[int](), list[float]()
    values, before = list[list[float]](), list[list[float]]()
    for position, (entry, reward) in enumerate(items):
        examined = 1.0 if reward.examined is None else reward.examined
        served = [examined * number for number in reward.served]
        for change, had_before, begins_it in changes_of(entry, reward, count):
            if served:
                less = change if begins_it else had_before
                less[: len(served)] = map(sub, less, served)
            rows.append(reward.features)
            roots.append(math.sqrt(reward.weight))
            values.append(change)
            before.append(had_before)
            first.append(begins_it)
            positions.append(position)
    if len(set(map(len, rows))) > 1:
        raise InvalidShape("features must have the same length as in the other rewards", argument="features")
    features = bytes_to_vector(b"".join(rows)).reshape(len(rows), -1)
    added, earlier = np.array(values), np.array(before)
    if any(root != 1.0 for root in roots):
        weights = np.array(roots)[:, None]
        features, added, earlier = weights * features, weights * added, weights * earlier
    return RewardRows(
        features,
        added,
        np.array(first),
        earlier,
        reward_at=np.array(positions),
        decided_ms=np.array([reward.decided_ms for _, reward in items]),
        half_life_s=np.array([reward.half_life_s for _, reward in items]),
        signals=np.array(signals),
        space=items[0][1].space,
    )


def changes_of(
    entry: LogEntry, reward: RewardEntry, count: int = 1
) -> Sequence[tuple[list[float], list[float], bool]]:
    """Return the additions of an entry to the rewards of its decision and arm, of ``count`` signals: values,
    the sums of those before, and whether the addition is the first. A replacement subtracts the earlier
    value, then adds its own.

    The first item of a decision and arm brings the defaults of all signals but its own, a later one changes
    its own signal alone.
    """
    own_signal = reward.signal
    if entry.first and count == 1 and own_signal == 0:
        return [([reward.value], [0.0], True)]  # nearly always
    values_before, replaces = signals_before(entry, reward, count)
    if entry.first:
        added = list(values_before)
        if own_signal is not None:
            added[own_signal] = reward.value
        return [(added, [0.0] * count, True)]
    if own_signal is None:
        return []
    changes = []
    if replaces and values_before[own_signal]:
        changes.append((_at(own_signal, -values_before[own_signal], count), list(values_before), False))
        values_before[own_signal] = 0.0
    return [*changes, (_at(own_signal, reward.value, count), values_before, False)]


def _at(signal: int, value: float, count: int) -> list[float]:
    return [value if number == signal else 0.0 for number in range(count)]


def signals_of(item: Item) -> int:
    """The number of signals an item names: those after the last of them are 0."""
    entry, reward = item
    count = max(len(reward.served), len(reward.defaults), (reward.signal or 0) + 1)
    return max(count, *(number + 1 for number, _ in entry.came)) if entry.came else count
