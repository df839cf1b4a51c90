"""Folding the reward log into learners: the one function that decides what a log means.

It is pure, and bit-identical however the log is cut into batches, so a replay of the log from the start
gives the stored states again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

import msgspec
import numpy as np

from app.algorithms.linear import ridge
from app.errors import ShortlistError
from app.services.learners import LearnerId
from app.services.records import LearnerState, RewardPayload, bytes_to_vector, unpack
from app.storage.protocol import LogEntry

log = logging.getLogger("shortlist.reducer")


Bury = Callable[[LogEntry, str], None]


def log_and_forget(entry: LogEntry, reason: str) -> None:
    log.error("entry %s is left out: %s", entry.entry_id, reason)


def fold(
    states: Mapping[LearnerId, LearnerState | None],
    entries: Sequence[LogEntry],
    bury: Bury = log_and_forget,
) -> dict[LearnerId, LearnerState | None]:
    """Return the states after ``entries`` (in log order) of the learners that they name.

    An entry without features forgets the learner. One that cannot be folded is left out, whatever is wrong
    with it, and handed to ``bury`` with the reason.
    """
    by_learner: dict[LearnerId, list[tuple[LogEntry, RewardPayload]]] = {}
    for entry in entries:
        try:
            payload = unpack(entry.payload, RewardPayload)
        except msgspec.DecodeError as error:
            bury(entry, reason_of(error))
            continue
        by_learner.setdefault((entry.bandit_uid, entry.learner), []).append((entry, payload))
    return {
        identity: _fold_learner(states.get(identity), items, bury) for identity, items in by_learner.items()
    }


def reason_of(error: Exception) -> str:
    """In words that repeat nothing of the entry."""
    return f"{type(error).__name__}: {error.detail if isinstance(error, ShortlistError) else error}"[:200]


def _fold_learner(
    state: LearnerState | None, items: Sequence[tuple[LogEntry, RewardPayload]], bury: Bury
) -> LearnerState | None:
    for forget, group in groupby(items, key=lambda item: not item[1].features):
        state = None if forget else _add(state, list(group), bury)
    return state


def _add(
    state: LearnerState | None, items: Sequence[tuple[LogEntry, RewardPayload]], bury: Bury
) -> LearnerState | None:
    try:
        features = np.array([bytes_to_vector(payload.features) for _, payload in items])
        before = state or LearnerState(0, ridge.empty(features.shape[1]))
        sums = ridge.add(
            before.sums,
            features,
            np.array([payload.value for _, payload in items]),
            np.array([entry.first for entry, _ in items]),
        )
    except Exception as error:  # what an entry does not say today, a bug may say tomorrow
        if len(items) == 1:
            bury(items[0][0], reason_of(error))
            return state
        for item in items:
            state = _add(state, [item], bury)
        return state
    return LearnerState(before.version + len(items), sums)
