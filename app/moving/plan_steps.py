"""Planning a move: each step takes a plan and returns the next.

begin       the arms that both catalogues have, and the bandit's record in the new one
fit         the map between the features of these arms, and what it makes of learners
restore     a move back: learners are what they were before, if that is kept
recompute   sums are computed again from the decision log, if it has all that learners know
refuse      what the new catalogue or the store makes impossible
compare     estimates before and after, and the learned prior of the carried learners

Planning changes nothing: a dry run ends with the plan.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from heapq import nsmallest
from typing import Any

from msgspec.structs import replace as replace_fields

from app.bandits import context as contexts
from app.bandits.bandit import Bandit, bandit_of
from app.bandits.completion import measured
from app.bandits.history_prior import first_prior, takes_history
from app.bandits.prior_version import version_of
from app.bandits.registry import Bandits
from app.bandits.settings import BanditRecord
from app.bandits.spaces import MoveRecord, Moves, SpaceMap, Spaces
from app.bandits.versions import version_to_bytes
from app.catalogues.catalogue import Catalogue
from app.catalogues.catalogues import Catalogues
from app.decision_log.reading import DecisionLog
from app.learning.learned_priors import LearnedPriors
from app.learning.learners import Learners
from app.learning.prior_fits import FITTING, Computing, PriorFits, fit_sums
from app.learning.tokens import decision_of
from app.moving import arm_map
from app.moving.move_plan import Asked, MovePlan, check_learner, log_lacks, refusals_of, warnings_of, words_of
from app.moving.recomputed_sums import RecomputedSums
from app.moving.starting_states import NotWhole
from app.platform.errors import Invalid, TooDifferent, shown_time
from app.platform.pools import MEASURING
from app.quotas.quotas import Quotas
from app.records.records import LearnerState, vector_to_bytes
from app.storage.space import moves_full
from app.storage.store import Store
from app.storage.types import LearnerId
from shortlist.linear.ridge_sums import RidgeSums

LEAST_R2 = 0.1  # below it, learners are not carried unless that is asked for
MOST_ROWS = 20_000  # of the decision log, the newest, by which arms are weighed
ROWS_TOGETHER = 100  # of a partition
KEYS_COMPARED = 100
KEPT_BYTES = 200  # that a kept state takes besides itself, with its name
OF_CATALOGUE = ("constant", "mean_square", "filled", "directions")
OF_MOVE = ("catalogue", "space", "catalogue_uid", "moved_ms", *OF_CATALOGUE)


def take_fields(record: BanditRecord, source: BanditRecord, names: Sequence[str]) -> BanditRecord:
    """A record with some fields of another: ``OF_CATALOGUE`` depend on its arms, ``OF_MOVE`` on a move."""
    return replace_fields(record, **{name: getattr(source, name) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSteps:
    """Plans moves. ``rewarded_ms``: how long a decision can be rewarded."""

    store: Store
    catalogues: Catalogues
    bandits: Bandits
    learners: Learners
    log: DecisionLog
    quotas: Quotas
    moves: Moves
    priors: LearnedPriors
    fits: PriorFits
    sums: RecomputedSums
    policies: Any
    rewarded_ms: int

    async def plan(
        self, bandit: Bandit, target: Catalogue, asked: Asked, last: MoveRecord | None
    ) -> MovePlan:
        """What a move would do. ``last``: the move before it. Raises Unavailable.

        Cost: a read of all learners' names, of 20,000 rows, and of all rewarded rows for ``carry: log``.
        """
        shown = await self._count_shown(bandit)
        plan = await self._begin(bandit, target, asked, shown)
        if plan.arms.count and asked != "none":
            plan = await self._fit(plan, shown)
            plan = await self._restore(plan, last)
            plan = await self._recompute(plan)
        else:
            plan = await self._begin_anew(plan)
        plan = await self._refuse(plan)
        if not plan.refusals:
            plan = await self._compare(plan)
        policy = self.policies[plan.record.policy]
        return plan.warn(words_of(plan)).warn(warnings_of(plan, policy, self.quotas.rules(bandit)))

    async def _count_shown(self, bandit: Bandit) -> Mapping[str, int]:
        """How often arms were shown, by the newest rows of the decision log of this catalogue."""
        counts, left = Counter[str](), MOST_ROWS
        if bandit.record.log is None:
            return counts
        pages = self.log.stored_pages(
            bandit, from_ms=bandit.record.moved_ms or None, together=ROWS_TOGETHER, newest_first=True
        )
        async for page in pages:
            for row in page[:left]:
                counts.update(decision_of(row.record).arms)
            left -= len(page)
            if left <= 0:
                break
        return counts

    async def _begin(
        self, bandit: Bandit, target: Catalogue, asked: Asked, shown: Mapping[str, int]
    ) -> MovePlan:
        old, new = await asyncio.gather(*map(self.catalogues.sampled, (bandit.catalogue, target)))
        record = replace_fields(
            bandit.record,
            catalogue=target.name,
            space=bandit.record.space + 1,
            catalogue_uid=target.uid,
            moved_ms=max(time.time_ns() // 1_000_000, bandit.version.since_ms or 0),
            **dict.fromkeys(OF_CATALOGUE),
        )
        learners, sample = await self._sample_learners(bandit)
        return MovePlan(
            bandit=bandit,
            target=target,
            asked=asked,
            arms=await MEASURING.run(partial(arm_map.common_arms, old, new, shown)),
            record=await MEASURING.run(partial(measured, record, new)),
            learners=learners,
            sample=sample,
            carry="none" if asked == "none" else "map",
        )

    async def _sample_learners(self, bandit: Bandit) -> tuple[int, Sequence[str]]:
        """How many learners there are, and the names of some, the same for the same learners."""
        count, sample = 0, list[str]()
        for partition in range(self.store.partitions):
            names = await self.store.learners.names(partition, bandit.uid)
            count += len(names)
            sample = nsmallest(
                KEYS_COMPARED, [*sample, *names], key=lambda name: blake2b(name.encode()).digest()
            )
        return count, sample

    async def _begin_anew(self, plan: MovePlan) -> MovePlan:
        """With the directions of a bandit that is made in the catalogue: none of its learners is carried."""
        arms = await self.catalogues.sampled(plan.target)
        try:
            record = await MEASURING.run(partial(contexts.with_directions, plan.record, arms))
        except Invalid as error:  # there are no arms
            return plan.refuse(Invalid(error.detail, path=("catalogue",)))
        return replace(plan, record=record)

    async def _fit(self, plan: MovePlan, shown: Mapping[str, int]) -> MovePlan:
        fitted = await MEASURING.run(partial(arm_map.fitted, plan.arms, shown, plan.bandit))
        record, bandit = plan.record, plan.bandit
        transform = arm_map.transform_of(fitted, bandit, record.constant)
        space_map = SpaceMap(record.space, transform, fitted.forward.residual, bandit.catalogue.dim)
        if fitted.directions is not None:
            record = replace_fields(record, directions=vector_to_bytes(fitted.directions.ravel()))
        return replace(plan, arm_map=fitted, record=record, space_map=space_map)

    async def _restore(self, plan: MovePlan, last: MoveRecord | None) -> MovePlan:
        """Go back to what learners were before the last move, if that is asked for and kept."""
        if plan.asked == "log" or last is None or last.left_uid != plan.target.uid or last.carry == "none":
            return plan
        before = await self.bandits.find(plan.bandit.uid, last.version - 1)
        if before is None or plan.record.moved_ms >= last.moved_ms + self.rewarded_ms:
            return plan
        try:
            restored = await self._examine(
                plan, take_fields(plan.record, before.record, OF_CATALOGUE), restores=True
            )
        except NotWhole:
            return plan
        return replace(restored, restores_ms=last.moved_ms)

    async def _recompute(self, plan: MovePlan) -> MovePlan:
        """Compute sums from the decision log as of a bandit that is made in the catalogue, or say why not.

        Refuses ``auto`` where neither that is possible nor the map keeps anything.
        """
        if plan.asked == "map" or plan.is_exact:
            return plan
        no_log = log_lacks(plan.bandit.record, self.policies[plan.bandit.record.policy])
        if no_log is None and (since_ms := await self.log.complete_from(plan.bandit, None)) is not None:
            no_log = f"rows of decisions before {shown_time(since_ms)} were dropped"
        if no_log is None:
            arms = await self.catalogues.sampled(plan.target)
            try:
                record = await MEASURING.run(partial(contexts.with_directions, plan.record, arms))
                check_learner(record, plan.target.dim)
                return replace(await self._examine(plan, record, restores=False), carry="log")
            except (Invalid, NotWhole) as error:
                no_log = error.detail
        plan = replace(plan, no_log=no_log)
        if plan.asked == "auto" and plan.learners and (plan.r2 or 0.0) < LEAST_R2:
            message = (
                f"the old features explain only {plan.r2:.0%} of the variation of the new ones: learners "
                'would know hardly anything. Ask for "carry": "map" to carry them all the same, or for '
                '"none" to begin from nothing'
            )
            plan = plan.refuse(TooDifferent(message, path=("carry",)))
        return plan

    async def _examine(self, plan: MovePlan, record: BanditRecord, *, restores: bool) -> MovePlan:
        """The plan with this record, and what some learners will know by sums that are computed again.

        Raises NotWhole: they cannot be.
        """
        plan = replace(plan, record=record)
        moved = self._as_moved(plan)
        if plan.arm_map is not None and plan.space_map is not None:
            transform = arm_map.transform_of(plan.arm_map, plan.bandit, record.constant, moved)
            plan = replace(plan, space_map=replace(plan.space_map, transform=transform))
        recomputed = await self.sums.examine(moved, await self._spaces(plan), restores=restores)
        return replace(plan, recomputed=recomputed)

    async def _refuse(self, plan: MovePlan) -> MovePlan:
        """Note why the move cannot be, and whether the store has room for what learners know now."""
        if not plan.arms.count:
            message = "the catalogues have no arm in common, by their ids"
            plan = plan.refuse(Invalid(message, path=("catalogue",)))
        left = await self.store.usage.left("moves")
        if plan.space_map is not None:
            left -= plan.space_map.bytes
            if left < 0:
                plan = plan.refuse(moves_full())
        keeps_states = plan.learners * (plan.bandit.state_bytes * 9 // 8 + KEPT_BYTES) <= left
        if plan.asked == "log" and plan.carry != "log":
            why = plan.no_log or "the catalogues have no arm in common"
            message = f"learners cannot be computed again from the decision log: {why}"
            plan = plan.refuse(Invalid(message, path=("carry",)))
        refusals = refusals_of(plan, self.policies[plan.record.policy], self.quotas.rules(plan.bandit))
        return replace(plan, keeps_states=keeps_states).refuse(*refusals)

    async def _compare(self, plan: MovePlan) -> MovePlan:
        """How far estimates before and after agree, and the prior of the carried learners."""
        plan = await self._begin_prior(plan)
        if (space_map := plan.space_map) is None:
            return plan
        bandit, moved = plan.bandit, self._as_moved(plan)
        if plan.record.prior == "learned":
            sums: Sequence[RidgeSums] = [state.sums for state in plan.recomputed.values()]
            if not plan.is_exact:
                sums = await self.fits.sums(moved, Computing(), spaces=await self._spaces(plan))
            bandit = await self.priors.serving(bandit)
            prior = await FITTING.run(partial(fit_sums, sums, bandit.record, plan.first))
            plan = replace(plan, prior=prior)
            if prior is not None:
                moved = moved.with_prior(version_of(1, 0, prior, space=plan.record.space))
        before, after = list[LearnerState](), list[LearnerState]()
        for name in plan.sample:
            state = await self.learners.state(LearnerId(bandit.uid, name))
            state = await self.learners.carried(bandit, state)
            carried = plan.recomputed.get(name)
            if carried is None and state is not None:
                (carried,) = await MEASURING.run(partial(space_map.states, [state]))
            if state is not None and carried is not None:
                before.append(state)
                after.append(carried)
        work = partial(arm_map.agreement, plan.arms, bandit, before, moved, after)
        return replace(plan, agreement=await MEASURING.run(work))

    async def _begin_prior(self, plan: MovePlan) -> MovePlan:
        """With the prior of the history that the bandit has from then on, as if it had no keys."""
        first = await MEASURING.run(partial(first_prior, plan.record, plan.target.record.prior))
        if first is None and plan.arm_map is not None and takes_history(plan.record):
            before = await self.fits.first(plan.bandit)
            if before is not None:
                work = partial(arm_map.moved_history, before, plan.arms, plan.bandit, plan.record.constant)
                first = await MEASURING.run(work)
        return replace(plan, first=first, prior=first)

    async def _spaces(self, plan: MovePlan) -> Spaces:
        """The moves of the bandit, with the one that is planned."""
        uid = plan.bandit.uid
        maps = dict((await self.moves.maps({uid: plan.bandit.record.space}))[uid])
        if plan.space_map is not None:
            maps[plan.space_map.number] = plan.space_map
        return Spaces(maps={uid: maps})

    def _as_moved(self, plan: MovePlan) -> Bandit:
        """The bandit as it will be."""
        version = replace_fields(plan.bandit.version, record=plan.record)
        stored = version_to_bytes(plan.bandit.uid, version)
        return bandit_of(plan.bandit.name, stored, plan.target, self.policies)
