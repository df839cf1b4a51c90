"""Folding the reward log into learners: the one function that decides what a log means.

It is pure, and bit-identical however the log is cut into batches, so a replay of the log from the start
gives the stored states again.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.algorithms.linear import ridge
from app.algorithms.linear.shifted_rewards import shift_features
from app.algorithms.linear.sum_algebra import minus, scaled, weight
from app.algorithms.types import Matrix, Vector
from app.errors import ShortlistError
from app.services.learners import LearnerId
from app.services.records import POOL, LearnerState, RewardPayload, RewardTerms, bytes_to_vector, unpack
from app.storage.protocol import LogEntry

log = logging.getLogger("shortlist.reducer")

Item = tuple[LogEntry, RewardPayload]
NO_TERMS = RewardTerms()


def learners_of(entries: Sequence[LogEntry]) -> list[LearnerId]:
    """The learners whose states ``fold`` needs: those that are named, and the pools of their bandits."""
    return sorted(
        {(entry.bandit_uid, name) for entry in entries for name in (entry.learner, POOL)},
    )


Bury = Callable[[LogEntry, str], None]


def log_and_forget(entry: LogEntry, reason: str) -> None:
    log.error("entry %s is left out: %s", entry.entry_id, reason)


def fold(
    states: Mapping[LearnerId, LearnerState | None],
    entries: Sequence[LogEntry],
    bury: Bury = log_and_forget,
) -> dict[LearnerId, LearnerState | None]:
    """Return the states after ``entries`` (in log order) of the learners that they change.

    An entry without features forgets the learner, also in the pool. One that cannot be folded is left out,
    whatever is wrong with it, and handed to ``bury`` with the reason.
    """
    now, changed = dict(states), dict[LearnerId, None]()
    for forget, group in groupby(_readable(entries, bury), key=lambda item: not item[1].features):
        items = list(group)
        changed.update(dict.fromkeys(_forget(now, items) if forget else _learn(now, items, bury)))
    return {identity: now[identity] for identity in changed}


def reason_of(error: Exception) -> str:
    """In words that repeat nothing of the entry."""
    return f"{type(error).__name__}: {error.detail if isinstance(error, ShortlistError) else error}"[:200]


def _readable(entries: Sequence[LogEntry], bury: Bury) -> Iterator[Item]:
    for entry in entries:
        try:
            payload = unpack(entry.payload, RewardPayload)
        except msgspec.DecodeError as error:
            bury(entry, reason_of(error))
        else:
            yield entry, payload


def _learn(
    now: dict[LearnerId, LearnerState | None], items: Sequence[Item], bury: Bury
) -> Iterator[LearnerId]:
    buried: set[str] = set()

    def left_out(entry: LogEntry, reason: str) -> None:
        buried.add(entry.entry_id)
        bury(entry, reason)

    yield from _add_to(now, items, lambda entry: entry.learner, left_out)
    pooled = [i for i in items if i[1].terms and i[1].terms.pooled and i[0].entry_id not in buried]
    yield from _add_to(now, pooled, lambda entry: POOL, log_and_forget)  # noqa: ARG005


def _add_to(
    now: dict[LearnerId, LearnerState | None],
    items: Sequence[Item],
    name: Callable[[LogEntry], str],
    bury: Bury,
) -> Iterator[LearnerId]:
    by_learner: dict[LearnerId, list[Item]] = {}
    for entry, payload in items:
        by_learner.setdefault((entry.bandit_uid, name(entry)), []).append((entry, payload))
    for identity, own in by_learner.items():
        now[identity] = _add(now.get(identity), own, bury)
        yield identity


def _forget(now: dict[LearnerId, LearnerState | None], items: Sequence[Item]) -> Iterator[LearnerId]:
    for entry, _ in items:
        identity, pool = (entry.bandit_uid, entry.learner), (entry.bandit_uid, POOL)
        taught, pooled = now.get(identity), now.get(pool)
        if taught is not None and pooled is not None:
            now[pool] = _without(pooled, taught)
            yield pool
        now[identity] = None
        yield identity


def _without(pool: LearnerState, learner: LearnerState) -> LearnerState:
    sums = learner.sums
    if learner.half_life_s:
        sums = scaled(sums, weight(pool.time_ms - learner.time_ms, learner.half_life_s))
    left = minus(pool.sums, sums)
    return LearnerState(pool.version + 1, left, pool.time_ms, pool.half_life_s)


def _add(state: LearnerState | None, items: Sequence[Item], bury: Bury) -> LearnerState | None:
    try:
        rows, values, first = _rows(items)
        before = state or LearnerState(0, ridge.empty(rows.shape[1]))
        if (items[0][1].terms or NO_TERMS).half_life_s:
            return _add_discounted(before, items)
        sums = ridge.add(before.sums, rows, values, first)
    except Exception as error:  # what an entry does not say today, a bug may say tomorrow
        if len(items) == 1:
            bury(items[0][0], reason_of(error))
            return state
        for item in items:
            state = _add(state, [item], bury)
        return state
    return LearnerState(before.version + len(items), sums)


def _add_discounted(state: LearnerState, items: Sequence[Item]) -> LearnerState:
    """One after the other: the newest decision moves the time on, and what is older weighs less."""
    for item in items:
        terms = item[1].terms or NO_TERMS
        time_ms = max(state.time_ms, terms.decided_ms)
        sums = scaled(state.sums, weight(time_ms - state.time_ms, terms.half_life_s))
        features, values, first = _rows([item])
        root = math.sqrt(weight(time_ms - terms.decided_ms, terms.half_life_s))
        sums = ridge.add(sums, root * features, root * values, first)
        state = LearnerState(state.version + 1, sums, time_ms, terms.half_life_s)
    return state


def _rows(items: Sequence[Item]) -> tuple[Matrix, Vector, NDArray[np.bool_]]:
    """Features, values, whether the first of a decision; a replaced default goes as it came.

    Shifted, all rewards R of a decision together teach [x'] with R / 2 + 1 / 2: the first brings the 1 / 2.
    """
    features, values, first = [], [], []
    for entry, payload in items:
        row = bytes_to_vector(payload.features)
        if entry.replaces:
            features.append(row)
            values.append(-(payload.terms or NO_TERMS).default)
            first.append(False)
        features.append(row)
        values.append(payload.value)
        first.append(entry.first)
    if (items[0][1].terms or NO_TERMS).shifted:
        return shift_features(np.array(features)), np.array(values) / 2 + np.array(first) / 2, np.array(first)
    return np.array(features), np.array(values), np.array(first)
