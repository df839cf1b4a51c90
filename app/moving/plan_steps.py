"""Planning a move: each step takes a plan and returns the next.

begin       the common arms of both catalogues, and the bandit's record in the new one
fit         the map between the features of these arms, and its effect on learners
refuse      reasons of the new catalogue or the store against the move
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
from app.bandits.served_bandits import Bandits
from app.bandits.spaces import Carry, Moves, SpaceMap, Spaces
from app.bandits.versions import version_to_bytes
from app.catalogues.catalogue import Catalogue
from app.catalogues.catalogues import Catalogues
from app.decision_log.reading import DecisionLog
from app.exposure_limits.quotas import Quotas
from app.learners.learned_priors import LearnedPriors
from app.learners.learners import Learners
from app.learners.prior_fits import FITTING, Computing, PriorFits, fit_sums
from app.moving import arm_map
from app.moving.move_plan import NEW_BANDIT, MovePlan, refusals_of, warnings_of, words_of
from app.platform.errors import Invalid, QuotaReached, TooDifferent
from app.platform.pools import MEASURING
from app.records.records import LearnerState, vector_to_bytes
from app.rewards.tokens import decision_of
from app.storage.memory import Level
from app.storage.store import Store
from app.storage.types import LearnerId

LEAST_R2 = 0.1  # below it learners would know hardly anything
MOST_ROWS = 20_000  # of the decision log, the newest, by which arms are weighed
ROWS_TOGETHER = 100  # of a partition
KEYS_COMPARED = 100
OF_CATALOGUE = ("constant", "mean_square", "filled", "directions")  # fields that depend on its arms
TOO_DIFFERENT = (
    "the old features explain only {:.0%} of the variation of the new ones: learners would know hardly "
    f"anything. {NEW_BANDIT}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSteps:
    """Plans moves."""

    store: Store
    catalogues: Catalogues
    bandits: Bandits
    learners: Learners
    log: DecisionLog
    quotas: Quotas
    moves: Moves
    priors: LearnedPriors
    fits: PriorFits
    policies: Any

    async def plan(self, bandit: Bandit, target: Catalogue, carry: Carry) -> MovePlan:
        """The plan of a move. Raises Unavailable.

        Cost: a read of all learners' names, and of 20,000 rows.
        """
        shown = await self._count_shown(bandit)
        plan = await self._begin(bandit, target, carry, shown)
        if plan.arms.count and carry == "map":
            plan = await self._fit(plan, shown)
        else:
            plan = await self._begin_anew(plan)
        plan = await self._refuse(plan)
        if not plan.refusals:
            plan = await self._compare(plan)
        policy = self.policies[plan.record.policy]
        return plan.warn(words_of(plan)).warn(warnings_of(plan, policy, self.quotas.rules(bandit)))

    async def _count_shown(self, bandit: Bandit) -> Mapping[str, int]:
        """The number of times each arm was shown, by the newest rows of the decision log of this
        catalogue.
        """
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
        self, bandit: Bandit, target: Catalogue, carry: Carry, shown: Mapping[str, int]
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
            carry=carry,
            arms=await MEASURING.run(partial(arm_map.common_arms, old, new, shown)),
            record=await MEASURING.run(partial(measured, record, new)),
            learners=learners,
            sample=sample,
        )

    async def _sample_learners(self, bandit: Bandit) -> tuple[int, Sequence[str]]:
        """The number of learners, and the names of some, the same for the same learners."""
        count, sample = 0, list[str]()
        for partition in range(self.store.partitions):
            names = await self.store.learners.names(partition, bandit.uid)
            count += len(names)
            sample = nsmallest(
                KEYS_COMPARED, [*sample, *names], key=lambda name: blake2b(name.encode()).digest()
            )
        return count, sample

    async def _begin_anew(self, plan: MovePlan) -> MovePlan:
        """The plan with the directions of a bandit made in the new catalogue: none of its learners is
        carried.
        """
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

    async def _refuse(self, plan: MovePlan) -> MovePlan:
        """Note why the move cannot be."""
        if not plan.arms.count:
            message = "the catalogues have no arm in common, by their ids"
            plan = plan.refuse(Invalid(message, path=("catalogue",)))
        if plan.r2 is not None and plan.learners and plan.r2 < LEAST_R2:
            plan = plan.refuse(TooDifferent(TOO_DIFFERENT.format(plan.r2), path=("catalogue",)))
        if plan.space_map is not None:
            try:
                self.store.memory.check_kept(Level.NEW, "maps of moves", plan.space_map.bytes)
            except QuotaReached as error:
                plan = plan.refuse(error)
        return plan.refuse(
            *refusals_of(plan, self.policies[plan.record.policy], self.quotas.rules(plan.bandit))
        )

    async def _compare(self, plan: MovePlan) -> MovePlan:
        """The plan with the agreement of estimates before and after, and the prior of the carried
        learners.
        """
        plan = await self._begin_prior(plan)
        if (space_map := plan.space_map) is None:
            return plan
        bandit, moved = plan.bandit, self._as_moved(plan)
        if plan.record.prior == "learned":
            sums = await self.fits.sums(moved, Computing(), spaces=await self._spaces(plan))
            bandit = await self.priors.serving(bandit)
            prior = await FITTING.run(partial(fit_sums, sums, bandit.record, plan.first))
            plan = replace(plan, prior=prior)
            if prior is not None:
                moved = moved.with_prior(version_of(1, 0, prior, space=plan.record.space))
        before = list[LearnerState]()
        for name in plan.sample:
            state = await self.learners.state(LearnerId(bandit.uid, name))
            if (state := await self.learners.carried(bandit, state)) is not None:
                before.append(state)
        after = await MEASURING.run(partial(space_map.states, before))
        work = partial(arm_map.agreement, plan.arms, bandit, before, moved, list(filter(None, after)))
        return replace(plan, agreement=await MEASURING.run(work))

    async def _begin_prior(self, plan: MovePlan) -> MovePlan:
        """The plan with the bandit's prior of a history from then on, as if there were no keys."""
        first = await MEASURING.run(partial(first_prior, plan.record, plan.target.record.prior))
        if first is None and plan.arm_map is not None and takes_history(plan.record):
            before = await self.fits.first(plan.bandit)
            if before is not None:
                work = partial(arm_map.moved_history, before, plan.arms, plan.bandit, plan.record.constant)
                first = await MEASURING.run(work)
        return replace(plan, first=first, prior=first)

    async def _spaces(self, plan: MovePlan) -> Spaces:
        """The moves of the bandit, with the planned one."""
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
