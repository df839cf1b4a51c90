"""Pools: what all keys of a bandit have taught together, summed over the partitions that keep a part each.

The reducer keeps a partition's part exact, and takes a forgotten learner out of it. Here it is read when it
is needed and older than ``MAX_AGE_S``; an older one serves only while the store does not answer.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass
from functools import reduce

from app.algorithms.linear import sum_algebra
from app.algorithms.linear.pooled_prior import with_pooled_prior
from app.algorithms.linear.ridge import RidgeSums
from app.errors import Unavailable
from app.services.bandits.bandits import Bandit
from app.services.formats.records import POOL, LearnerState, bytes_to_state
from app.storage.protocol import LearnerId, LearnerStates

MAX_AGE_S = 1.0
PATIENCE_S = 0.2  # how long one that is too old waits to be read, before it serves


@dataclass(slots=True)
class Pool:
    """``state`` is None before the first reward of any key."""

    state: LearnerState | None
    read_at: float

    @property
    def bytes(self) -> int:
        return 400 + (0 if self.state is None else 2 * self.state.sums.total.nbytes)


class Pools:
    """The pools of the bandits that this process has served with one."""

    def __init__(self, store: LearnerStates, *, capacity_bytes: int) -> None:
        self._store = store
        self._capacity = capacity_bytes
        self._pools: OrderedDict[str, Pool] = OrderedDict()
        self._reading: dict[str, asyncio.Task[Pool]] = {}

    async def with_prior(self, bandit: Bandit, own: LearnerState, *, anew: bool = False) -> RidgeSums:
        """The sums of a key with those of all others as its prior; ``anew``: as the store has them now."""
        pool = (await self._read_now(bandit.uid)).state if anew else await self.get(bandit)
        if pool is None:
            return own.sums
        mine = _at(own, pool.time_ms)
        others = sum_algebra.minus(pool.sums, mine.sums)
        return with_pooled_prior(own.sums, others, strength=bandit.record.prior_strength)

    async def get(self, bandit: Bandit) -> LearnerState | None:
        """The pool as it was within the last ``MAX_AGE_S``, or earlier while the store does not answer."""
        pool = self._pools.get(bandit.uid)
        if pool is None:
            return (await asyncio.shield(self._read(bandit.uid))).state
        self._pools.move_to_end(bandit.uid)
        if time.monotonic() - pool.read_at <= MAX_AGE_S:
            return pool.state
        try:
            return (await asyncio.wait_for(asyncio.shield(self._read(bandit.uid)), PATIENCE_S)).state
        except (TimeoutError, Unavailable):
            return pool.state

    def _read(self, uid: str) -> asyncio.Task[Pool]:
        task = self._reading.get(uid)
        if task is None:
            task = self._reading[uid] = asyncio.create_task(self._read_now(uid))
            task.add_done_callback(lambda done: self._finished(uid, done))
        return task

    async def _read_now(self, uid: str) -> Pool:
        started = time.monotonic()
        parts = await asyncio.gather(
            *(
                self._store.states(partition, [LearnerId(uid, POOL)])
                for partition in range(self._store.partitions)
            )
        )
        states = [bytes_to_state(data) for (data,) in parts if data is not None]
        newest = max((state.time_ms for state in states), default=0)
        total = reduce(_plus, (_at(state, newest) for state in states)) if states else None
        pool = Pool(total, started)
        self._keep(uid, pool)
        return pool

    def _keep(self, uid: str, pool: Pool) -> None:
        """The least recently used ones go when all together take more memory than they may."""
        self._pools[uid] = pool
        self._pools.move_to_end(uid)
        taken = sum(kept.bytes for kept in self._pools.values())
        while taken > self._capacity and len(self._pools) > 1:
            taken -= self._pools.popitem(last=False)[1].bytes

    def _finished(self, uid: str, task: asyncio.Task[Pool]) -> None:
        """A background read that failed is tried again by the next caller."""
        del self._reading[uid]
        if not task.cancelled() and not isinstance(task.exception(), Unavailable | None):
            raise task.exception()  # type: ignore[misc]  # not None: a mistake, for the loop's log


def _at(state: LearnerState, time_ms: int) -> LearnerState:
    """The state as it counts at a later time."""
    if not state.half_life_s:
        return state
    factor = sum_algebra.weight(time_ms - state.time_ms, state.half_life_s)
    return LearnerState(state.version, sum_algebra.scaled(state.sums, factor), time_ms, state.half_life_s)


def _plus(a: LearnerState, b: LearnerState) -> LearnerState:
    return LearnerState(a.version + b.version, sum_algebra.plus(a.sums, b.sums), a.time_ms, a.half_life_s)
