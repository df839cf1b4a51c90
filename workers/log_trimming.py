"""Trimming the reward log: applied entries go when they are old, but none that is in the tail of a learner.

Learners whose tails need such an entry get a checkpoint first, so a tail is never older than the log is kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from typing import Protocol

from app.services.formats.records import POOLED, state_to_bytes
from app.services.learning.checkpoints import restored
from app.storage.protocol import LearnerId, LearnerStates, RewardLog, StoredLearner

log = logging.getLogger("shortlist.worker")

AT_ONCE = 16  # learners that are in memory together


class TrimmedStore(RewardLog, LearnerStates, Protocol):
    """What trimming needs of the store."""


class LogTrimmer:
    """Trims in small steps, between which whoever calls can do other work."""

    def __init__(self, store: TrimmedStore, *, reward_log_s: int) -> None:
        self._store = store
        self._reward_log_s = reward_log_s
        self._left: list[int] = []
        self._before_ms = 0

    @property
    def is_busy(self) -> bool:
        """Whether steps are left of what was begun."""
        return bool(self._left)

    def begin(self, partitions: Iterable[int]) -> None:
        """Drop in the next steps what is too old now."""
        self._left = list(partitions)
        self._before_ms = time.time_ns() // 1_000_000 - 1_000 * self._reward_log_s

    async def step(self) -> None:
        """Trim some entries of a partition, if anything is left to do. Raises Unavailable."""
        if not self._left:
            return
        partition = self._left[-1]
        trimmed = await self._store.trim_log(partition, self._before_ms, pooled=POOLED)
        freed = await self._free(partition, trimmed.held)
        if not freed or not (trimmed.held or trimmed.more):
            self._left.remove(partition)

    async def _free(self, partition: int, learners: Sequence[LearnerId]) -> bool:
        """Write checkpoints. False when there was none to write, or somebody applied rewards meanwhile."""
        for start in range(0, len(learners), AT_ONCE):
            some = learners[start : start + AT_ONCE]
            watermark = await self._store.watermark(partition)
            stored = await self._store.stored(partition, some)
            found = await asyncio.to_thread(_checkpoints, some, stored)
            if not found or not await self._store.apply(
                partition, expected=watermark, watermark=watermark, states=found
            ):
                return False
        return True


def _checkpoints(
    learners: Sequence[LearnerId], stored: Sequence[StoredLearner]
) -> dict[LearnerId, bytes | None]:
    found: dict[LearnerId, bytes | None] = {}
    for identity, each in zip(learners, stored, strict=True):
        try:
            state = restored(identity, each) if each.tail else None
        except Exception:
            log.exception("a learner cannot be read: its part of the reward log is not trimmed")
            continue
        if state is not None:
            found[identity] = state_to_bytes(state)
    return found
