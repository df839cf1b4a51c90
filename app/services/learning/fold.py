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
from app.algorithms.types import Matrix, Rows, Vector
from app.errors import InvalidShape, ShortlistError
from app.services.formats.records import (
    POOL,
    LearnerState,
    RewardPayload,
    RewardTerms,
    bytes_to_vector,
    unpack,
)
from app.storage.protocol import LearnerId, LogEntry

log = logging.getLogger("shortlist.reducer")

Item = tuple[LogEntry, RewardPayload]
NO_TERMS = RewardTerms()


def pool_of(learner: LearnerId) -> LearnerId:
    """The learner that sums all learners of the bandit that its partition holds."""
    return LearnerId(learner.bandit_uid, POOL)


def learners_of(entries: Sequence[LogEntry]) -> list[LearnerId]:
    """The learners whose states ``fold`` needs: those that are named, and the pools of their bandits."""
    return sorted(
        {learner for entry in entries for learner in (entry.learner, pool_of(entry.learner))},
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
    yield from _add_to(now, pooled, lambda entry: pool_of(entry.learner), log_and_forget)


def _add_to(
    now: dict[LearnerId, LearnerState | None],
    items: Sequence[Item],
    taught: Callable[[LogEntry], LearnerId],
    bury: Bury,
) -> Iterator[LearnerId]:
    by_learner: dict[LearnerId, list[Item]] = {}
    for entry, payload in items:
        by_learner.setdefault(taught(entry), []).append((entry, payload))
    alike: dict[object, dict[LearnerId, list[Item]]] = {}
    for identity, own in by_learner.items():
        alike.setdefault(_kind(own[0][1]), {})[identity] = own
    for group in alike.values():
        _add(now, group, bury)
    yield from by_learner


def _kind(payload: RewardPayload) -> object:
    """Learners whose items are of one kind are folded together."""
    terms = payload.terms or NO_TERMS
    return len(payload.features), terms.shifted, bool(terms.half_life_s)


def _forget(now: dict[LearnerId, LearnerState | None], items: Sequence[Item]) -> Iterator[LearnerId]:
    for entry, _ in items:
        identity, pool = entry.learner, pool_of(entry.learner)
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


def _add(
    now: dict[LearnerId, LearnerState | None], group: Mapping[LearnerId, list[Item]], bury: Bury
) -> None:
    """All learners together; if that fails each by itself, and then each of its items."""
    try:
        now.update(_added(now, group))
    except Exception as error:  # what an entry does not say today, a bug may say tomorrow
        parts = _parts(group)
        for part in parts:
            _add(now, part, bury)
        if not parts:
            ((identity, [(entry, _)]),) = group.items()
            now.setdefault(identity, None)
            bury(entry, reason_of(error))


def _parts(group: Mapping[LearnerId, list[Item]]) -> list[dict[LearnerId, list[Item]]]:
    """The learners, or the items of the only one; nothing if there is but one item."""
    if len(group) > 1:
        return [{identity: items} for identity, items in group.items()]
    ((identity, items),) = group.items()
    return [{identity: [item]} for item in items] if len(items) > 1 else []


def _added(
    now: Mapping[LearnerId, LearnerState | None], group: Mapping[LearnerId, list[Item]]
) -> dict[LearnerId, LearnerState]:
    """The states after the items of a group, which are of one kind."""
    items = [item for own in group.values() for item in own]
    features, values, first, places = _rows(items)
    nothing = ridge.empty(features.shape[1])
    before = [now.get(identity) or LearnerState(0, nothing) for identity in group]
    if (items[0][1].terms or NO_TERMS).half_life_s:
        discounted = map(_add_discounted, before, group.values())
        return dict(zip(group, discounted, strict=True))
    counts = [len(own) for own in group.values()]
    owners = np.repeat(np.arange(len(group)), counts)[places]
    sums = ridge.add_each([state.sums for state in before], owners, features, values, first)
    states = (LearnerState(b.version + n, s) for b, n, s in zip(before, counts, sums, strict=True))
    return dict(zip(group, states, strict=True))


def _add_discounted(state: LearnerState, items: Sequence[Item]) -> LearnerState:
    """One after the other: the newest decision moves the time on, and what is older weighs less."""
    for item in items:
        terms = item[1].terms or NO_TERMS
        time_ms = max(state.time_ms, terms.decided_ms)
        sums = scaled(state.sums, weight(time_ms - state.time_ms, terms.half_life_s))
        features, values, first, _ = _rows([item])
        root = math.sqrt(weight(time_ms - terms.decided_ms, terms.half_life_s))
        sums = ridge.add(sums, root * features, root * values, first)
        state = LearnerState(state.version + 1, sums, time_ms, terms.half_life_s)
    return state


def _rows(items: Sequence[Item]) -> tuple[Matrix, Vector, NDArray[np.bool_], Rows]:
    """Features, values, whether the first of a decision, and of which item; a replaced default goes as it is.

    Shifted, all rewards R of a decision together teach [x'] with R / 2 + 1 / 2: the first brings the 1 / 2.
    """
    rows, values, first, places = list[bytes](), list[float](), list[bool](), list[int]()
    for place, (entry, payload) in enumerate(items):
        if entry.replaces:
            rows.append(payload.features)
            values.append(-(payload.terms or NO_TERMS).default)
            first.append(False)
            places.append(place)
        rows.append(payload.features)
        values.append(payload.value)
        first.append(entry.first)
        places.append(place)
    if len(set(map(len, rows))) > 1:
        raise InvalidShape("features must be as many as in the other rewards", loc=("features",))
    features = bytes_to_vector(b"".join(rows)).reshape(len(rows), -1)
    found = features, np.array(values), np.array(first), np.array(places)
    if (items[0][1].terms or NO_TERMS).shifted:
        return shift_features(features), found[1] / 2 + found[2] / 2, *found[2:]
    return found
