"""Learners: the posterior of every key, cached by this process within a bound on memory.

A key without rewards has no state anywhere: it starts from the prior, which all such keys share. The worker
of this process hands over the states it has just written (``applied``), so the cache is never behind it.
Without one, an entry older than ``max_age_s`` is still used, and read again in the background.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from app.algorithms.linear import ridge
from app.algorithms.linear.ridge import Posterior, RidgeSums
from app.algorithms.types import Matrix, Vector
from app.services.bandits import Bandit, partition_of
from app.services.records import LearnerState, bytes_to_state
from app.storage.protocol import Store

LearnerId = tuple[str, str]
ENTRY_BYTES = 600


@lru_cache(maxsize=256)
def shared_prior(dim: int, ridge_strength: float) -> Posterior:
    return ridge.prior(dim, ridge=ridge_strength)


@dataclass(slots=True)
class Learner:
    """A cached learner. Its sums are turned into a posterior when that is first asked for."""

    version: int
    bytes: int
    read_at: float
    _sums: RidgeSums | None
    _posterior: Posterior | None = None

    @classmethod
    def of(cls, state: LearnerState | None) -> Learner:
        if state is None:
            return cls(0, ENTRY_BYTES, time.monotonic(), None)
        dim = state.sums.moment.size  # two matrices and two vectors: sums or posterior, never both
        return cls(state.version, ENTRY_BYTES + 16 * (dim * dim + dim), time.monotonic(), state.sums)

    def posterior(self, bandit: Bandit) -> Posterior:
        if self._posterior is None:
            strength = bandit.record.ridge
            if self._sums is None:
                self._posterior = shared_prior(bandit.catalogue.dim, strength)
            else:
                self._posterior = ridge.posterior(self._sums, ridge=strength)
                self._sums = None
        return self._posterior


@dataclass(frozen=True, slots=True)
class LearnerReport:
    """What a learner knows. Shapes: theta (d,), precision (d, d)."""

    version: int
    observations: int
    theta: Vector
    precision: Matrix


class Learners:
    """Least-recently-used cache of learners, bounded in bytes."""

    def __init__(self, store: Store, *, capacity_bytes: int, max_age_s: float | None) -> None:
        self._store = store
        self._capacity = capacity_bytes
        self._max_age_s = max_age_s
        self._cache: OrderedDict[LearnerId, Learner] = OrderedDict()
        self._loading: dict[LearnerId, asyncio.Task[Learner]] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._cache)

    def cached(self, bandit: Bandit, name: str) -> Learner | None:
        """The learner if it is in memory: awaits nothing."""
        identity = (bandit.uid, name)
        learner = self._cache.get(identity)
        if learner is not None:
            self._cache.move_to_end(identity)
            if self._max_age_s is not None and time.monotonic() - learner.read_at > self._max_age_s:
                self._read(identity)
        return learner

    async def get(self, bandit: Bandit, name: str) -> Learner:
        """The learner, from memory or from the store; concurrent callers share one read."""
        learner = self.cached(bandit, name)
        if learner is None:
            learner = await asyncio.shield(self._read((bandit.uid, name)))
        return learner

    async def report(self, bandit: Bandit, name: str) -> LearnerReport:
        """The learner as the store has it now; the prior when it has none."""
        identity = (bandit.uid, name)
        (data,) = await self._store.states(self._partition(identity), [identity])
        dim = bandit.catalogue.dim
        state = LearnerState(0, ridge.empty(dim)) if data is None else bytes_to_state(data)
        posterior = ridge.posterior(state.sums, ridge=bandit.record.ridge)
        precision = state.sums.gram + posterior.ridge * np.eye(dim)
        return LearnerReport(state.version, state.sums.observations, posterior.theta, precision)

    def applied(self, states: Mapping[LearnerId, LearnerState | None]) -> None:
        """Take over states that the worker of this process has just written."""
        for identity, state in states.items():
            reading = self._loading.pop(identity, None)
            if reading is not None or identity in self._cache:
                self._keep(identity, Learner.of(state))

    def _read(self, identity: LearnerId) -> asyncio.Task[Learner]:
        task = self._loading.get(identity)
        if task is None:
            task = asyncio.create_task(self._read_now(identity))
            task.add_done_callback(_consume)
            self._loading[identity] = task
        return task

    async def _read_now(self, identity: LearnerId) -> Learner:
        me = asyncio.current_task()
        try:
            (data,) = await self._store.states(self._partition(identity), [identity])
        finally:
            overtaken = self._loading.get(identity) is not me
            if not overtaken:
                del self._loading[identity]
        if overtaken:  # the worker wrote this learner while it was read: what it handed over is newer
            newer = self._cache.get(identity)
            if newer is not None:
                return newer
        learner = Learner.of(None if data is None else bytes_to_state(data))
        self._keep(identity, learner)
        return learner

    def _keep(self, identity: LearnerId, learner: Learner) -> None:
        old = self._cache.pop(identity, None)
        self.bytes += learner.bytes - (old.bytes if old else 0)
        self._cache[identity] = learner
        while self.bytes > self._capacity and len(self._cache) > 1:
            self.bytes -= self._cache.popitem(last=False)[1].bytes

    def _partition(self, identity: LearnerId) -> int:
        return partition_of(*identity, self._store.partitions)


def _consume(task: asyncio.Task[Learner]) -> None:
    """A background read that failed is tried again by the next caller; say nothing here."""
    if not task.cancelled():
        task.exception()
