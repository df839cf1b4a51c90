"""Folding the reward log into learners: the one function that decides what a log means.

It is pure, and bit-identical however the log is cut into batches, so a replay of the log from the start
gives the stored states again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import groupby

import msgspec
import numpy as np

from app.algorithms.linear import ridge
from app.errors import Invalid
from app.services.learners import LearnerId
from app.services.records import LearnerState, RewardPayload, bytes_to_vector, unpack
from app.storage.protocol import LogEntry

log = logging.getLogger("shortlist.reducer")


def fold(
    states: Mapping[LearnerId, LearnerState | None], entries: Sequence[LogEntry]
) -> dict[LearnerId, LearnerState | None]:
    """Return the states after ``entries`` (in log order) of the learners that they name.

    An entry without features forgets the learner. An entry that cannot be read is left out and logged.
    """
    by_learner: dict[LearnerId, list[tuple[LogEntry, RewardPayload]]] = {}
    for entry in entries:
        try:
            payload = unpack(entry.payload, RewardPayload)
        except msgspec.DecodeError:
            log.exception("entry %s cannot be read and is left out", entry.entry_id)
            continue
        by_learner.setdefault((entry.bandit_uid, entry.learner), []).append((entry, payload))
    return {identity: _fold_learner(states.get(identity), items) for identity, items in by_learner.items()}


def _fold_learner(
    state: LearnerState | None, items: Sequence[tuple[LogEntry, RewardPayload]]
) -> LearnerState | None:
    for forget, group in groupby(items, key=lambda item: not item[1].features):
        state = None if forget else _add(state, list(group))
    return state


def _add(state: LearnerState | None, items: Sequence[tuple[LogEntry, RewardPayload]]) -> LearnerState | None:
    try:
        features = np.array([bytes_to_vector(payload.features) for _, payload in items])
        before = state or LearnerState(0, ridge.empty(features.shape[1]))
        sums = ridge.add(
            before.sums,
            features,
            np.array([payload.value for _, payload in items]),
            np.array([entry.first for entry, _ in items]),
        )
    except (Invalid, ValueError):
        if len(items) == 1:
            log.exception("entry %s cannot be applied and is left out", items[0][0].entry_id)
            return state
        for item in items:
            state = _add(state, [item])
        return state
    return LearnerState(before.version + len(items), sums)
