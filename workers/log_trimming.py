"""Trimming the reward log: applied entries go when old, except those in the tail of a learner.

Learners whose tails need such an entry get a checkpoint first, so a tail is never older than the log is kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterable, Sequence

from app.fold.checkpoints import read_together, restored
from app.records.records import state_to_bytes
from app.storage.store import Store
from app.storage.types import LearnerId, StoredLearner

log = logging.getLogger("shortlist.worker")

AT_ONCE_BYTES = 8 << 20  # of the states of learners that are read together


async def trim(store: Store, partitions: Iterable[int], *, reward_log_s: int) -> AsyncGenerator[int]:
    """Drop too old entries, partition by partition. Yields the partition after each small step, and the
    caller can do other work. Raises Unavailable.
    """
    before_ms = time.time_ns() // 1_000_000 - 1_000 * reward_log_s
    for partition in partitions:
        goes_on = True
        while goes_on:
            trimmed = await store.rewards.trim(partition, before_ms)
            # With learners in the way the trimming goes on if any of them is freed.
            waiting_learners, goes_on = (
                sorted(trimmed.needing_checkpoint),
                trimmed.more and not trimmed.needing_checkpoint,
            )
            # One at first: before the first read nobody knows the size of this bandit's states.
            together = 1
            while waiting_learners:
                yield partition
                uid = waiting_learners[0].bandit_uid
                learners = [learner for learner in waiting_learners[:together] if learner.bandit_uid == uid]
                waiting_learners = waiting_learners[len(learners) :]
                watermark = await store.learners.watermark(partition)
                stored = await store.learners.stored(partition, learners)
                states = await asyncio.to_thread(_checkpoints, learners, stored)
                # The watermark is unchanged: the states are the same, stored in another form, so other
                # processes need not read them again.
                if not await store.learners.apply(
                    partition, expected=watermark, watermark=watermark, states=states
                ):
                    goes_on = False  # somebody applied rewards meanwhile
                    break
                if states:  # they are all of one size
                    goes_on = True
                    together = read_together(max(map(len, states.values())), most_bytes=AT_ONCE_BYTES)
                if waiting_learners and waiting_learners[0].bandit_uid != uid:
                    together = 1
            yield partition


def _checkpoints(learners: Sequence[LearnerId], stored: Sequence[StoredLearner]) -> dict[LearnerId, bytes]:
    result: dict[LearnerId, bytes] = {}
    for identity, stored_learner in zip(learners, stored, strict=True):
        try:
            state = restored(identity, stored_learner) if stored_learner.tail else None
        except Exception:
            log.exception("a learner cannot be read: its part of the reward log is not trimmed")
            continue
        if state is not None:
            result[identity] = state_to_bytes(state)
    return result
