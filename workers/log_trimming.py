"""Trimming the reward log: applied entries go when they are old, but none that is in the tail of a learner.

Learners whose tails need such an entry get a checkpoint first, so a tail is never older than the log is kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence

from app.learning.checkpoints import read_together, restored
from app.records.records import POOLED, state_to_bytes
from app.storage.store import Store
from app.storage.types import LearnerId, StoredLearner

log = logging.getLogger("shortlist.worker")

AT_ONCE_BYTES = 8 << 20  # of the states of learners that are read together


class LogTrimmer:
    """Trims in small steps, between which the caller can do other work."""

    def __init__(self, store: Store, *, reward_log_s: int) -> None:
        self._store = store
        self._reward_log_s = reward_log_s
        self._before_ms = 0
        self._partitions: list[int] = []  # those that are to be trimmed, the last of them now
        self._held: list[LearnerId] = []  # learners of that partition that need a checkpoint
        self._count = 1  # of them that are done together
        self._freed = True

    @property
    def is_busy(self) -> bool:
        """Whether steps are left of what was begun."""
        return bool(self._partitions)

    def begin(self, partitions: Iterable[int]) -> None:
        """Drop in the next steps what is too old now."""
        self._partitions, self._held = list(partitions), []
        self._before_ms = time.time_ns() // 1_000_000 - 1_000 * self._reward_log_s

    async def step(self) -> None:
        """Trim some entries of a partition, or write checkpoints of some learners. Raises Unavailable."""
        if not self._partitions:
            return
        partition = self._partitions[-1]
        goes_on = await (self._free(partition) if self._held else self._trim(partition))
        if not goes_on:
            self._partitions.pop()
            self._held = []

    async def _trim(self, partition: int) -> bool:
        """False when nothing is left to do."""
        trimmed = await self._store.rewards.trim(partition, self._before_ms, pooled=POOLED)
        # one at first: until it is read nobody knows how large the states of this bandit are
        self._held, self._count, self._freed = sorted(trimmed.held), 1, False
        return bool(trimmed.held) or trimmed.more

    async def _free(self, partition: int) -> bool:
        """False when no checkpoint could be written, or somebody applied rewards meanwhile."""
        uid = self._held[0].bandit_uid
        # Of one bandit: its states are all of one size, so the next batch can be told from this one.
        learners = [learner for learner in self._held[: self._count] if learner.bandit_uid == uid]
        self._held = self._held[len(learners) :]
        watermark = await self._store.learners.watermark(partition)
        stored = await self._store.learners.stored(partition, learners)
        result = await asyncio.to_thread(_checkpoints, learners, stored)
        # The watermark stays where it is: the states are the same, stored in another form, so other processes
        # need not read them again.
        if not await self._store.learners.apply(
            partition, expected=watermark, watermark=watermark, states=result
        ):
            return False
        if result:  # they are all of one size
            self._freed = True
            self._count = read_together(max(map(len, result.values())), most_bytes=AT_ONCE_BYTES)
        # the states of another bandit may be larger
        if self._held and self._held[0].bandit_uid != uid:
            self._count = 1
        return bool(self._held) or self._freed


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
