"""Fitting the learned prior of a bandit from the sums of its keys, and making that its newest version.

Keys are taken in the order of a keyed hash of their names, which nobody outside can foretell: half of the
places are for all that have a reward, half for those with at least ``ENOUGH_REWARDS``, and what is left of
these goes to the others. So n keys that lie, among N, weigh at most n / N in each part.

    names      of all learners of the bandit, a few partitions at a time: one step in the store for each
    sums       read in that order, ``TOGETHER_BYTES`` at a time, so that nobody waits for it long
    fit        in a thread
    written    if the newest version is still the one from before, else that one is the answer
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
from typing import Protocol

import numpy as np

from app.bandits.bandit import Bandit
from app.bandits.prior_version import PriorVersion, version_of, version_to_bytes
from app.bandits.settings import BanditRecord
from app.bandits.spaces import Moves, Spaces
from app.learning.checkpoints import restored
from app.learning.learned_priors import HasUid, LearnedPriors
from app.platform.errors import NotFound
from app.platform.long_work import LongWork
from app.platform.metrics import Metrics
from app.records.records import POOLED, LearnerState
from app.storage.store import Store
from app.storage.types import FoldedCounts, LearnerId, PriorWrite, StoredLearner
from shortlist.linear import learned_prior
from shortlist.linear.learned_prior import LearnedPrior
from shortlist.linear.ridge_sums import RidgeSums

log = logging.getLogger("shortlist.priors")

MOST_KEYS = 2_000
MOST_SUMS_BYTES = 64 << 20
MOST_READ = 8_000  # keys
TOGETHER_BYTES = 1 << 20  # of learners that are read at once
PARTITIONS_TOGETHER = 4  # whose names are read at once
ENOUGH_REWARDS = 5
ROWS_MARGIN_MS = 2 * 86_400_000  # beyond the time for which rows are kept
_SECRET = "prior-sample"  # noqa: S105 - the name of the register that holds it

# Fits of a process are made one after the other: each may take a second of a core.
FITTING = LongWork(threads=1, waiting=64, name="priors")

IsDue = Callable[[FoldedCounts, PriorVersion | None], bool]
"""Whether a fit is due, of what was learned by now and the newest version."""


class Fittable(HasUid, Protocol):
    """What a fit needs to know of a bandit, which need not be served by the process that fits."""

    @property
    def name(self) -> str: ...

    @property
    def record(self) -> BanditRecord: ...

    @property
    def learner_dim(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Fitted:
    """A version that stands now. ``is_new``: this fit has made it. ``keys``: how many had rewards, of those
    that were read. ``seconds``: of computing.
    """

    version: PriorVersion | None
    is_new: bool
    keys: int
    seconds: float
    is_empty: bool = False

    @property
    def is_of_few(self) -> bool:
        """Whether there were fewer keys than a prior needs."""
        return self.keys < learned_prior.MIN_KEYS


@dataclass(slots=True)
class _Sample:
    """The states that were taken, and those that may fill what places are left."""

    most: int
    taken: list[LearnerState] = field(default_factory=list)
    others: list[LearnerState] = field(default_factory=list)

    def add(self, states: Sequence[LearnerState | None]) -> None:
        for state in states:
            if state is None or not state.sums.weight > 0.0 or not state.sums.has_squares:
                continue  # until 0.1.0 learners had no squares: such a one says nothing of the noise
            is_any = len(self.taken) < self.most // 2
            if self.is_full:
                return
            if is_any or state.sums.observations >= ENOUGH_REWARDS:
                self.taken.append(state)
            elif len(self.others) < self.most:
                self.others.append(state)

    @property
    def is_full(self) -> bool:
        return len(self.taken) >= self.most

    @property
    def all(self) -> Sequence[LearnerState]:
        return [*self.taken, *self.others[: self.most - len(self.taken)]]


class PriorFits:
    """Fits priors, one at a time."""

    def __init__(
        self,
        store: Store,
        priors: LearnedPriors,
        metrics: Metrics,
        *,
        moves: Moves | None = None,
    ) -> None:
        self._store = store
        self._moves = moves or Moves(store.moves)
        self._priors = priors
        self._metrics = metrics
        self._secret: bytes | None = None
        self._one = asyncio.Lock()

    async def fit(self, bandit: Fittable, *, is_due: IsDue | None = None) -> Fitted:
        """Fit the prior of a bandit and make it the newest version; no version where the keys say nothing.

        ``is_due``: asked once no other fit goes on, which may have been of this bandit; None: it is.

        Cost: one step in the store for each key, at most ``MOST_SUMS_BYTES`` read of it, and the fit itself.
        Raises NotFound (the bandit is gone), Unavailable.
        """
        async with self._one:
            done = await self._fit(bandit, is_due)
        outcome = "made" if done.is_new else "nothing" if done.is_empty else "late"
        self._metrics.prior_was_fitted(outcome, seconds=done.seconds, keys=done.keys)
        log.debug("a fit of a prior from %d keys took %.3f s of a core: %s", done.keys, done.seconds, outcome)
        return done

    async def _fit(self, bandit: Fittable, is_due: IsDue | None) -> Fitted:
        before = await self._priors.newest(bandit)
        (counts,) = await self._store.priors.folded([bandit.uid])  # first: what comes meanwhile counts again
        if is_due is not None and not is_due(counts, before):
            return Fitted(before, False, 0, 0.0)
        sums, read_s = await self.sums(bandit)
        learned, fit_s = await FITTING.run(partial(_fit, sums, bandit.record.signal_count))
        seconds = read_s + fit_s
        if learned is None and (before is None or before.learned is None):
            return Fitted(before, False, len(sums), seconds, is_empty=True)
        now_ms = time.time_ns() // 1_000_000
        number, since_ms = 1, now_ms
        if before is not None:
            # times of versions never go back, whatever the clock does
            number, since_ms = before.number + 1, max(now_ms, before.record.since_ms)
        version = version_of(
            number,
            since_ms,
            rewards=counts.entries,
            replaced=counts.replaced,
            learned=learned,
            space=bandit.record.space,
        )
        rule = bandit.record.log
        kept_ms = 0 if rule is None else rule.keep_ms
        write = PriorWrite(
            number - 1, since_ms, version_to_bytes(version), since_ms - kept_ms - ROWS_MARGIN_MS
        )
        stands = await self._store.priors.write(bandit.name, bandit.uid, write)
        if stands is None:
            raise NotFound("there is no bandit with this name")
        newest = await self._priors.newest(bandit)
        return Fitted(newest, bool(stands), len(sums), seconds)

    async def sums(
        self, bandit: Fittable, *, spaces: Spaces | None = None
    ) -> tuple[Sequence[RidgeSums], float]:
        """Of the keys that are drawn, and the seconds that it took to compute.

        ``spaces``: by which they are carried to the space of the bandit; None: by the moves that are stored.
        """
        space = bandit.record.space
        if spaces is None:
            spaces = Spaces({}, await self._moves.maps({bandit.uid: space}) if space else {})
        sample = _Sample(_most_keys(bandit.learner_dim))
        size = bandit.record.state_bytes(bandit.learner_dim)
        together, seconds = max(1, TOGETHER_BYTES // size), 0.0
        drawn, drawing_s = await self._drawn(bandit)
        async for some in self._read(drawn, together, space):
            states, read_s = await FITTING.run(some)
            sample.add(states)
            seconds += read_s
            if sample.is_full:
                break
        # Only those that are used, which may be a few of many: what they were drawn by stays when they move.
        taken, sums = sample.all, list[RidgeSums]()
        for start in range(0, len(taken), together):
            carry = partial(_carried, spaces, bandit.uid, taken[start : start + together], space)
            carried, carry_s = await FITTING.run(carry)
            sums += carried
            seconds += carry_s
        return sums, seconds + drawing_s

    async def _drawn(self, bandit: Fittable) -> tuple[Sequence[LearnerId], float]:
        """The keys in the order of their hashes, as many as may be read."""
        key = await self._key() + bandit.uid.encode()
        nearest, seconds = list[tuple[bytes, str]](), 0.0
        for start in range(0, self._store.partitions, PARTITIONS_TOGETHER):
            some = range(start, min(start + PARTITIONS_TOGETHER, self._store.partitions))
            parts = await asyncio.gather(*(self._store.learners.names(each, bandit.uid) for each in some))
            nearest, took_s = await FITTING.run(partial(_nearest, nearest, chain.from_iterable(parts), key))
            seconds += took_s
        return [LearnerId(bandit.uid, name) for _, name in nearest], seconds

    async def _read(
        self, drawn: Sequence[LearnerId], together: int, space: int
    ) -> AsyncIterator[Callable[[], tuple[Sequence[LearnerState | None], float]]]:
        for start in range(0, len(drawn), together):
            some = drawn[start : start + together]
            by_partition: dict[int, list[LearnerId]] = {}
            for learner in some:
                by_partition.setdefault(learner.partition(self._store.partitions), []).append(learner)
            parts = await asyncio.gather(
                *(self._store.learners.stored(partition, each) for partition, each in by_partition.items())
            )
            stored = dict[LearnerId, StoredLearner]()
            for learners, found in zip(by_partition.values(), parts, strict=True):
                stored.update(zip(learners, found, strict=True))

            def work() -> tuple[Sequence[LearnerState | None], float]:
                began = time.thread_time()
                found = (restored(learner, stored[learner]) for learner in some)  # noqa: B023 - used at once
                return [_known_at(space, state) for state in found], time.thread_time() - began

            yield work

    async def _key(self) -> bytes:
        """A secret of the store: who knew it could name keys so that all of them are drawn."""
        if self._secret is None:
            new = secrets.token_bytes(32)
            self._secret = await self._store.write_once.put(None, _SECRET, new, ttl_ms=None)
        return self._secret


def _known_at(space: int, state: LearnerState | None) -> LearnerState | None:
    """None of a state of a later space: this process has not heard of the move."""
    return state if state is None or state.space <= space else None


def _carried(
    spaces: Spaces, uid: str, states: Sequence[LearnerState], space: int
) -> tuple[list[RidgeSums], float]:
    began = time.thread_time()
    carried = spaces.carried_each(uid, states, space)
    return [state.sums for state in carried if state is not None], time.thread_time() - began


def _nearest(
    before: Sequence[tuple[bytes, str]], names: Iterable[str], key: bytes
) -> tuple[list[tuple[bytes, str]], float]:
    """Those of least hash, of some names and those before."""
    began = time.thread_time()
    hashed = ((blake2b(name.encode(), key=key, digest_size=8).digest(), name) for name in names)
    found = nsmallest(MOST_READ, [*before, *(pair for pair in hashed if pair[1] != POOLED)])
    return found, time.thread_time() - began


def _fit(sums: Sequence[RidgeSums], signals: int) -> tuple[LearnedPrior | None, float]:
    began = time.thread_time()
    if not sums:
        return None, 0.0
    return fit_sums(sums, signals), time.thread_time() - began


def fit_sample(states: Mapping[str, LearnerState], bandit: Bandit) -> LearnedPrior | None:
    """The prior of the keys with these states, by name, drawn as for a version, by another hash."""
    sample = _Sample(_most_keys(bandit.learner_dim))
    names, _ = _nearest([], list(states), b"")
    sample.add([states[name] for _, name in names])
    return fit_sums([state.sums for state in sample.all], bandit.record.signal_count)


def _most_keys(dim: int) -> int:
    return max(learned_prior.MIN_KEYS, min(MOST_KEYS, MOST_SUMS_BYTES // (8 * dim**2)))


def fit_sums(sums: Sequence[RidgeSums], signals: int) -> LearnedPrior | None:
    """The prior of the keys with these sums; None: they say nothing. Cost: as ``learned_prior.fit``."""
    used = [each.with_signals(signals) for each in sums if each.weight > 0.0 and each.has_squares]
    if len(used) < learned_prior.MIN_KEYS:
        return None
    return learned_prior.fit(
        np.array([each.gram for each in used]),
        np.array([each.moments for each in used]),
        np.array([each.products for each in used]),
        np.array([each.weight for each in used]),
    )
