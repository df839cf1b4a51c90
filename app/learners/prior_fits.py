"""Fitting the learned prior of a bandit from the sums of its keys, and writing of its newest version.

Keys are taken in the order of a keyed hash of their names, unpredictable from outside: half of the places are
for all keys with a reward, half for keys with at least ``ENOUGH_REWARDS``; places left there go to the
others. So n lying keys among N weigh at most n / N in each part.

    names      of all learners of the bandit, a few partitions at a time: one step in the store for each
    sums       read in that order, ``together_bytes`` at a time, so that nobody waits long
    fit        in a thread
    written    only if no newer version has come meanwhile, else that version is the answer
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from heapq import nsmallest
from itertools import chain
from typing import Any, Protocol, TypeVar

import numpy as np

from app.bandits.bandit import Bandit
from app.bandits.history_prior import begins_with
from app.bandits.prior_version import PriorVersion, version_of, version_to_bytes
from app.bandits.settings import BanditRecord
from app.bandits.spaces import Moves, Spaces
from app.fold.checkpoints import restored
from app.learners.learned_priors import LearnedPriors
from app.platform.errors import NotFound
from app.platform.long_work import LongWork
from app.platform.metrics import Metrics
from app.records.history_prior import HistoryPriorRecord
from app.records.records import LearnerState
from app.storage.store import Store
from app.storage.types import LearnerId, StoredLearner
from shortlist.linear import history_prior, learned_prior
from shortlist.linear.learned_prior import LearnedPrior
from shortlist.linear.ridge_sums import RidgeSums

log = logging.getLogger("shortlist.priors")

MOST_KEYS = 2_000
MOST_SUMS_BYTES = 64 << 20
MOST_READ = 8_000  # keys
ENOUGH_REWARDS = 5
ROWS_MARGIN_MS = 2 * 86_400_000  # beyond the time for which rows are kept
_SECRET = "prior-sample"  # noqa: S105 - the name of the register that holds it

# Fits of a process are made one after the other: each may take a second of a core.
FITTING = LongWork(threads=1, waiting=64, name="priors")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FitLimits:
    """``keys``: of a fit, fewer where their sums take more than ``sums_bytes``. ``read``: keys read.
    ``together_bytes``: of learners read at once. ``partitions_together``: of names read at once.
    """

    keys: int = MOST_KEYS
    sums_bytes: int = MOST_SUMS_BYTES
    read: int = MOST_READ
    together_bytes: int = 1 << 20
    partitions_together: int = 4

    def most_keys(self, dim: int) -> int:
        return max(learned_prior.MIN_KEYS, min(self.keys, self.sums_bytes // (8 * dim**2)))


class Fittable(Protocol):
    """The properties of a bandit for a fit; the fitting process need not serve the bandit."""

    @property
    def name(self) -> str: ...

    @property
    def uid(self) -> str: ...

    @property
    def record(self) -> BanditRecord: ...

    @property
    def learner_dim(self) -> int: ...

    @property
    def catalogue_uid(self) -> str: ...

    @property
    def history(self) -> HistoryPriorRecord | None: ...


@dataclass(frozen=True, slots=True)
class Fitted:
    """The newest version. ``is_new``: made by this fit. ``keys``: number of read keys with rewards.
    ``seconds``: of computing.
    """

    version: PriorVersion | None
    is_new: bool
    keys: int
    seconds: float
    is_empty: bool = False

    @property
    def is_of_few(self) -> bool:
        """Return whether there were fewer keys than a prior needs."""
        return self.keys < learned_prior.MIN_KEYS


@dataclass(slots=True)
class Computing:
    """Computes the parts of a fit, one after the other, and counts their ``seconds`` of a core."""

    seconds: float = 0.0

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        def timed() -> tuple[T, float]:
            began = time.thread_time()
            return work(*arguments), time.thread_time() - began

        result, seconds = await FITTING.run(timed)
        self.seconds += seconds
        return result


@dataclass(slots=True)
class _Sample:
    """The chosen states, and candidates for the places left."""

    most: int
    chosen: list[LearnerState] = field(default_factory=list)
    others: list[LearnerState] = field(default_factory=list)

    def add(self, states: Sequence[LearnerState]) -> None:
        for state in states:
            if not state.sums.weight > 0.0 or not state.sums.has_squares:
                continue  # squares beyond the range of float64 say nothing of the noise
            is_any = len(self.chosen) < self.most // 2
            if self.is_full:
                return
            if is_any or state.sums.observations >= ENOUGH_REWARDS:
                self.chosen.append(state)
            elif len(self.others) < self.most:
                self.others.append(state)

    @property
    def is_full(self) -> bool:
        return len(self.chosen) >= self.most

    @property
    def all(self) -> Sequence[LearnerState]:
        return [*self.chosen, *self.others[: self.most - len(self.chosen)]]


class PriorFits:
    """Fits priors, one at a time."""

    def __init__(
        self,
        store: Store,
        priors: LearnedPriors,
        metrics: Metrics,
        *,
        moves: Moves | None = None,
        limits: FitLimits = FitLimits(),
    ) -> None:
        self.limits = limits
        self._store = store
        self._moves = moves or Moves(store.moves)
        self._priors = priors
        self._metrics = metrics
        self._secret: bytes | None = None
        self._one = asyncio.Lock()

    async def fit(self, bandit: Fittable) -> Fitted:
        """Fit the prior of a bandit and write its newest version; no version where the keys determine none.

        Cost: one step in the store for each key, reads of at most ``limits.sums_bytes``, and the fit.
        Raises NotFound (the bandit is gone), Unavailable.
        """
        async with self._one:
            done = await self._fit(bandit)
        outcome = "made" if done.is_new else "nothing" if done.is_empty else "late"
        self._metrics.prior_was_fitted(outcome, seconds=done.seconds, keys=done.keys)
        log.debug("a fit of a prior from %d keys took %.3f s of a core: %s", done.keys, done.seconds, outcome)
        return done

    async def _fit(self, bandit: Fittable) -> Fitted:
        before = await self._priors.newest(bandit.uid)
        (counts,) = await self._store.priors.folded([bandit.uid])  # first: what comes meanwhile counts again
        computing = Computing()
        sums = await self.sums(bandit, computing)
        learned = await computing.run(fit_sums, sums, bandit.record, await self.first(bandit))
        if learned is None and (before is None or before.learned is None):
            return Fitted(before, False, len(sums), computing.seconds, is_empty=True)
        now_ms = time.time_ns() // 1_000_000
        number, since_ms = 1, now_ms
        if before is not None:
            # times of versions never go back, whatever the clock does
            number, since_ms = before.number + 1, max(now_ms, before.record.since_ms)
        version = version_of(number, since_ms, learned, counts, space=bandit.record.space)
        rule = bandit.record.log
        kept_ms = 0 if rule is None else rule.keep_ms
        stands = await self._store.priors.write(
            bandit.name,
            bandit.uid,
            version_to_bytes(version),
            expected=number - 1,
            since_ms=since_ms,
            named_after_ms=since_ms - kept_ms - ROWS_MARGIN_MS,
        )
        if stands is None:
            raise NotFound("there is no bandit with this name")
        newest = await self._priors.newest(bandit.uid)
        return Fitted(newest, bool(stands), len(sums), computing.seconds)

    async def first(self, bandit: Fittable) -> LearnedPrior | None:
        """The bandit's first prior, by a history; None: without. Cost: O(D^3). Raises Unavailable."""
        record = bandit.record
        last = (await self._moves.of(bandit.uid, record.space)).get(record.space) if record.space else None
        return await FITTING.run(partial(begins_with, record, bandit.history, last))

    async def sums(
        self, bandit: Fittable, computing: Computing, *, spaces: Spaces | None = None
    ) -> Sequence[RidgeSums]:
        """The sums of the drawn keys.

        ``spaces``: the moves to the space of the bandit; None: the stored ones.
        """
        space = bandit.record.space
        if spaces is None:
            spaces = await self._moves.spaces(bandit.uid, space)
        sample = _Sample(self.limits.most_keys(bandit.learner_dim))
        size = bandit.record.state_bytes(bandit.learner_dim)
        together = max(1, self.limits.together_bytes // size)
        async for stored in self._read(await self._drawn(bandit, computing), together):
            sample.add(await computing.run(_known_at, space, stored))
            if sample.is_full:
                break
        # Only the used ones, which may be a few of many: the order of the draw stays after their move.
        drawn_states, sums = sample.all, list[RidgeSums]()
        for start in range(0, len(drawn_states), together):
            batch = drawn_states[start : start + together]
            carried = await computing.run(spaces.carried_each, bandit.uid, batch, space)
            sums += [state.sums for state in carried if state is not None]
        return sums

    async def _drawn(self, bandit: Fittable, computing: Computing) -> Sequence[LearnerId]:
        """The keys in the order of their hashes, as many as may be read."""
        key = await self._key() + bandit.uid.encode()
        nearest = list[tuple[bytes, str]]()
        together = self.limits.partitions_together
        for start in range(0, self._store.partitions, together):
            partitions = range(start, min(start + together, self._store.partitions))
            parts = await asyncio.gather(
                *(self._store.learners.names(partition, bandit.uid) for partition in partitions)
            )
            nearest = await computing.run(
                _nearest, nearest, chain.from_iterable(parts), key, self.limits.read
            )
        return [LearnerId(bandit.uid, name) for _, name in nearest]

    async def _read(
        self, drawn: Sequence[LearnerId], together: int
    ) -> AsyncIterator[Mapping[LearnerId, StoredLearner]]:
        """As they are stored, so many at a time, in the order of ``drawn``."""
        for start in range(0, len(drawn), together):
            batch = drawn[start : start + together]
            by_partition: dict[int, list[LearnerId]] = {}
            for learner in batch:
                by_partition.setdefault(learner.partition(self._store.partitions), []).append(learner)
            parts = await asyncio.gather(
                *(
                    self._store.learners.stored(partition, members)
                    for partition, members in by_partition.items()
                )
            )
            stored = dict[LearnerId, StoredLearner]()
            for learners, part in zip(by_partition.values(), parts, strict=True):
                stored.update(zip(learners, part, strict=True))
            yield {learner: stored[learner] for learner in batch}

    async def _key(self) -> bytes:
        """A secret of the store: a known secret would let somebody name keys that are always drawn."""
        if self._secret is None:
            new = secrets.token_bytes(32)
            self._secret = await self._store.write_once.put(None, _SECRET, new, ttl_ms=None)
        return self._secret


def _known_at(space: int, stored: Mapping[LearnerId, StoredLearner]) -> Sequence[LearnerState]:
    """The states, but for those of a later space: this process has not heard of the move."""
    states = [restored(learner, stored_learner) for learner, stored_learner in stored.items()]
    return [state for state in states if state is not None and state.space <= space]


def _nearest(
    before: Sequence[tuple[bytes, str]], names: Iterable[str], key: bytes, most: int
) -> list[tuple[bytes, str]]:
    """The names of least hash, of some names and those before."""
    hashed = ((blake2b(name.encode(), key=key, digest_size=8).digest(), name) for name in names)
    return nsmallest(most, [*before, *hashed])


def prior_of(states: Mapping[str, LearnerState], bandit: Bandit, first: LearnedPrior | None) -> PriorVersion:
    """The prior of the keys with these states, by name, as a first version; drawn by another hash."""
    limits = FitLimits()
    sample = _Sample(limits.most_keys(bandit.learner_dim))
    sample.add([states[name] for _, name in _nearest([], states, b"", limits.read)])
    return version_of(1, 0, fit_sums([state.sums for state in sample.all], bandit.record, first))


def fit_sums(
    sums: Sequence[RidgeSums], record: BanditRecord, first: LearnedPrior | None
) -> LearnedPrior | None:
    """The prior of the keys with these sums; None: undetermined. Cost: as ``learned_prior.fit``.

    ``first``: that of a history (``PriorFits.first``).
    """
    used = [
        key_sums.with_signals(record.signal_count)
        for key_sums in sums
        if key_sums.weight > 0.0 and key_sums.has_squares
    ]
    if not used if first is not None else len(used) < learned_prior.MIN_KEYS:
        return first
    arrays = (
        np.array([key_sums.gram for key_sums in used]),
        np.array([key_sums.moments for key_sums in used]),
        np.array([key_sums.products for key_sums in used]),
        np.array([key_sums.weight for key_sums in used]),
    )
    if first is not None:
        return history_prior.fit(*arrays, first)
    return learned_prior.fit(*arrays, own_units=True)
