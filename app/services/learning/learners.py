"""Learners: the posterior of every key, cached by this process within a bound on memory.

A key without rewards has no state anywhere: it starts from the prior, which all such keys share. The worker
of this process hands over the states it has just written (``applied``), so the cache is never behind it. What
others write is followed (``follow``): learners that they changed are outdated, and read again when they are
needed; an outdated one serves only while the store does not answer.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.algorithms.linear import ridge
from app.algorithms.linear.ridge import Posterior, RidgeSums
from app.algorithms.types import Matrix, Vector
from app.errors import Unavailable
from app.services.bandits.bandits import Bandit
from app.services.formats.records import LearnerState, bytes_to_state
from app.services.learning.pooled_prior import PATIENCE_S, Pools
from app.storage.protocol import LearnerChanges, LearnerId, LearnerStates

ENTRY_BYTES = 600
LARGE_DIM = 256  # from here on a factorisation takes milliseconds, and is made in a thread


@dataclass(slots=True)
class Learner:
    """A cached learner: its state, until the posterior is first asked for; the prior is kept apart."""

    version: int
    bytes: int
    state: LearnerState | None
    posterior: Posterior | None = None
    outdated: bool = False

    @classmethod
    def of(cls, state: LearnerState | None) -> Learner:
        if state is None:
            return cls(0, ENTRY_BYTES, None)
        return cls(state.version, _bytes(state.sums.dim), state)


def _bytes(dim: int) -> int:
    """Of sums, two triangles and two vectors, or of the posterior that takes their place: a little less."""
    return ENTRY_BYTES + 8 * dim * (dim + 3)


@dataclass(frozen=True, slots=True)
class LearnerReport:
    """What a learner knows. Shapes: theta (d,), precision (d, d), of its own dimension d."""

    version: int
    observations: int
    theta: Vector
    precision: Matrix


class Learners:
    """Least-recently-used cache of learners, bounded in bytes."""

    def __init__(self, store: LearnerStates, *, capacity_bytes: int) -> None:
        self._store = store
        self._capacity = capacity_bytes
        self._known: dict[int, str] = {}  # partition -> watermark up to which nothing here is behind
        self._pools = Pools(store, capacity_bytes=capacity_bytes // 4)
        self._cache: OrderedDict[LearnerId, Learner] = OrderedDict()
        self._loading: dict[LearnerId, asyncio.Task[Learner]] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._cache)

    def cached(self, identity: LearnerId) -> Learner | None:
        """The learner if it is in memory and not outdated: awaits nothing."""
        learner = self._cache.get(identity)
        if learner is None or learner.outdated:
            return None
        self._cache.move_to_end(identity)
        return learner

    async def get(self, identity: LearnerId) -> Learner:
        """The learner, from memory or from the store; concurrent callers share one read."""
        learner = self.cached(identity)
        if learner is not None:
            return learner
        reading = asyncio.shield(self._read(identity))
        outdated = self._cache.get(identity)
        if outdated is None:
            return await reading
        try:
            return await asyncio.wait_for(reading, PATIENCE_S)
        except (TimeoutError, Unavailable):
            return outdated

    async def posterior(self, bandit: Bandit, learner: Learner) -> Posterior:
        """The posterior of a learner of this bandit; made when it is first asked for."""
        if learner.posterior is not None:
            return learner.posterior
        if learner.state is None:
            return await self._prior(bandit)
        made = await _factored(await self._sums(bandit, learner.state), bandit.record.ridge)
        learner.posterior, learner.state = made, None
        return made

    async def report(self, bandit: Bandit, identity: LearnerId) -> LearnerReport:
        """The learner as the store has it now; the prior when it has none."""
        (data,) = await self._store.states(identity.partition(self._store.partitions), [identity])
        dim = bandit.learner_dim
        state = LearnerState(0, ridge.empty(dim)) if data is None else bytes_to_state(data)
        sums = await self._sums(bandit, state, anew=True)
        posterior = await _factored(sums, bandit.record.ridge)
        precision = sums.gram + posterior.ridge * np.eye(dim)
        return LearnerReport(state.version, state.sums.observations, posterior.theta, precision)

    def applied(
        self, partition: int, before: str, after: str, states: Mapping[LearnerId, LearnerState | None]
    ) -> None:
        """Take over states that the worker of this process has just written, between these watermarks."""
        if self._known.get(partition) == before:
            self._known[partition] = after
        for identity, state in states.items():
            reading = self._loading.pop(identity, None)
            if reading is not None or identity in self._cache:
                self._keep(identity, Learner.of(state))

    async def sync(self, partition: int) -> LearnerChanges:
        """Outdate what others have written; return where the partition stands."""
        known = self._known.get(partition, "")
        changes = await self._store.changed_learners(partition, known)
        if changes.watermark != known and self._known.get(partition, "") == known:
            self._known[partition] = changes.watermark
            self._outdate(partition, changes.learners)
        return changes

    def _outdate(self, partition: int, learners: Sequence[LearnerId] | None) -> None:
        if learners is None:
            here = {*self._cache, *self._loading}
            learners = [
                identity for identity in here if identity.partition(self._store.partitions) == partition
            ]
        for identity in learners:
            self._loading.pop(identity, None)
            if identity in self._cache:
                self._cache[identity].outdated = True

    async def _sums(self, bandit: Bandit, state: LearnerState, *, anew: bool = False) -> RidgeSums:
        """The learner's own sums, with those of the others if they are its prior."""
        if bandit.record.prior == "plain":
            return state.sums
        return await self._pools.with_prior(bandit, state, anew=anew)

    async def _prior(self, bandit: Bandit) -> Posterior:
        """The posterior of all keys without rewards: an entry of the cache like any other."""
        dim, strength = bandit.learner_dim, bandit.record.ridge
        identity, version = LearnerId("prior", f"{dim}/{strength}"), 0
        if bandit.record.prior == "pooled" and (pool := await self._pools.get(bandit)):
            identity, version = LearnerId("prior", bandit.uid), pool.version
        shared = self._cache.get(identity)
        if shared is None or shared.posterior is None or shared.version != version:
            sums = ridge.empty(dim)
            if version:
                sums = await self._sums(bandit, LearnerState(0, sums))
            shared = Learner(version, _bytes(dim), None, await _factored(sums, strength))
            self._keep(identity, shared)
        self._cache.move_to_end(identity)
        assert shared.posterior is not None  # noqa: S101 - made above
        return shared.posterior

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
            (data,) = await self._store.states(identity.partition(self._store.partitions), [identity])
        finally:
            overtaken = self._loading.get(identity) is not me
            if not overtaken:
                del self._loading[identity]
        if overtaken:  # the learner was written while it was read: what is there now is newer
            newer = self._cache.get(identity)
            return newer if newer is not None and not newer.outdated else await self._read(identity)
        learner = Learner.of(None if data is None else bytes_to_state(data))
        self._keep(identity, learner)
        return learner

    def _keep(self, identity: LearnerId, learner: Learner) -> None:
        old = self._cache.pop(identity, None)
        self.bytes += learner.bytes - (old.bytes if old else 0)
        self._cache[identity] = learner
        while self.bytes > self._capacity and len(self._cache) > 1:
            self.bytes -= self._cache.popitem(last=False)[1].bytes


async def _factored(sums: RidgeSums, strength: float) -> Posterior:
    if sums.dim < LARGE_DIM:
        return ridge.posterior(sums, ridge=strength)
    return await asyncio.to_thread(ridge.posterior, sums, ridge=strength)


def _consume(task: asyncio.Task[Learner]) -> None:
    """A background read that failed is tried again by the next caller; say nothing here."""
    if not task.cancelled():
        task.exception()
