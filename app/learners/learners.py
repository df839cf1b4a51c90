"""Learners: the posterior of every key, cached by this process within a bound on memory.

A key without rewards has no state anywhere: the common prior of all such keys.

The cache is kept up to date in two ways. The worker of this process hands over the states just written
(``applied``). Polls ask for changes by workers of other processes (``sync``): the changed learners are marked
as outdated, and read again when needed. An outdated learner serves only while the store does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from app.bandits.bandit import Bandit, UsedScales
from app.bandits.prior_version import PriorVersion
from app.bandits.spaces import BanditMoved, Moves
from app.fold.checkpoints import LearnerReader, memory_bytes
from app.platform.cache import BoundedCache
from app.platform.deadlines import task_for_all
from app.platform.errors import Unavailable
from app.platform.pools import LEARNERS, REQUESTS
from app.records.records import LearnerState
from app.storage.store import Store
from app.storage.types import LearnerChanges, LearnerId, entry_order
from shortlist.linear import ridge_sums
from shortlist.linear.ridge import Posterior
from shortlist.linear.ridge_sums import RidgeSums
from shortlist.linear.scales import Scales
from shortlist.linear.signals import SignalPosteriors, Weighing
from shortlist.types import Matrix, Vector

PriorTerms = tuple[Scales, int, int]
LearnerPosterior = Posterior | SignalPosteriors

PATIENCE_S = 0.2  # how long a caller waits for the store before an outdated learner serves
LARGE_DIM = 256  # from here on a factorisation takes milliseconds, and is made in a thread


@dataclass(slots=True)
class Learner:
    """A cached learner. Has its ``state`` until the first call for its posterior, then the posterior alone.

    Of a learner without rewards both are None: its posterior is the prior, kept apart. ``terms``: the
    ``Bandit.prior_terms`` of its own posterior. With signals ``posterior`` is of all signals, and ``last``
    their sum at the last call. ``partition``: of the log with its rewards.
    """

    version: int
    state: LearnerState | None
    posterior: LearnerPosterior | None = None
    outdated: bool = False
    terms: PriorTerms | None = None
    last: tuple[Weighing, Posterior] | None = None
    partition: int = 0

    @classmethod
    def of(cls, state: LearnerState | None, partition: int) -> Learner:
        return cls(0 if state is None else state.version, state, partition=partition)

    def weighed(self, bandit: Bandit) -> Posterior:
        """The posterior of the reward, or of the weighted sum of the signals."""
        posterior, weighing = self.posterior, bandit.weighing
        if posterior is not None and not isinstance(posterior, SignalPosteriors):
            return posterior
        if posterior is None or weighing is None:
            raise ValueError("its posterior is made first, and one of signals needs their weights")
        if self.last is None or self.last[0] != weighing:
            self.last = weighing, posterior.weighed(weighing, bandit.scales)
        return self.last[1]

    @property
    def dim(self) -> int | None:
        """None: without rewards."""
        if self.state is not None:
            return self.state.sums.dim
        if isinstance(self.posterior, SignalPosteriors):
            return len(self.posterior.thetas[0])
        return None if self.posterior is None else len(self.posterior.theta)


class PriorId(NamedTuple):
    """The sharers of a prior without rewards: all learners of one dimension and scales, or those of one
    bandit.

    ``bandit_uid`` is given where the prior is learned from its keys.
    """

    dim: int
    scales: Scales
    signals: bool
    bandit_uid: str | None = None


@dataclass(frozen=True, slots=True)
class LearnerReport:
    """The knowledge of a learner, of its own dimension d. ``signals``: the theta of each. Shape: theta (d,).

    ``prior``: the version of the learned prior it includes.
    """

    version: int
    observations: int
    theta: Vector
    sums: RidgeSums
    used: UsedScales
    signals: Mapping[str, Vector] | None = None
    prior: PriorVersion | None = None

    async def precision(self) -> Matrix:
        """Shape: (d, d)."""
        if self.sums.dim < LARGE_DIM:
            return self._precision()
        return await REQUESTS.run(self._precision)

    def _precision(self) -> Matrix:
        precision = self.sums.gram
        if self.prior is not None and self.prior.learned is not None:
            return precision + self.prior.learned.precision
        precision[np.diag_indices_from(precision)] += self.used.ridge
        return precision


class Learners:
    """All learners. ``capacity_bytes`` bounds their memory, except the learner used last.

    Seven eighths are for serving learners, one eighth is for growing tails.
    """

    def __init__(self, store: Store, *, capacity_bytes: int, moves: Moves | None = None) -> None:
        self._store = store
        self._moves = moves or Moves(store.moves)
        self._synced: dict[int, str] = {}  # partition -> watermark up to which nothing here is outdated
        self._newest: dict[int, int] = {}  # partition -> number of the newest entry of its log that is known
        self._reader = LearnerReader(store.learners, capacity_bytes=capacity_bytes // 8)
        self.cache: BoundedCache[LearnerId | PriorId, Learner] = BoundedCache(capacity_bytes // 8 * 7)
        self._loading: dict[LearnerId, asyncio.Task[Learner]] = {}
        self.patience_s = PATIENCE_S

    def __len__(self) -> int:
        return len(self.cache)

    @property
    def bytes(self) -> int:
        return self.cache.bytes

    def cached(self, identity: LearnerId) -> Learner | None:
        """The learner if in memory and not outdated: awaits nothing."""
        learner = self.cache.get(identity)
        return None if learner is None or learner.outdated else learner

    async def get(self, identity: LearnerId) -> Learner:
        """The learner, from memory or from the store; callers share one read. Raises Unavailable."""
        learner = self.cached(identity)
        if learner is not None:
            return learner
        # Shielded: other callers wait for the same read.
        reading = asyncio.shield(self._read(identity))
        outdated = self.cache.peek(identity)
        if outdated is None:
            return await reading
        try:
            async with asyncio.timeout(self.patience_s):
                return await reading
        except (TimeoutError, Unavailable):
            # It only lacks the latest rewards. Not to answer would be worse.
            return outdated

    def newest_entry(self, learner: Learner) -> int:
        """Number of the newest entry known here of the log with the learner's rewards; 0 without one."""
        return self._newest.get(learner.partition, 0)

    async def posterior(self, bandit: Bandit, learner: Learner) -> Posterior:
        """The posterior of a learner of this bandit; made at the first call by these terms.

        A learner with a posterior by other terms has to be read again: ``current`` does.
        """
        if learner.posterior is not None:
            return learner.weighed(bandit)
        if learner.state is None:
            return (await self._prior(bandit)).weighed(bandit)
        terms = bandit.prior_terms
        posterior = await _factored((await self._own(bandit, learner.state)).sums, bandit)
        # Only a state or a posterior is kept, so that twice as many learners fit. Other terms need another
        # read.
        learner.posterior, learner.terms, learner.state = posterior, terms, None
        return learner.weighed(bandit)

    async def current(self, bandit: Bandit, identity: LearnerId) -> tuple[Learner, Posterior]:
        """A learner of this bandit, and its posterior by the bandit's terms now.

        Awaits nothing for a learner in memory with a posterior. After a change of the bandit a learner is
        read again; its posterior by the earlier terms serves only while the store does not answer, and never
        after a move, which replaced the features. Raises Unavailable.
        """
        learner = self.cached(identity) or await self.get(identity)
        if learner.posterior is not None and learner.terms == bandit.prior_terms:
            return learner, learner.weighed(bandit)
        # its sums are not in memory any more: a posterior by other terms needs them from the store
        if learner.posterior is not None and not learner.outdated:
            learner.outdated = True
            learner = await self.get(identity)
        if learner.terms is not None and learner.terms[-1] != bandit.record.space:
            learner = await asyncio.shield(self._read(identity))
        return learner, await self.posterior(bandit, learner)

    async def knowledge(self, bandit: Bandit, learner: Learner) -> LearnerPosterior:
        """The posterior of all signals of a learner returned by ``current``. Raises Unavailable."""
        posterior = learner.posterior or (await self._prior(bandit)).posterior
        if posterior is None:
            raise ValueError("the posterior of a prior is made with it")
        return posterior

    async def load_uncached(self, bandit: Bandit, identity: LearnerId) -> Posterior:
        """The posterior of a learner by the terms of this bandit, from the store; the prior without rewards.

        Takes no space in the cache, so a read of very many learners evicts none. Raises Unavailable.
        """
        state = await self.state(identity)
        if state is None:
            return (await self._prior(bandit)).weighed(bandit)
        posterior = await _factored((await self._own(bandit, state)).sums, bandit)
        return Learner(state.version, None, posterior).weighed(bandit)

    async def state(self, identity: LearnerId) -> LearnerState | None:
        """The learner's own stored state; None without rewards. Raises Unavailable.

        May be of a space before the last move of its bandit: ``carried``.
        """
        return await self._reader.read(identity.partition(self._store.partitions), identity)

    async def carried(self, bandit: Bandit, state: LearnerState | None) -> LearnerState | None:
        """A state of a learner of the bandit in the space of its catalogue; None: no knowledge there.

        Raises BanditMoved (a later space: the bandit was moved), Unavailable.
        """
        if state is None or state.space == bandit.record.space:
            return state
        if state.space > bandit.record.space:
            raise BanditMoved
        return await self._moves.carried(bandit.uid, state, bandit.record.space)

    async def report(self, bandit: Bandit, identity: LearnerId) -> LearnerReport:
        """The stored learner; the prior without one. Raises Unavailable."""
        state = await self._own(bandit, await self.state(identity))
        posterior = await _factored(state.sums, bandit)
        shown = Learner(state.version, None, posterior).weighed(bandit)
        thetas = None
        if bandit.record.signals is not None:
            thetas = dict(zip(bandit.record.signals, thetas_of(bandit, posterior), strict=True))
        return LearnerReport(
            state.version,
            state.sums.observations,
            shown.theta,
            state.sums,
            bandit.used(shown),
            thetas,
            bandit.prior,
        )

    async def begins_with(self, bandit: Bandit) -> UsedScales:
        """The scales of a learner without rewards."""
        if bandit.prior is None:
            return bandit.begins_with
        return bandit.used((await self._prior(bandit)).weighed(bandit))

    def applied(
        self, partition: int, before: str, after: str, states: Mapping[LearnerId, LearnerState | None]
    ) -> None:
        """Take over states just written by the worker of this process, between these watermarks."""
        # Else something of another worker lies between, and the next poll has to tell what.
        if self._synced.get(partition) == before:
            self._synced[partition] = after
        # Never back, though polls and the worker of this process report in any order.
        self._newest[partition] = max(self._newest.get(partition, 0), entry_order(after)[1])
        for identity, state in states.items():
            # A running read may bring the earlier state. Removed from the list, the learner is read again.
            reading = self._loading.pop(identity, None)
            # nobody here has asked for the others: they would push out learners that serve
            if reading is not None or identity in self.cache:
                self._keep(identity, Learner.of(state, partition))

    async def sync(self, partitions: Iterable[int]) -> Mapping[int, LearnerChanges]:
        """Mark as outdated what others have written; return what has changed. Raises Unavailable."""
        # Remembered from before the store is asked: ``applied`` may move on meanwhile.
        watermarks = {partition: self._synced.get(partition, "") for partition in partitions}
        changes_by_partition = await self._store.learners.changed(watermarks)
        for partition, changes in changes_by_partition.items():
            self._take(partition, changes, watermarks[partition])
        return changes_by_partition

    def _take(self, partition: int, changes: LearnerChanges, watermark: str) -> None:
        """Changes of a partition after ``watermark``."""
        newest = max(entry_order(entry)[1] for entry in (changes.newest, changes.watermark))
        if changes.learners is not None:  # else the store may have lost what was known
            newest = max(newest, self._newest.get(partition, 0))
        self._newest[partition] = newest
        # else ``applied`` moved on while the store was asked, and the next poll brings the rest
        if changes.watermark != watermark and self._synced.get(partition, "") == watermark:
            self._synced[partition] = changes.watermark
            self._mark_outdated(partition, changes.learners)

    def _mark_outdated(self, partition: int, learners: Sequence[LearnerId] | None) -> None:
        """None: all learners of the partition."""
        if learners is None:
            # Also learners being read: the read may bring the earlier state.
            here = {*self._loading, *(key for key in self.cache if isinstance(key, LearnerId))}
            learners = [
                identity for identity in here if identity.partition(self._store.partitions) == partition
            ]
        for learner in learners:
            self._loading.pop(learner, None)
            cached = self.cache.peek(learner)
            if cached is not None:
                cached.outdated = True

    async def _own(self, bandit: Bandit, state: LearnerState | None) -> LearnerState:
        """As ``carried``; a state of no rewards in place of None."""
        carried_state = await self.carried(bandit, state)
        return carried_state or LearnerState(
            0, ridge_sums.empty(bandit.learner_dim), space=bandit.record.space
        )

    async def _prior(self, bandit: Bandit) -> Learner:
        """All keys without rewards, as one learner, with its posterior; its version is of the learned
        prior.
        """
        dim, version = bandit.learner_dim, 0
        signals = bandit.weighing is not None
        identity = PriorId(dim, bandit.scales, signals)
        if bandit.prior is not None:
            identity = PriorId(dim, bandit.scales, signals, bandit.uid)
            version = bandit.prior.shown_number
        prior = self.cache.get(identity)
        if prior is not None and prior.version == version:
            return prior
        prior = Learner(version, None, await _factored(ridge_sums.empty(dim), bandit))
        self._keep(identity, prior)
        return prior

    def _read(self, identity: LearnerId) -> asyncio.Task[Learner]:
        task = self._loading.get(identity)
        if task is None:
            task = task_for_all(self._read_now(identity))
            self._loading[identity] = task
        return task

    async def _read_now(self, identity: LearnerId) -> Learner:
        me = asyncio.current_task()
        try:
            state = await self.state(identity)
        finally:
            # Its place is taken away by whoever knows of something newer (``applied``, ``_mark_outdated``).
            is_superseded = self._loading.get(identity) is not me
            if not is_superseded:
                del self._loading[identity]
        if is_superseded:  # the learner was written while it was read: what is there now is newer
            newer = self.cache.peek(identity)
            return newer if newer is not None and not newer.outdated else await self._read(identity)
        learner = Learner.of(state, identity.partition(self._store.partitions))
        self._keep(identity, learner)
        return learner

    def _keep(self, identity: LearnerId | PriorId, learner: Learner) -> None:
        name = identity.name if isinstance(identity, LearnerId) else ""
        self.cache.put(identity, learner, memory_bytes(name, learner.dim))


async def _factored(sums: RidgeSums, bandit: Bandit) -> LearnerPosterior:
    return bandit.known(sums) if sums.dim < LARGE_DIM else await LEARNERS.run(partial(bandit.known, sums))


def thetas_of(bandit: Bandit, posterior: LearnerPosterior) -> Matrix:
    """The expectation of each signal, 0 of signals that no reward has named yet. Shape: (J, D)."""
    thetas = np.zeros((bandit.record.signal_count, bandit.learner_dim))
    if isinstance(posterior, SignalPosteriors):
        thetas[: len(posterior.thetas)] = posterior.thetas
    else:
        thetas[0] = posterior.theta
    return thetas
