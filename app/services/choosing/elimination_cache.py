"""The elimination states of learners in memory, and exact passes over the arms beside the event loop.

A state is a cache: what is lost is made again from the posterior and the catalogue (docs/guarantees.md).
Short passes are made at once; long ones in a thread, at most ``PASSES`` at a time, while choices go on from
the last state. Only a learner that has no state at all waits for one. Learners without rewards share the
prior's state, and those with fewer rewards than dimensions begin with it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

import msgspec

from app.services.bandits.bandit import Bandit
from app.services.bounded.cache import BoundedCache
from app.services.bounded.caller import task_for_all
from app.services.bounded.long_work import LongWork
from app.services.catalogues.filtered_snapshots import FilteredSnapshots
from app.services.catalogues.learner_snapshot import LearnerSnapshot
from app.services.choosing.computing import INLINE_US, computed
from app.services.choosing.elimination_state import (
    FIND,
    Placed,
    Sets,
    caught_up,
    fits,
    pass_work,
    pick,
    pick_among,
    rebuilt,
    refreshed,
    sets_of,
)
from app.services.choosing.selection import ReadSnapshot, Selection, SelectionRequest
from app.services.learning.learners import Learners
from app.storage.protocol import LearnerId
from shortlist.linear import elimination
from shortlist.linear.elimination import EliminationRules
from shortlist.types import TopK

PASSES = 2
EXACT_CHOICES = 2
WAITING = 64
INLINE_WORK = 3_000_000  # multiply-adds: a few milliseconds
PRIOR = ""  # no learner has this name
STATE_BYTES = 1_000


def rules_of(bandit: Bandit) -> EliminationRules:
    """What does not change while a learner of an elimination policy learns."""
    return elimination.rules(radius=bandit.exploration, eta=bandit.eta)


def full_work(bandit: Bandit, arms: LearnerSnapshot) -> int:
    """Multiply-adds of a pass over all arms."""
    return arms.size * bandit.learner_dim**2


def work_us(work: int) -> float:
    """About how many microseconds so many multiply-adds take."""
    return work * INLINE_US / INLINE_WORK


@dataclass(frozen=True, slots=True, eq=False)
class _Subject:
    """The learner whose state is asked for, in one snapshot. ``key`` names the state.

    ``is_kept``: whether states of it are; not those of a dry run.
    """

    bandit: Bandit
    key: LearnerId
    snapshot: ReadSnapshot
    is_kept: bool = True

    @property
    def arms(self) -> LearnerSnapshot:
        return self.snapshot.arms

    @property
    def rules(self) -> EliminationRules:
        return rules_of(self.bandit)


class EliminationCache:
    """The states of all learners of policies that keep one. ``capacity_bytes`` bounds their memory."""

    def __init__(self, learners: Learners, *, capacity_bytes: int) -> None:
        self._learners = learners
        self._states: BoundedCache[LearnerId, Placed] = BoundedCache(capacity_bytes)
        self._passes: dict[LearnerId, asyncio.Task[None]] = {}
        self._making = LongWork(threads=PASSES, waiting=WAITING)
        self.exact_choices = LongWork(threads=EXACT_CHOICES, waiting=WAITING)

    async def choose(self, request: SelectionRequest, filtered: FilteredSnapshots) -> Selection:
        """The ``k`` arms of largest uncertainty that may still be best; none from an empty catalogue.

        With a filter or limits, those of the arms that they let in; the state stays that of all arms.
        """
        while True:
            subject, placed = await self._ready(request.bandit, request.learner, is_kept=not request.dry_run)
            if not request.narrows:
                return Selection(await self._pick(subject, placed, request), subject.snapshot)
            snapshot = await subject.snapshot.among(filtered, request)
            if snapshot.arms.table.number == placed.table_number:  # else it was compacted meanwhile
                break
        if subject.is_kept:  # makes the passes that are due
            await self._pick(subject, placed, msgspec.structs.replace(request, k=1, exclude=()))
        arms = snapshot.arms
        exclude, limits = request.excluded(arms), request.limits(arms)
        choose = partial(pick_among, placed, snapshot, request.k, exclude=exclude, limits=limits)
        us = work_us(full_work(subject.bandit, arms))
        return Selection(await computed(choose, request, arms, us=us, threads=self.exact_choices), snapshot)

    async def sets(self, bandit: Bandit, learner: LearnerId) -> Sets:
        """The stages of a learner, after every pass that is due."""
        subject, placed = await self._ready(bandit, learner)
        fresh = await self._making.run(partial(refreshed, placed, subject.snapshot, subject.rules))
        if self._states.get(subject.key) is placed:
            self._keep(subject, fresh)
        return sets_of(fresh)

    def forget(self, learner: LearnerId) -> None:
        """Drop all that was made from what a learner knew."""
        self._states.drop(learner)
        self._passes.pop(learner, None)

    def forget_all(self) -> None:
        """It is not known who was forgotten."""
        self._states.clear()
        self._passes.clear()

    def close(self) -> None:
        for task in self._passes.values():
            task.cancel()
        self._making.close()
        self.exact_choices.close()

    async def _subject(self, bandit: Bandit, learner: LearnerId, *, is_kept: bool) -> _Subject:
        snapshot = await ReadSnapshot.now(self._learners, bandit, learner)
        key = learner if snapshot.learner_version else _prior(bandit)
        return _Subject(bandit, key, snapshot, is_kept)

    async def _ready(
        self, bandit: Bandit, learner: LearnerId, *, is_kept: bool = True
    ) -> tuple[_Subject, Placed]:
        """A state to choose from, at the learner and the catalogue as they are now."""
        while True:
            subject = await self._subject(bandit, learner, is_kept=is_kept)
            placed = self._current(subject)
            if placed is None and not is_kept:
                placed = await self._making.run(partial(refreshed, None, subject.snapshot, subject.rules))
            if placed is not None:
                self._keep(subject, placed)
                return subject, placed
            await asyncio.shield(self._begin_pass(subject, None))

    def _current(self, subject: _Subject) -> Placed | None:
        """Its own state, or the prior's where it has hardly begun; None: none that is quickly made."""
        keys = [subject.key]
        if subject.snapshot.learner_version <= subject.bandit.catalogue.dim:
            keys.append(_prior(subject.bandit))
        for key in keys:
            placed = self._states.get(key)
            if placed is None:
                continue
            if fits(placed, subject.snapshot, subject.rules):
                placed = caught_up(placed, subject.snapshot, most_work=INLINE_WORK)
                if placed.state.living.count or not subject.arms.size:
                    return placed
                break
            if subject.is_kept:
                self.forget(key)
        if full_work(subject.bandit, subject.arms) <= INLINE_WORK:
            return rebuilt(subject.snapshot, subject.rules)
        return None

    async def _pick(self, subject: _Subject, placed: Placed, request: SelectionRequest) -> TopK:
        exclude = request.excluded(subject.arms)
        choose = partial(pick, snapshot=subject.snapshot, k=request.k, rng=request.rng, exclude=exclude)
        us = work_us(FIND.most * subject.bandit.learner_dim**2)
        picked = await computed(partial(choose, placed), request, subject.arms, us=us)
        overtaken = subject.is_kept and self._states.get(subject.key) is not placed
        if overtaken or not (picked.due or picked.broken):
            return picked.hits
        before = None if picked.broken else placed
        if pass_work(before, subject.arms) > INLINE_WORK:
            if subject.is_kept:
                self._begin_pass(subject, before)
            return picked.hits
        placed = refreshed(before, subject.snapshot, subject.rules)
        self._keep(subject, placed)
        return choose(placed).hits

    def _begin_pass(self, subject: _Subject, placed: Placed | None) -> asyncio.Task[None]:
        task = self._passes.get(subject.key)
        if task is None:
            task = task_for_all(self._pass(subject, placed))
            self._passes[subject.key] = task
        return task

    async def _pass(self, subject: _Subject, placed: Placed | None) -> None:
        """One long pass; its result counts unless the learner was forgotten meanwhile."""
        me = asyncio.current_task()
        try:
            make = partial(refreshed, placed, subject.snapshot, subject.rules)
            made = await self._making.run(make)
            if self._passes.get(subject.key) is me:
                self._keep(subject, made)
        finally:
            if self._passes.get(subject.key) is me:
                del self._passes[subject.key]

    def _keep(self, subject: _Subject, placed: Placed) -> None:
        if subject.is_kept and self._states.get(subject.key) is not placed:
            self._states.put(subject.key, placed, STATE_BYTES + placed.state.nbytes)


def _prior(bandit: Bandit) -> LearnerId:
    """The name of the state that all learners without rewards share."""
    return LearnerId(bandit.uid, PRIOR)
