"""Fits the learned priors of all bandits again when due, in the worker with partition 0.

    at once                 the first time, and after a key was forgotten or given a state
    after a tenth as many   rewards more than the newest version was made of
    after ``LONGEST_S``     if there was any reward since

Between two fits this worker rests, so all of them together take at most ``SHARE`` of a core: processor time
counts, not elapsed time, and of the event loop's no more than of the fit's own. Unused rest is saved,
``SAVED_S`` at most: the first fits of a bandit follow one another in seconds, and gain most.

The folds of this process and the polls of the store report changes (``changed``), and start a round at once:
the first version of a bandit is there some hundredths of a second after five keys have a reward, and improves
the choices of all others. After a round in which no fit was due the next one comes half a second later: a
look costs more than a reward. While nothing is learned a round costs nothing. A bandit with a new learned
prior is found within ``LOOK_AGAIN_S``, or with its next reward.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from app.bandits.prior_version import PriorVersion
from app.learners.learned_priors import LearnedPriors
from app.learners.prior_fits import PriorFits
from app.platform.background import repeat
from app.platform.errors import NotFound
from app.storage.priors import PriorStore
from app.storage.types import FoldedCounts
from workers.changed_bandits import ChangedBandits, KnownBandits

SHARE = 0.05
SAVED_S = 60.0  # three seconds of a core
GROWTH = 0.1  # of the rewards that the newest version was made of
LONGEST_S = 3_600.0
LOOK_AGAIN_S = 60.0  # at bandits that were not due
BATCH_SIZE = 500  # bandits whose counts are read in one call


@dataclass(frozen=True, slots=True, kw_only=True)
class FittingPauses:
    """Seconds. ``idle_s``: without news: others may have lost the partition. ``after_fit_s``: after a fit,
    for each bandit looked at, which takes some calls of the store. ``longest_s``: also after a round
    in which no fit was due, for priors age slower than rewards come.
    """

    idle_s: float = 2.0
    after_fit_s: float = 0.05
    longest_s: float = 0.5


class PriorFitting:
    """``owns(partition)``: whether this worker folds a partition."""

    def __init__(
        self,
        store: PriorStore,
        bandits: KnownBandits,
        priors: LearnedPriors,
        fits: PriorFits,
        *,
        owns: Callable[[int], bool],
        now_s: Callable[[], float] = time.time,
        pauses: FittingPauses = FittingPauses(),
    ) -> None:
        self._pauses = pauses
        self._store = store
        self._bandits = bandits
        self._priors = priors
        self._fits = fits
        self._owns = owns
        self._now_s = now_s
        self._looked_at: set[str] = set()  # uids of the bandits with a learned prior that were looked at
        self._changed = ChangedBandits()
        self._waiting: set[str] = set()  # those that had, and were not due
        self._tried: dict[str, FoldedCounts] = {}  # by uid, of fits that gave no version
        self._rest_until, self._look_again = -math.inf, 0.0
        self._was_due = False  # any bandit, in the last round

    def changed(self, uids: Iterable[str] | None) -> None:
        """Note changed learners of these bandits; None: of unknown ones."""
        self._changed.add(uids)

    async def run(self) -> None:
        """Fit until cancelled. An unreachable store is waited for."""
        await repeat(self._next_round, every_s=self._pauses.after_fit_s, waits="priors are not fitted")

    async def _next_round(self) -> None:
        """A round as soon as there is news, and the work before leaves time."""
        rest_s = min(self._rest_until - time.monotonic(), self._pauses.idle_s)
        if self._changed.uids and rest_s > 0.0:
            await asyncio.sleep(rest_s)
        await self._changed.wait(self._pauses.idle_s)
        looked_at = len(self._changed.uids)
        pause_s = self._pauses.longest_s
        try:
            await self.round()
            if self._was_due:
                pause_s = min(self._pauses.after_fit_s * looked_at, self._pauses.longest_s)
        finally:
            await asyncio.sleep(pause_s)

    async def round(self) -> bool:
        """Fit what is due, and what the rest allows; False: there was nothing to do."""
        self._was_due = False
        # one worker fits for all: the one with partition 0
        if not self._owns(0):
            self._changed.leave_to_others()
            return False
        changed = self._changed.uids
        if not self._changed.is_complete or time.monotonic() >= self._look_again:
            self._look_again = time.monotonic() + LOOK_AGAIN_S
            every = set(self._bandits.with_learned_priors())
            new = self._waiting | (every - self._looked_at if self._changed.is_complete else every)
            changed |= dict.fromkeys(new)
            self._looked_at, self._changed.is_complete = every, True
            self._waiting.clear()
        if time.monotonic() < self._rest_until or not changed:
            return bool(changed)
        uids = list(changed)
        for start in range(0, len(uids), BATCH_SIZE):
            batch = uids[start : start + BATCH_SIZE]
            for uid, counts in zip(batch, await self._store.folded(batch), strict=True):
                if time.monotonic() < self._rest_until:
                    return True
                # Before the look: a change during the fit is a new one.
                changed.pop(uid, None)
                try:
                    await self._look_at(uid, counts)
                except BaseException:
                    changed[uid] = None  # after the others: they need not wait for it
                    raise
        return True

    async def _look_at(self, uid: str, counts: FoldedCounts) -> None:
        bandit = self._bandits.by_uid(uid)
        if bandit is None or bandit.record.prior != "learned":
            self._tried.pop(uid, None)
            return
        newest = await self._priors.newest(bandit.uid)
        if not self._is_due(uid, bandit.record.space, counts, newest):
            if newest is not None and counts.entries != newest.record.rewards:
                self._waiting.add(uid)
            return
        self._was_due = True
        started, used_s = time.thread_time(), 0.0
        try:
            done = await self._fits.fit(bandit)
            used_s = done.seconds
        except NotFound:
            return
        finally:
            # By the clock priors would come late wherever others keep the machine busy. This thread serves
            # requests meanwhile, which are no work of a fit: its calls of the store take less than the fit.
            loop_s = time.thread_time() - started
            used_s += min(loop_s, used_s) if used_s else loop_s
            # unused time is saved, up to SAVED_S
            earliest = max(self._rest_until, time.monotonic() - SAVED_S)
            self._rest_until = earliest + used_s * (1.0 / SHARE - 1.0)
        if not done.is_new:
            # with too few keys every further reward is worth a try, else only GROWTH as many more
            self._tried[uid] = FoldedCounts() if done.is_of_few else counts

    def _is_due(self, uid: str, space: int, counts: FoldedCounts, newest: PriorVersion | None) -> bool:
        if newest is None or newest.learned is None:
            tried = self._tried.get(uid)
            if tried is None:
                return True
            return _has_grown(counts, tried.entries) or counts.replaced != tried.replaced
        if newest.record.space != space:  # a move has left no prior, or this process has not heard of it yet
            return newest.record.space < space
        record, age_s = newest.record, self._now_s() - newest.record.since_ms / 1_000.0
        if counts.entries < record.rewards or counts.replaced != record.replaced:
            return True
        is_late = counts.entries > record.rewards and age_s >= LONGEST_S
        return is_late or _has_grown(counts, record.rewards)


def _has_grown(counts: FoldedCounts, since: int) -> bool:
    more = counts.entries - since
    return more > 0 and more >= GROWTH * since
