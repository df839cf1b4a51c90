"""The elimination states of learners: their updates with a catalogue, and their cache.

Notation
    K, d            arms of the catalogue, dimension
    work            multiply-adds of an exact pass over n arms, n d^2

States are values, of any thread. A state counts the rows and the tombstones of the table so far; rows of a
table never move, and a compaction makes another table and another state.

A state is a cache: a lost one is made again from the posterior and the catalogue (docs/guarantees.md).
Short passes are made at once; long ones in a thread, at most ``PASSES`` at a time, while choices go on from
the last state. Only a learner without a state waits. Learners without rewards share the prior's state, and
those with fewer rewards than dimensions begin with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
import numpy as np

from app.bandits.bandit import Bandit
from app.catalogues.learner_snapshot import LearnerSnapshot
from app.filtering.filtered_snapshots import FilteredSnapshots
from app.learners.learners import Learners
from app.platform.cache import BoundedCache
from app.platform.deadlines import task_for_all
from app.platform.documents import Answer
from app.platform.long_work import LongWork
from app.selection.computing import INLINE_US, computed
from app.selection.list_limits import Limits
from app.selection.selection import Candidates, ReadSnapshot, Selection, SelectionRequest
from app.storage.types import LearnerId
from shortlist.linear import elimination, linear_elimination, sub_elim
from shortlist.linear.elimination import Elimination, EliminationRules
from shortlist.linear.most_uncertain_arm import Watched
from shortlist.linear.ridge import Posterior
from shortlist.types import NO_ROWS, Rows, TopK

FIND = Watched()
UNBOUNDED = float("inf")
PASSES = 2
WAITING = 64
INLINE_WORK = 3_000_000  # multiply-adds: a few milliseconds
PRIOR = ""  # no learner has this name
STATE_BYTES = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A state, the learner's version at its last use, and the included rows of a table.

    ``ridge``: of the posteriors of the state.
    """

    state: Elimination
    ridge: float
    version: int
    table_number: int
    rows: int
    dead: int


@dataclass(frozen=True, slots=True, eq=False)
class Picked:
    """``due``: a pass is to follow; ``broken``: the state is not of this learner, and is to be made again."""

    hits: TopK
    due: bool
    broken: bool


class Stage(Answer, frozen=True):
    """The number of arms in a stage. Stage s holds widths of at most 2^-s."""

    stage: int
    size: int


class Sets(Answer, frozen=True):
    """The stages of elimination, and the number of eliminated arms. ``threshold``: null without arms."""

    stages: list[Stage]
    eliminated: int
    threshold: float | None


def fits(placed: Placed, snapshot: ReadSnapshot, rules: EliminationRules) -> bool:
    """Return whether a state goes on with this learner, this table and these rules.

    False after a compaction of the catalogue, for a forgotten learner, and for a changed bandit.
    """
    made_by = placed.table_number, placed.ridge, placed.state.rules
    now = snapshot.arms.table.number, snapshot.posterior.ridge, rules
    return made_by == now and placed.version <= snapshot.learner_version


def rebuilt(snapshot: ReadSnapshot, rules: EliminationRules) -> Placed:
    """Place all arms of the catalogue by this posterior. Work: K d^2."""
    arms = snapshot.arms.table
    state = elimination.start(snapshot.posterior, arms.live_rows, snapshot.arms.features_of, rules)
    return Placed(
        state, snapshot.posterior.ridge, snapshot.learner_version, arms.number, arms.rows, len(arms.dead)
    )


def caught_up(placed: Placed, snapshot: ReadSnapshot, *, most_work: float = UNBOUNDED) -> Placed:
    """Take out deleted arms; take in new ones, if the work is at most ``most_work``."""
    arms, state, rows = snapshot.arms.table, placed.state, placed.rows
    if placed.version == snapshot.learner_version and (rows, placed.dead) == (arms.rows, len(arms.dead)):
        return placed
    died = arms.dead[placed.dead :]
    died = died[died < rows]
    if len(died):
        state = elimination.delete(state, died)
    if rows < arms.rows and (arms.rows - rows) * arms.dim**2 <= most_work:
        new = np.arange(rows, arms.rows)
        state = elimination.add(state, snapshot.posterior, new[arms.is_alive(new)], snapshot.arms.features_of)
        rows = arms.rows
    return Placed(state, placed.ridge, snapshot.learner_version, arms.number, rows, len(arms.dead))


def refreshed(placed: Placed | None, snapshot: ReadSnapshot, rules: EliminationRules) -> Placed:
    """Catch up with everything, and make every due pass. Work: up to K d^2 for each stage."""
    if placed is not None:
        placed = caught_up(placed, snapshot)
    if placed is None or placed.state.stale:
        placed = rebuilt(snapshot, rules)
    rng = np.random.default_rng(0)  # no choice is made here
    state, _ = sub_elim.play(
        placed.state, snapshot.posterior, snapshot.arms.features_of, FIND, k=1, rng=rng, check_rate=1.0
    )
    if state.stale:
        return rebuilt(snapshot, rules)
    return replace(placed, state=state)


def pass_work(placed: Placed | None, arms: LearnerSnapshot) -> int:
    """Work of what is due: of a pass, or of a rebuild."""
    table = arms.table
    if placed is None:
        return table.live * table.dim**2
    rows = placed.state.pass_size if placed.state.stages and not placed.state.stale else table.live
    return (rows + table.rows - placed.rows) * table.dim**2


def pick(
    placed: Placed, snapshot: ReadSnapshot, *, k: int, rng: np.random.Generator, exclude: Rows = NO_ROWS
) -> Picked:
    """Choose ``k`` arms.

    When fewer than k live, the eliminated ones of largest estimate follow, scored by their widths as well.
    """
    state, posterior, arms = placed.state, snapshot.posterior, snapshot.arms
    choice = sub_elim.choose(state, posterior, arms.features_of, FIND, k=k, rng=rng, exclude=exclude)
    hits = choice.arms
    if len(hits.rows) < k:
        picked = np.concatenate((hits.rows, exclude))
        rest = arms.search(posterior.theta, k - len(hits.rows), picked)
        _, spans = elimination.measure(posterior, rest.rows, arms.features_of, state.rules.radius)
        hits = TopK(
            np.concatenate((hits.rows, rest.rows)),
            np.concatenate((hits.scores, spans)),
            exact=hits.exact and rest.exact,
        )
    return Picked(hits, choice.due or state.stale or placed.rows < arms.table.rows, choice.broken)


def pick_among(
    placed: Placed, snapshot: ReadSnapshot, k: int, *, exclude: Rows = NO_ROWS, limits: Limits | None = None
) -> TopK:
    """Choose ``k`` of the arms in ``snapshot``: the widest living ones.

    When too few live, the arms of largest upper bound follow. ``limits``: barred arms are passed over. Scores
    are widths. Work: d^2 for each matching living arm, and for the others where needed.
    """
    arms, rows = snapshot.arms, snapshot.arms.eligible(exclude)
    is_alive = placed.state.living.mask(rows) | (rows >= placed.rows)  # arms that no pass has seen live
    living, gone = rows[is_alive], rows[~is_alive]
    radius = placed.state.rules.radius
    _, spans = elimination.measure(snapshot.posterior, living, arms.features_of, radius)
    order = np.lexsort((living, -spans))
    living, spans = living[order], spans[order]
    if limits is None and len(living) >= k:
        return TopK(living[:k], spans[:k], exact=True)
    estimates, widths = elimination.measure(snapshot.posterior, gone, arms.features_of, radius)
    order = np.lexsort((gone, -(estimates + widths)))
    ranked, spans = np.concatenate((living, gone[order])), np.concatenate((spans, widths[order]))
    positions = np.arange(min(k, len(ranked))) if limits is None else limits.take_allowed(ranked, k)
    return TopK(ranked[positions], spans[positions], exact=True)


def sets_of(placed: Placed) -> Sets:
    state = placed.state
    threshold = state.threshold if state.present else None
    return Sets([Stage(*size) for size in state.sizes()], state.present - state.living.count, threshold)


def pick_exactly(posterior: Posterior, candidates: Candidates, k: int) -> TopK:
    """Choose ``k`` arms by linear elimination. Work: K d^2."""
    arms, limits, rows = candidates.arms, candidates.limits, candidates.arms.table.live_rows
    barred = np.isin(rows, candidates.exclude)
    if arms.plain.is_filtered:
        barred |= ~np.isin(rows, arms.eligible())
    hits = linear_elimination.choose(
        posterior,
        arms.features_of(rows),
        k=k if limits is None else max(len(rows), 1),
        radius=rules_of(candidates.bandit).radius,
        exclude=np.flatnonzero(barred),
    )
    positions = np.arange(len(hits.rows)) if limits is None else limits.take_allowed(rows[hits.rows], k)
    return TopK(rows[hits.rows[positions]], hits.scores[positions], exact=True)


def exact_sets(snapshot: ReadSnapshot, rules: EliminationRules) -> Sets:
    """The stages, by their widths now, of the arms living under linear elimination. Work: K d^2."""
    features = snapshot.arms.features_of(snapshot.arms.table.live_rows)
    survey = linear_elimination.survey(snapshot.posterior, features, radius=rules.radius)
    stages = elimination.stage_of(survey.spans[survey.lives], rules.last_stage)
    counts = zip(*(column.tolist() for column in np.unique(stages, return_counts=True)), strict=True)
    gone = int(np.count_nonzero(~survey.lives))
    return Sets([Stage(*count) for count in counts], gone, survey.threshold if len(features) else None)


def rules_of(bandit: Bandit) -> EliminationRules:
    """The constants of an elimination policy while a learner learns."""
    return elimination.rules(radius=bandit.exploration, eta=bandit.eta)


def full_work(bandit: Bandit, arms: LearnerSnapshot) -> int:
    """Multiply-adds of a pass over all arms."""
    return arms.size * bandit.learner_dim**2


def work_us(work: int) -> float:
    """About how many microseconds so many multiply-adds take."""
    return work * INLINE_US / INLINE_WORK


@dataclass(frozen=True, slots=True, eq=False)
class _Subject:
    """The learner of a state, in one snapshot. ``key`` names the state.

    ``is_kept``: whether its states are kept; not in a dry run.
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
    """The states of all learners of elimination policies. ``capacity_bytes`` bounds their memory."""

    def __init__(self, learners: Learners, *, capacity_bytes: int, inline_work: int = INLINE_WORK) -> None:
        self.inline_work = inline_work  # a pass of more multiply-adds is made in a thread
        self._learners = learners
        self.states: BoundedCache[Hashable, Any] = BoundedCache(capacity_bytes)
        self.passes: dict[LearnerId, asyncio.Task[None]] = {}
        self._making = LongWork(threads=PASSES, waiting=WAITING)

    async def choose(self, request: SelectionRequest, filtered: FilteredSnapshots) -> Selection:
        """The ``k`` arms of largest uncertainty among the possible best; none from an empty catalogue.

        With a filter or limits, only allowed arms; the state stays of all arms.
        """
        # The table may be compacted while something is awaited: then state and snapshot number their rows
        # differently, and both are taken again.
        while True:
            subject, placed = await self._ready(request.bandit, request.learner, is_kept=not request.dry_run)
            if not request.narrows:
                return Selection(await self._pick(subject, placed, request), snapshot=subject.snapshot)
            snapshot = await subject.snapshot.among(filtered, request)
            if snapshot.arms.table.number == placed.table_number:  # else it was compacted meanwhile
                break
        if subject.is_kept:  # makes the passes that are due
            await self._pick(subject, placed, msgspec.structs.replace(request, k=1, exclude=()))
        arms = snapshot.arms
        exclude, limits = request.excluded(arms), request.limits_among(arms)
        choose = partial(pick_among, placed, snapshot, request.k, exclude=exclude, limits=limits)
        us = work_us(full_work(subject.bandit, arms))
        hits = await computed(choose, request, arms, us=us)
        return Selection(hits, snapshot=snapshot)

    async def sets(self, bandit: Bandit, learner: LearnerId) -> Sets:
        """The stages of a learner, after every due pass."""
        subject, placed = await self._ready(bandit, learner)
        fresh = await self._making.run(partial(refreshed, placed, subject.snapshot, subject.rules))
        # Else somebody forgot the learner, or made a newer state, while the thread was at work.
        if self.states.get(subject.key) is placed:
            self._keep(subject, fresh)
        return sets_of(fresh)

    def forget(self, learner: LearnerId) -> None:
        """Drop the state and the pass of a learner."""
        self.states.drop(learner)
        self.passes.pop(learner, None)

    def forget_all(self) -> None:
        """Drop all states: the forgotten learners are unknown."""
        self.states.clear()
        self.passes.clear()

    def close(self) -> None:
        for task in self.passes.values():
            task.cancel()
        self._making.close()

    async def _ready(
        self, bandit: Bandit, learner: LearnerId, *, is_kept: bool = True
    ) -> tuple[_Subject, Placed]:
        """A state to choose from, at the learner and the catalogue as they are now."""
        while True:
            snapshot = await ReadSnapshot.now(self._learners, bandit, learner)
            key = learner if snapshot.learner_version else _prior(bandit)
            subject = _Subject(bandit, key, snapshot, is_kept)
            placed = self._current(subject)
            if placed is None and not is_kept:
                placed = await self._making.run(partial(refreshed, None, subject.snapshot, subject.rules))
            if placed is not None:
                self._keep(subject, placed)
                return subject, placed
            # The pass serves all callers of the learner, whoever of them leaves.
            await asyncio.shield(self._begin_pass(subject, None))

    def _current(self, subject: _Subject) -> Placed | None:
        """The learner's own state, or the prior's after few rewards; None: a state takes long to make."""
        keys = [subject.key]
        # With fewer rewards than dimensions little can have been eliminated: the prior's state serves until
        # its own is made.
        if subject.snapshot.learner_version <= subject.bandit.catalogue.dim:
            keys.append(_prior(subject.bandit))
        for key in keys:
            placed: Placed | None = self.states.get(key)
            if placed is None:
                continue
            if fits(placed, subject.snapshot, subject.rules):
                placed = caught_up(placed, subject.snapshot, most_work=self.inline_work)
                if placed.state.living.count or not subject.arms.size:
                    return placed
                break
            if subject.is_kept:
                self.forget(key)
        if full_work(subject.bandit, subject.arms) <= self.inline_work:
            return rebuilt(subject.snapshot, subject.rules)
        return None

    async def _pick(self, subject: _Subject, placed: Placed, request: SelectionRequest) -> TopK:
        exclude = request.excluded(subject.arms)
        choose = partial(pick, snapshot=subject.snapshot, k=request.k, rng=request.rng, exclude=exclude)
        us = work_us(FIND.most * subject.bandit.learner_dim**2)
        picked = await computed(partial(choose, placed), request, subject.arms, us=us)
        overtaken = subject.is_kept and self.states.get(subject.key) is not placed
        if overtaken or not (picked.due or picked.broken):
            return picked.hits
        before = None if picked.broken else placed
        if pass_work(before, subject.arms) > self.inline_work:
            if subject.is_kept:
                self._begin_pass(subject, before)
            return picked.hits
        placed = refreshed(before, subject.snapshot, subject.rules)
        self._keep(subject, placed)
        return choose(placed).hits

    def _begin_pass(self, subject: _Subject, placed: Placed | None) -> asyncio.Task[None]:
        task = self.passes.get(subject.key)
        if task is None:
            task = task_for_all(self._pass(subject, placed))
            self.passes[subject.key] = task
        return task

    async def _pass(self, subject: _Subject, placed: Placed | None) -> None:
        """One long pass; its result counts unless the learner was forgotten meanwhile."""
        me = asyncio.current_task()
        try:
            make = partial(refreshed, placed, subject.snapshot, subject.rules)
            refreshed_sets = await self._making.run(make)
            # ``forget`` takes the pass out of the table: then what it made is of a learner that is gone.
            if self.passes.get(subject.key) is me:
                self._keep(subject, refreshed_sets)
        finally:
            if self.passes.get(subject.key) is me:
                del self.passes[subject.key]

    def _keep(self, subject: _Subject, placed: Placed) -> None:
        if subject.is_kept and self.states.get(subject.key) is not placed:
            self.states.put(subject.key, placed, STATE_BYTES + placed.state.nbytes)


def _prior(bandit: Bandit) -> LearnerId:
    """The name of the state that all learners without rewards share."""
    return LearnerId(bandit.uid, PRIOR)
