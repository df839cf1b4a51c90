"""Elimination for all bandits: the states of their learners in memory, and exact passes beside the loop.

A state is a cache: whatever is lost is made again from the posterior and the catalogue (docs/guarantees.md).
Short passes are made at once; long ones in a thread, at most ``PASSES`` at a time, while choices go on from
the last state. Only who has no state at all waits for one. Learners without rewards share the prior's state,
and those with fewer rewards than dimensions begin with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from app.algorithms.linear.elimination import Rules
from app.algorithms.types import NO_ROWS, TopK
from app.services.bandits.bandits import Bandit
from app.services.bounded.cache import BoundedCache
from app.services.catalogues.learner_view import LearnerView
from app.services.choosing.elimination_state import (
    FIND,
    Learned,
    Placed,
    Sets,
    caught_up,
    exact_sets,
    pass_work,
    pick,
    pick_exactly,
    rebuilt,
    refreshed,
    sets_of,
)
from app.services.learning.learners import Learners

T = TypeVar("T")

PASSES = 2
EXACT_CHOICES = 2
INLINE_WORK = 3_000_000  # multiply-adds: a few milliseconds
PRIOR = ""  # no learner has this name
STATE_BYTES = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class Decided:
    """What was chosen, and from what."""

    found: TopK
    view: LearnerView
    learner_version: int
    catalogue_version: int
    propensities: Sequence[float] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Asker:
    """A learner and a catalogue at the same moment. ``key`` names the state."""

    bandit: Bandit
    key: str
    learned: Learned
    view: LearnerView
    catalogue_version: int

    @property
    def rules(self) -> Rules:
        return self.bandit.rules

    @property
    def full_work(self) -> int:
        return self.view.size * self.bandit.learner_dim**2


class Eliminating:
    """The choices of elimination policies."""

    def __init__(self, learners: Learners, *, capacity_bytes: int) -> None:
        self._learners = learners
        self._states: BoundedCache[Placed] = BoundedCache(capacity_bytes)
        self._passes: dict[str, asyncio.Task[None]] = {}
        self._pass_slots = asyncio.Semaphore(PASSES)
        self._exact_choices = asyncio.Semaphore(EXACT_CHOICES)

    @property
    def bytes(self) -> int:
        """Memory of the states held; arrays that states share are counted for each."""
        return self._states.bytes

    async def choose(
        self, bandit: Bandit, name: str, *, k: int, exclude: Sequence[str], rng: np.random.Generator
    ) -> Decided:
        """The ``k`` arms of largest uncertainty that may still be best; none from an empty catalogue."""
        if bandit.record.policy == "linear_elim":
            asker = await self._asker(bandit, name)
            rows = asker.view.rows_of(exclude) if exclude else NO_ROWS
            choose = partial(pick_exactly, asker.learned, asker.view, asker.rules, k, rows)
            long = asker.full_work > INLINE_WORK
            found = await _in_thread(self._exact_choices, choose) if long else choose()
        else:
            asker, placed = await self._ready(bandit, name)
            found = await self._pick(asker, placed, k, exclude, rng)
        return Decided(found, asker.view, asker.learned.version, asker.catalogue_version)

    async def sets(self, bandit: Bandit, name: str) -> Sets:
        """The stages of a learner, after every pass that is due."""
        if bandit.record.policy == "linear_elim":
            asker = await self._asker(bandit, name)
            make_exactly = partial(exact_sets, asker.learned, asker.view, asker.rules)
            return await _in_thread(self._exact_choices, make_exactly)
        asker, placed = await self._ready(bandit, name)
        make = partial(refreshed, placed, asker.learned, asker.view, asker.rules)
        short = pass_work(placed, asker.view) <= INLINE_WORK
        fresh = make() if short else await _in_thread(self._pass_slots, make)
        if self._states.get(asker.key) is placed:
            self._keep(asker.key, fresh)
        return sets_of(fresh)

    def forget(self, uid: str, name: str) -> None:
        """Drop all that was made from what a learner knew."""
        self._drop(f"{uid}/{name}")

    def forget_all(self) -> None:
        """It is not known who was forgotten."""
        self._states.clear()
        self._passes.clear()

    def close(self) -> None:
        for task in self._passes.values():
            task.cancel()

    async def _asker(self, bandit: Bandit, name: str) -> _Asker:
        learner = self._learners.cached(bandit, name) or await self._learners.get(bandit, name)
        posterior = learner.posterior or await self._learners.posterior(bandit, learner)
        key = f"{bandit.uid}/{name if learner.version else PRIOR}"
        view, version = bandit.snapshot(), bandit.catalogue.version
        return _Asker(bandit, key, Learned(learner.version, posterior), view, version)

    async def _ready(self, bandit: Bandit, name: str) -> tuple[_Asker, Placed]:
        """A state to choose from, at the learner and the catalogue as they are now."""
        while True:
            asker = await self._asker(bandit, name)
            placed = self._current(asker)
            if placed is not None:
                self._keep(asker.key, placed)
                return asker, placed
            await asyncio.shield(self._begin_pass(asker, None))

    def _current(self, asker: _Asker) -> Placed | None:
        placed = self._known(asker)
        if placed is not None:
            placed = caught_up(placed, asker.learned, asker.view, most_work=INLINE_WORK)
            if placed.state.living.count or not asker.view.size:
                return placed
        if asker.full_work <= INLINE_WORK:
            return rebuilt(asker.learned, asker.view, asker.rules)
        return None

    def _known(self, asker: _Asker) -> Placed | None:
        """The state of this learner; the prior's for one that has hardly begun."""
        keys = [asker.key]
        if asker.learned.version <= asker.bandit.catalogue.dim:
            keys.append(f"{asker.bandit.uid}/{PRIOR}")
        for key in keys:
            placed = self._states.get(key)
            if placed is None:
                continue
            if placed.table == asker.view.view.table and placed.version <= asker.learned.version:
                return placed
            self._drop(key)  # the catalogue was compacted, or the learner forgotten
        return None

    async def _pick(
        self, asker: _Asker, placed: Placed, k: int, exclude: Sequence[str], rng: np.random.Generator
    ) -> TopK:
        rows = asker.view.rows_of(exclude) if exclude else NO_ROWS
        choose = partial(pick, learned=asker.learned, view=asker.view, k=k, rng=rng, exclude=rows)
        if FIND.most * asker.bandit.learner_dim**2 > INLINE_WORK:
            picked = await asyncio.to_thread(choose, placed)
        else:
            picked = choose(placed)
        overtaken = self._states.get(asker.key) is not placed
        if overtaken or not (picked.due or picked.broken):
            return picked.found
        work = asker.full_work if picked.broken else pass_work(placed, asker.view)
        before = None if picked.broken else placed
        if work > INLINE_WORK:
            self._begin_pass(asker, before)
            return picked.found
        placed = refreshed(before, asker.learned, asker.view, asker.rules)
        self._keep(asker.key, placed)
        return choose(placed).found

    def _begin_pass(self, asker: _Asker, placed: Placed | None) -> asyncio.Task[None]:
        task = self._passes.get(asker.key)
        if task is None:
            task = asyncio.create_task(self._pass(asker, placed))
            task.add_done_callback(_consume)
            self._passes[asker.key] = task
        return task

    async def _pass(self, asker: _Asker, placed: Placed | None) -> None:
        """One long pass; its result counts unless the learner was forgotten meanwhile."""
        me = asyncio.current_task()
        try:
            make = partial(refreshed, placed, asker.learned, asker.view, asker.rules)
            made = await _in_thread(self._pass_slots, make)
            if self._passes.get(asker.key) is me:
                self._keep(asker.key, made)
        finally:
            if self._passes.get(asker.key) is me:
                del self._passes[asker.key]

    def _keep(self, key: str, placed: Placed) -> None:
        if self._states.get(key) is not placed:
            self._states.put(key, placed, STATE_BYTES + placed.state.nbytes)

    def _drop(self, key: str) -> None:
        self._states.drop(key)
        self._passes.pop(key, None)


async def _in_thread(slots: asyncio.Semaphore, function: partial[T]) -> T:
    async with slots:
        return await asyncio.to_thread(function)


def _consume(task: asyncio.Task[None]) -> None:
    """A pass that failed is tried again by the next choice."""
    if not task.cancelled():
        task.exception()
