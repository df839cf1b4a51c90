"""Propensities of logged decisions, for policies without any: estimated by draws from the posterior of then.

A learner is folded forward, reward by reward, to the version of a decision. The propensity is the share of
draws with the logged list, which counts as a draw itself (``simulated_target.with_own_draw``). Decisions
whose learner, prior, effects or arms are not known as they were stay without propensities, and so are left
out.

Memory: the learners, and the rewards that came later than the decisions that were read.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import msgspec
import numpy as np

from shortlist.evaluation import simulated_target
from shortlist.linear import ridge_sums
from shortlist_evaluation.logged_lists import (
    LoggedLists,
    PoolName,
    SortedCounts,
    effects_of_candidates,
    joined,
    known_rows,
    lets_in,
    rows_of,
    sort,
)
from shortlist_evaluation.past_learners import PastLearners
from shortlist_evaluation.sources import HeldSource
from shortlist_service.catalogues import among
from shortlist_service.constraints import LearnerId
from shortlist_service.decision_log import (
    ConstraintRow,
    Row,
    TimedReward,
    drawn_policy,
    learner_of,
    unknown_past,
)
from shortlist_service.errors import Invalid
from shortlist_service.learners import LearnerState, learned, merged
from shortlist_service.policies import (
    ArmEffects,
    Bandit,
    Directions,
    EvaluationBatch,
    LearnerSnapshot,
    Lists,
    Pool,
)
from shortlist_service.work import MEASURING

STAND_IN = 1.0  # for a propensity, while rows are sorted
MOST_POOLS = 64

Situations = Mapping[Hashable, tuple[list[int], list[LoggedLists]]]
"""Positions of decisions that the same draws serve, and their lists."""


@dataclass(slots=True)
class LearnersByVersion:
    """Learners as they were at a version, of versions that are asked for in ascending order.

    ``states``    as they were before the first decision
    ``pending``   rewards that later versions know, by learner: a heap by the time at which they came
    ``inexact``   learners of which some reward is not known as it was learned
    """

    states: dict[LearnerId, LearnerState]
    pending: dict[LearnerId, list[tuple[float, int, TimedReward]]] = field(default_factory=dict)
    inexact: set[LearnerId] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=count)

    def add(self, rewards: Sequence[TimedReward]) -> None:
        """Rewards that came at some time. Cost: O(log n) each."""
        for reward in rewards:
            came_ms, (entry, _) = reward
            heap = self.pending.setdefault(entry.learner, [])
            heapq.heappush(heap, (came_ms, next(self._numbers), reward))

    def at(self, learner: LearnerId, version: int) -> LearnerState | None:
        """The state of this version; None: it is not known. Cost: D^2 for each reward since the last."""
        state, heap = self.states.get(learner), self.pending.get(learner, [])
        missing = version - (0 if state is None else state.version)
        if learner in self.inexact or not 0 <= missing <= len(heap):
            return None
        if missing:
            items = [heapq.heappop(heap)[2][1] for _ in range(missing)]
            gained = learned(items)[learner]
            if gained is not None:
                state = self.states[learner] = merged(state, gained)
        return state


class DrawnPropensities:
    """Estimates them for one log, whose rows are given in the order of time.

    ``estimated``   decisions that have such propensities now
    ``draws``       for each of them, at least
    ``changed``     decisions that have none since the catalogue changed after them
    """

    def __init__(
        self,
        bandit: Bandit,
        source: HeldSource,
        past: PastLearners,
        constraints: Sequence[ConstraintRow],
        check: Callable[[], None],
    ) -> None:
        """``past``: whose survey is done, and that did not begin with a block."""
        self.estimated = self.draws = self.changed = 0
        self._bandit, self._source, self._past = bandit, source, past
        self._constraints, self._check = constraints, check
        self._learners = LearnersByVersion(past.before_the_log(), inexact=set(past.unknown))
        self._bandits_then = dict[int, Bandit]()
        self._pools = dict[Hashable, LearnerSnapshot]()
        self._directions = dict[int, Directions]()

    async def filled(self, rows: Sequence[Row], *, draw: bool) -> Sequence[Row]:
        """The rows, with propensities where they can be estimated. ``draw``: False, only learn from them.

        Cost: of each learner, context and choice of arms that decisions have, as of a target that draws.
        """
        await self._learn(rows)
        if not draw:
            return rows
        result = list(rows)
        for positions, lists in (await self._situations(rows)).values():
            estimated = await self._estimated([rows[position] for position in positions], lists)
            for position, row in zip(positions, estimated, strict=True):
                result[position] = row
        return result

    async def learn_earlier(self, rows: Sequence[Row]) -> None:
        """Learn from decisions before those of the log that is evaluated."""
        await self._learn(rows)

        def catch_up() -> None:  # what is known to one of these decisions takes no memory any more
            for row in rows:
                self._learners.at(learner_of(self._bandit, row.key), row.learner_version)

        await MEASURING.run(catch_up)

    async def _learn(self, rows: Sequence[Row]) -> None:
        rewards, are_whole = await self._past.rewards_of(rows)
        self._learners.add(rewards)
        self._learners.inexact |= {
            learner_of(self._bandit, row.key)
            for row in rows
            if not are_whole or any(reward.revised for reward in row.rewards)
        }

    async def _situations(self, rows: Sequence[Row]) -> Situations:
        """Situations of the decisions which can be drawn again, by ascending version of the learner."""
        self._bandits_then |= await self._source.versions(self._bandit, rows)
        arms_version = await self._source.arms_version(self._bandit)

        def group() -> Situations:
            by_name: dict[Hashable, tuple[list[int], list[LoggedLists]]] = {}
            # By version: rows of processes that knew different rewards are in the order of time alone.
            for position in sorted(range(len(rows)), key=lambda index: rows[index].learner_version):
                row = rows[position]
                if not self._is_drawn(row):
                    continue
                if not self._has_its_arms(row, arms_version):
                    self.changed += 1
                    continue
                stand_in = _with_propensities(row, [STAND_IN] * len(row.arms))
                for lists in sort(
                    [stand_in], self._bandit, self._bandits_then, self._constraints, SortedCounts()
                ):
                    served = row.bandit_version, row.prior_version, row.effects_version, row.learner_version
                    name = (*served, lists.name, lists.situations[0], lists.excluded[0])
                    positions, of_situation = by_name.setdefault(name, ([], []))
                    positions.append(position)
                    of_situation.append(lists)
            return by_name

        return await MEASURING.run(group)

    def _is_drawn(self, row: Row) -> bool:
        """True if more draws from the posterior tell the probability of the row's list."""
        record = self._bandits_then[row.bandit_version].record
        return (
            drawn_policy(record) is not None
            and row.policy == record.policy
            and row.group != "holdout"
            and row.weights is None
            and any(arm.propensity is None and not arm.pinned for arm in row.arms)
        )

    def _has_its_arms(self, row: Row, arms_version: int) -> bool:
        """True if the possible arms of a decision are the present ones, with the same features."""
        if self._source.logged_by is not None or row.catalogue_version == self._bandit.catalogue.version:
            return True
        reads_metadata = row.filter is not None or row.barred is None or row.barred.filters
        return row.catalogue_version >= arms_version and not reads_metadata

    async def _estimated(self, rows: Sequence[Row], lists: Sequence[LoggedLists]) -> Sequence[Row]:
        """Decisions of one situation, with propensities; as they are where something is not known."""
        row, name = rows[0], lists[0].name
        bandit = await self._as_served(row)
        state = self._learners.at(learner_of(self._bandit, row.key), row.learner_version)
        policy = drawn_policy(self._bandits_then[row.bandit_version].record)
        if bandit is None or policy is None or (state is None and row.learner_version):
            return rows
        arms = await self._arms(bandit, row.bandit_version, name)
        pool = Pool(bandit, arms, name.arm_filter, name.k)
        target, draws = await policy.logged_target(self._source.covers, pool)

        def drawn() -> Sequence[Row]:
            sums = ridge_sums.empty(bandit.learner_dim) if state is None else state.sums
            batch = EvaluationBatch(
                bandit,
                # The target draws from a seed of its own: then errors of both are independent.
                [("logged", row.bandit_version, row.learner_version, lists[0].situations[0])],
                [bandit.posterior(sums)],
                np.zeros(1, dtype=np.int64),
                joined([lists[0].situations[0][1]]),
                [known_rows(arms, lists[0].excluded[0])],
                effects=self._effects_of(bandit, arms),
                has_match=name.candidates is not None and bandit.match_dim > 0,
            )
            ids = [arm for listed in lists for arm in listed.ids]
            shown = rows_of(arms, ids).reshape(len(rows), -1)[:, list(name.drawn_places)]
            if not lets_in(arms, shown).all():
                return rows
            which = np.zeros(len(rows), dtype=np.int64)
            prepared = target.prepare(batch, self._check)
            weighed = target.weigh(batch, prepared, Lists(which, shown, np.zeros(shown.shape)))
            with_own = simulated_target.with_own_draw(weighed.propensities, draws)
            self.estimated += len(rows)
            self.draws = min(self.draws or draws, draws)
            return [
                _with_drawn(one, name, column) for one, column in zip(rows, with_own.tolist(), strict=True)
            ]

        return await MEASURING.run(drawn)

    async def _as_served(self, row: Row) -> Bandit | None:
        """The bandit with the prior and the effects that made a decision; None: they are not kept."""
        bandit = self._bandits_then[row.bandit_version]
        if row.prior_version:
            prior = await self._source.prior(self._bandit, row.prior_version)
            if prior is None:
                return None
            bandit = bandit.with_prior(prior)
        if row.effects_version:
            effects = await self._source.effects(self._bandit, row.effects_version)
            if effects is None:
                return None
            bandit = bandit.with_effects(effects)
        return bandit

    async def _arms(self, bandit: Bandit, version: int, name: PoolName) -> LearnerSnapshot:
        """The arms that decisions of a version of the bandit could choose."""
        arms = self._pools.get((version, name))
        if arms is None:
            if len(self._pools) >= MOST_POOLS:
                self._pools.clear()
            arm_filter = bandit.filter_with(name.arm_filter)
            arms = await self._source.snapshot(bandit, arm_filter, name.candidates)
            if name.barred is not None:
                arms = bandit.seen(await MEASURING.run(partial(among, arms.plain, name.barred)))
            self._pools[version, name] = arms
        return arms

    def _effects_of(self, bandit: Bandit, arms: LearnerSnapshot) -> ArmEffects | None:
        if bandit.effects is None:
            return None
        if arms.plain.whole.is_of_one_request:
            return effects_of_candidates(bandit, arms)
        table = arms.plain.whole.table
        directions = self._directions.setdefault(table.number, Directions())
        return ArmEffects.of(bandit.effects, directions, table, np.ones(1), bandit.exploration)


def check_past(bandit: Bandit) -> None:
    """Raise Invalid (propensities) where draws cannot tell any."""
    why = unknown_past(bandit.record)
    if why is not None:
        message = f"draws need what learners knew at each decision, which is not known with {why}"
        raise Invalid(message, path=("propensities",))


def _with_propensities(row: Row, propensities: Sequence[float]) -> Row:
    arms = [
        msgspec.structs.replace(arm, propensity=propensity)
        for arm, propensity in zip(row.arms, propensities, strict=True)
    ]
    return msgspec.structs.replace(row, arms=arms)


def _with_drawn(row: Row, name: PoolName, drawn: Sequence[float]) -> Row:
    """``drawn``: of the places that were drawn. Places beyond those that are evaluated are not asked."""
    propensities = [STAND_IN] * len(row.arms)
    for position, propensity in zip(name.drawn_places, drawn, strict=True):
        propensities[position] = propensity
    return _with_propensities(row, propensities)
