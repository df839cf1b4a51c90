"""Moving a bandit to another catalogue: what it would do, and doing it.

plan        the arms that both catalogues have, the map between their features, how well learners survive it
switch      one step in the store: from then on every choice is from the new catalogue
carry       an entry in the reward log of each partition, which the fold meets; ``workers.carrying`` writes
what is left. Meanwhile readers carry what they read, so nobody waits
correct     where sums can be computed again (``recomputed_sums``), what the map made of learners is corrected
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace as replace_plan
from functools import partial
from hashlib import blake2b
from heapq import nsmallest
from typing import Any, Protocol

import numpy as np
from msgspec.structs import replace

from app.bandits import context as contexts
from app.bandits.bandit import Bandit, bandit_of
from app.bandits.completion import PolicyTerms, measured
from app.bandits.prior_version import version_of, version_to_bytes
from app.bandits.registry import Bandits
from app.bandits.settings import BanditRecord
from app.bandits.spaces import Carry, MoveRecord, Moves, SpaceMap, Spaces, move_to_bytes
from app.bandits.versions import BanditVersion
from app.bandits.versions import version_to_bytes as bandit_to_bytes
from app.catalogues.catalogue import Catalogue
from app.catalogues.catalogues import Catalogues
from app.decision_log.reading import DecisionLog
from app.learning.checkpoints import Workers
from app.learning.learned_priors import LearnedPriors
from app.learning.learners import Learners
from app.learning.prior_fits import FITTING, Computing, PriorFits, fit_sums
from app.moving import arms as moving_arms
from app.moving.plan import (
    NOT_KEPT,
    Asked,
    MovePlan,
    check_numbers,
    check_space,
    log_lacks,
    refusals_of,
    warnings_of,
    words_of,
)
from app.moving.recomputed_sums import NotWhole, RecomputedSums
from app.platform.errors import Conflict, Invalid, ShortlistError, TooDifferent, named_by, shown_time
from app.platform.long_work import MEASURING
from app.quotas.quotas import Quotas
from app.records.records import MOVED, POOLED, LearnerState, move_payload, vector_to_bytes
from app.storage.moves import MoveProgress
from app.storage.store import Store
from app.storage.types import LearnerId, MoveWrite
from shortlist.linear import feature_map
from shortlist.linear.ridge_sums import RidgeSums

LEAST_R2 = 0.1  # below it, learners are not carried unless that is asked for
MOST_ROWS = 20_000  # of the decision log, the newest, by which arms are weighed
ROWS_TOGETHER = 1_000
KEYS_COMPARED = 100
READ_TOGETHER = 10


class Policies(Protocol):
    """The policies by name."""

    def __getitem__(self, name: str) -> PolicyTerms: ...


class Moving:
    """Moves bandits. ``workers`` are woken when their logs have something new.

    ``rewarded_ms``: how long a decision can be rewarded, and so how long states of before a move are kept.
    """

    def __init__(  # noqa: PLR0917 - services, each of its own class
        self,
        store: Store,
        catalogues: Catalogues,
        bandits: Bandits,
        learners: Learners,
        log: DecisionLog,
        quotas: Quotas,
        *,
        moves: Moves,
        priors: LearnedPriors,
        fits: PriorFits,
        workers: Workers,
        policies: Any,
        rewarded_ms: int,
    ) -> None:
        self._store = store
        self._catalogues = catalogues
        self._bandits = bandits
        self._learners = learners
        self._log = log
        self._quotas = quotas
        self._moves = moves
        self._priors = priors
        self._fits = fits
        self._workers = workers
        self._sums = RecomputedSums(store, catalogues, bandits, moves=moves, workers=workers)
        self._rewarded_ms = rewarded_ms
        self._policies = policies
        self._carried: dict[str, int] = {}  # by uid, moves that are known to be carried out
        self._one = asyncio.Lock()  # a plan reads many learners and computes for seconds

    async def move(
        self, name: str, catalogue: str, carry: Asked, *, dry_run: bool, by: str | None
    ) -> dict[str, Any]:
        """Move a bandit, or say what that would do; the answer, as the API gives it.

        Repeated, it answers the same. Raises NotFound, Conflict (another move is under way), TooDifferent,
        Invalid (no common arm; the bandit cannot have this catalogue), Unavailable.
        """
        async with self._one:
            bandit = await self._bandits.known_now(name)
            with named_by("catalogue"):
                target = await self._catalogues.get_stocked(catalogue)
            if not dry_run:
                await self._catalogues.need_fitted(target)
            last = await self._last(bandit)
            # A repeated call: its answer was lost. It is given the one of before, and moves nothing.
            if last is not None and last.joined_uid == target.uid and last.asked == carry:
                if last.is_exact and not await self._is_carried(bandit):  # whoever began it was killed
                    await self._correct(bandit, last)
                return {**last.answer, "bandit_version": last.version}
            refusals = list[ShortlistError]()
            if last is not None and not await self._is_carried(bandit):
                refusals.append(
                    Conflict(
                        f"learners are still being carried to {last.joined}: repeat it when the bandit "
                        'has no "move" any more'
                    )
                )
            if target is bandit.catalogue:
                refusals.append(Invalid("the bandit has this catalogue already", path=("catalogue",)))
            if refusals and not dry_run:
                raise refusals[0]
            plan = await self._plan(bandit, target, carry, last)
            plan.refusals = refusals + plan.refusals
            if dry_run:
                plan.warnings = [_refusal(each) for each in plan.refusals] + plan.warnings
                return {**plan.answer, "bandit_version": bandit.version.number}
            if plan.refusals:
                raise plan.refusals[0]
            return await self._switch(plan, by)

    async def status(self, bandit: Bandit) -> dict[str, Any] | None:
        """The move of a bandit whose learners are being carried; None: there is none. Raises Unavailable."""
        if not bandit.record.space or await self._is_carried(bandit):
            return None
        last = await self._last(bandit)
        if last is None:
            return None
        progress = await self._store.moves.progress(bandit.uid)
        done = sum(_is_done(each, last) for each in progress)
        return {
            "from": last.left,
            "to": last.joined,
            "carry": last.carry,
            "learners": last.answer["learners"],
            "carried": round(done / len(progress), 3),
        }

    async def _last(self, bandit: Bandit) -> MoveRecord | None:
        space = bandit.record.space
        return (await self._moves.of(bandit.uid, space)).get(space) if space else None

    async def _is_carried(self, bandit: Bandit) -> bool:
        space, last = bandit.record.space, await self._last(bandit)
        if last is not None and self._carried.get(bandit.uid, 0) < space:
            progress: Sequence[MoveProgress] = await self._store.moves.progress(bandit.uid)
            if not all(_is_done(each, last) for each in progress):
                return False
            self._carried[bandit.uid] = space
        return True

    async def _plan(
        self, bandit: Bandit, target: Catalogue, carry: Asked, last: MoveRecord | None
    ) -> MovePlan:
        shown = await self._shown(bandit)
        old, new = await asyncio.gather(*map(self._catalogues.sampled, (bandit.catalogue, target)))
        arms = await MEASURING.run(partial(moving_arms.common_arms, old, new, shown))
        now_ms = max(time.time_ns() // 1_000_000, bandit.version.since_ms or 0)
        record = replace(
            bandit.record,
            catalogue=target.name,
            space=bandit.record.space + 1,
            catalogue_uid=target.uid,
            moved_ms=now_ms,
            constant=None,
            mean_square=None,
            filled=None,
        )
        record = await MEASURING.run(partial(measured, record, new))
        done: Carry = "none" if carry == "none" else "map"
        plan = MovePlan(bandit, target, carry, done, arms, record, None)
        plan.learners, names = await self._names(bandit)
        if not arms.count:
            plan.refusals.append(
                Invalid("the catalogues have no arm in common, by their ids", path=("catalogue",))
            )
        elif done == "map":
            await self._fit(plan, shown)
            await self._make_exact(plan, last)
        await check_space(self._store, plan)
        if carry == "log" and plan.carry != "log":
            why = plan.no_log or "the catalogues have no arm in common"
            message = f"learners cannot be computed again from the decision log: {why}"
            plan.refusals.append(Invalid(message, path=("carry",)))
        rules = self._quotas.rules(bandit)
        policy = self._policies[record.policy]
        plan.refusals += refusals_of(plan, policy, rules)
        if plan.space_map is not None and not plan.refusals:
            await self._compare(plan, names)
        plan.warnings += words_of(plan) + warnings_of(plan, policy, rules)
        return plan

    async def _shown(self, bandit: Bandit) -> dict[str, int]:
        """How often arms were shown, by the newest rows of the decision log of this catalogue."""
        counts = dict[str, int]()
        if bandit.record.log is None:
            return counts
        cursor, read = None, 0
        while read < MOST_ROWS:
            from_ms = bandit.record.moved_ms or None
            rows, cursor = await self._log.page(
                bandit, from_ms=from_ms, to_ms=None, cursor=cursor, limit=ROWS_TOGETHER, newest_first=True
            )
            for row in rows:
                for arm in row.arms:
                    counts[arm.id] = counts.get(arm.id, 0) + 1
            read += len(rows)
            if cursor is None:
                break
        return counts

    async def _names(self, bandit: Bandit) -> tuple[int, Sequence[str]]:
        """How many learners there are, and some of them, the same for the same learners."""
        count, some = 0, list[tuple[bytes, str]]()
        for partition in range(self._store.partitions):
            names = [
                each for each in await self._store.learners.names(partition, bandit.uid) if each != POOLED
            ]
            count += len(names)
            hashed = ((blake2b(each.encode(), digest_size=8).digest(), each) for each in names)
            some = nsmallest(KEYS_COMPARED, [*some, *hashed])
        return count, [name for _, name in some]

    async def _fit(self, plan: MovePlan, shown: dict[str, int]) -> None:
        """The map, and what it makes of the record."""
        weights, plan.is_weighed = moving_arms.weights_of(plan.arms, shown)
        found = await MEASURING.run(partial(moving_arms.fitted, plan.arms, weights, plan.bandit))
        plan.found, plan.r2 = found, found.forward.r2
        transform = moving_arms.transform_of(found, plan.bandit, plan.record.constant)
        plan.space_map = plan.map_by(transform)
        directions = moving_arms.directions_of(found, plan.bandit)
        if directions is not None:
            plan.record = replace(plan.record, directions=vector_to_bytes(directions.ravel()))

    async def _make_exact(self, plan: MovePlan, last: MoveRecord | None) -> None:
        """Have the sums computed again, where they can be, and note why not."""
        if plan.asked in ("auto", "map") and last is not None and last.left_uid == plan.target.uid:
            await self._restore(plan, last)
        if plan.asked in ("auto", "log") and not plan.is_exact:
            plan.no_log = log_lacks(plan.bandit.record, self._policies[plan.bandit.record.policy])
            since_ms = None if plan.no_log else await self._log.complete_from(plan.bandit, None)
            if since_ms is not None:
                plan.no_log = f"rows of decisions before {shown_time(since_ms)} were dropped"
            if plan.no_log is None:
                await self._from_log(plan)
        if plan.asked == "auto" and not plan.is_exact and (plan.r2 or 0.0) < LEAST_R2:
            plan.refusals.append(
                TooDifferent(
                    f"the old features explain only {plan.r2:.0%} of the variation of the new ones: learners "
                    'would know hardly anything. Ask for "carry": "map" to carry them all the same, or for '
                    '"none" to begin from nothing',
                    path=("carry",),
                )
            )

    async def _restore(self, plan: MovePlan, last: MoveRecord) -> None:
        """Go back to what learners were before the last move, if that is kept."""
        if last.carry == "none" or plan.record.moved_ms >= last.moved_ms + self._rewarded_ms:
            return
        then = await self._bandits.find(plan.bandit.uid, last.version - 1)
        if then is None or then.former is None or then.former.uid != plan.target.uid:
            return
        own = {
            name: getattr(then.record, name) for name in ("constant", "mean_square", "filled", "directions")
        }
        record, space_map = replace(plan.record, **own), plan.space_map
        with contextlib.suppress(NotWhole):
            plan.recomputed = await self._examined(plan, record, restores=True)
            plan.left_ms = last.moved_ms
        if plan.left_ms is None:
            plan.space_map = space_map

    async def _from_log(self, plan: MovePlan) -> None:
        """Have learners recomputed from the decision log, as of a bandit that is made in the catalogue."""
        record, space_map = plan.record, plan.space_map
        try:
            if record.directions is not None:
                record = replace(record, directions=await self._directions(plan))
            check_numbers(replace_plan(plan, record=record))
            plan.recomputed = await self._examined(plan, record, restores=False)
            plan.carry = "log"
        except (Invalid, NotWhole) as error:
            plan.no_log, plan.space_map = error.detail, space_map

    async def _directions(self, plan: MovePlan) -> bytes | None:
        """Those that a bandit with these interactions has in the catalogue."""
        count = plan.record.interactions
        if not isinstance(count, int):
            return None
        arms = await self._catalogues.sampled(plan.target)
        found = await MEASURING.run(partial(contexts.directions_of, arms, count))
        return vector_to_bytes(found.ravel())

    async def _examined(
        self, plan: MovePlan, record: BanditRecord, *, restores: bool
    ) -> Mapping[str, LearnerState]:
        """Some of the recomputed learners, as the bandit of this record has them, which the plan has then."""
        moved = self._as_moved(replace_plan(plan, record=record))
        if plan.found is not None:
            transform = moving_arms.transform_of(plan.found, plan.bandit, record.constant, moved)
            plan.space_map = plan.map_by(transform)
        found = await self._sums.examine(moved, await self._spaces(plan), restores=restores)
        plan.record = record
        return found

    async def _spaces(self, plan: MovePlan) -> Spaces:
        """The moves of the bandit, with the one that is planned."""
        own = {} if plan.space_map is None else {plan.space_map.number: plan.space_map}
        return Spaces({}, {plan.bandit.uid: {**await self._maps(plan.bandit), **own}})

    async def _compare(self, plan: MovePlan, names: Sequence[str]) -> None:
        """How far estimates before and after agree, and the prior of the carried learners."""
        bandit, space_map = plan.bandit, plan.space_map
        if space_map is None:
            return
        moved = self._as_moved(plan)
        spaces = await self._spaces(plan)
        if plan.record.prior == "learned":
            sums: Sequence[RidgeSums] = [state.sums for state in plan.recomputed.values()]
            if not plan.is_exact:
                sums = await self._fits.sums(moved, Computing(), spaces=spaces)
            fit = partial(fit_sums, sums, bandit.record)
            plan.prior = await FITTING.run(fit) if sums else None
            bandit = await self._priors.serving(bandit)
        if plan.prior is not None:
            moved = moved.with_prior(version_of(1, 0, plan.prior, space=plan.record.space))
        states = list[tuple[str, LearnerState]]()
        for start in range(0, len(names), READ_TOGETHER):
            some = names[start : start + READ_TOGETHER]
            read = await asyncio.gather(*(self._learners.state(LearnerId(bandit.uid, name)) for name in some))
            own = [await self._learners.carried(bandit, state) for state in read]
            states += [(name, state) for name, state in zip(some, own, strict=True) if state is not None]

        def compared() -> float | None:
            before, after = list[Any](), list[Any]()
            every = np.linspace(0, len(plan.arms.ids) - 1, min(len(plan.arms.ids), moving_arms.MOST_COMPARED))
            rows = every.astype(int)
            for name, state in states:
                later = plan.recomputed.get(name) or space_map.states([state])[0]
                if later is None:
                    continue
                for made, owner, features in (
                    (state, bandit, plan.arms.old[rows]),
                    (later, moved, plan.arms.new[rows]),
                ):
                    theta = owner.posterior(made.sums).theta
                    (before if owner is bandit else after).append(
                        moving_arms.estimates(owner, theta, features)
                    )
            return feature_map.agreement(np.array(before), np.array(after)) if before else None

        plan.agreement = await MEASURING.run(compared)

    async def _maps(self, bandit: Bandit) -> dict[int, SpaceMap]:
        space = bandit.record.space
        return dict((await self._moves.maps({bandit.uid: space}))[bandit.uid]) if space else {}

    def _as_moved(self, plan: MovePlan) -> Bandit:
        """The bandit as it will be."""
        version = replace(plan.bandit.version, record=plan.record)
        stored = bandit_to_bytes(plan.bandit.uid, version)
        return bandit_of(plan.bandit.name, stored, plan.target, self._policies)

    async def _switch(self, plan: MovePlan, by: str | None) -> dict[str, Any]:
        bandit, target, uid = plan.bandit, plan.target, plan.bandit.uid
        until_ms = plan.record.moved_ms + self._rewarded_ms
        if plan.carry != "none" and plan.is_kept and not await self._sums.keep(bandit, until_ms):
            plan.warnings.append(NOT_KEPT)
        transform = None if plan.space_map is None else plan.space_map.transform
        prior, number = b"", 0
        if plan.prior is not None:
            newest, (counts,) = await self._priors.newest(bandit), await self._store.priors.folded([uid])
            number = 1 if newest is None else newest.number + 1
            own = version_of(number, plan.record.moved_ms, plan.prior, counts, space=plan.record.space)
            prior = version_to_bytes(own)

        def moved(found_uid: str, version: BanditVersion) -> tuple[BanditRecord, MoveWrite]:
            before = version.record
            if found_uid != uid or (before.space, before.catalogue) != (
                bandit.record.space,
                bandit.record.catalogue,
            ):
                raise Conflict("the bandit was moved, or deleted and made again, meanwhile: repeat it")
            own = (
                "catalogue",
                "space",
                "catalogue_uid",
                "moved_ms",
                "constant",
                "mean_square",
                "filled",
                "directions",
            )
            record = replace(before, **{name: getattr(plan.record, name) for name in own})
            kept = MoveRecord(
                number=record.space,
                asked=plan.asked,
                carry=plan.carry,
                left=bandit.record.catalogue,
                left_uid=bandit.catalogue.uid,
                left_dim=bandit.catalogue.dim,
                joined=target.name,
                joined_uid=target.uid,
                moved_ms=record.moved_ms,
                version=version.number + 1,
                answer=plan.answer,
                transform=b"" if transform is None else vector_to_bytes(transform.ravel()),
                dim=0 if transform is None else len(transform),
                restores=plan.left_ms is not None,
                residual=b"" if plan.found is None else vector_to_bytes(plan.found.forward.residual.ravel()),
            )
            write = MoveWrite(
                record.space,
                move_to_bytes(kept),
                left=bandit.record.catalogue,
                joined=target.name,
                joined_uid=target.uid,
                prior=prior,
                prior_number=number,
                prior_since_ms=record.moved_ms,
            )
            return record, write

        if target.holds_arms:
            await self._quotas.prepare(uid, target.index.snapshot)
        now = await self._bandits.move(bandit.name, bandit.stored, moved, by=by)
        for partition in range(self._store.partitions):
            await self._store.moves.append(
                partition, uid, learner=MOVED, number=now.record.space, payload=move_payload(now.record.space)
            )
            self._workers.wake(partition)
        last = await self._last(now) if plan.is_exact else None
        left = 0 if last is None else await self._correct(now, last)
        if left:
            plan.warnings.append(
                f"{left:,} learners are as the map has carried them, as rewards came meanwhile"
            )
        return {**plan.answer, "bandit_version": now.version.number}

    async def _correct(self, bandit: Bandit, last: MoveRecord) -> int:
        """Correct what the map made of learners; how many could not be. Raises Unavailable: repeat it."""
        left = await self._sums.correct(bandit, restores=last.restores)
        if bandit.record.prior == "learned":
            await self._fits.fit(bandit)
        return left


def _is_done(progress: MoveProgress, last: MoveRecord) -> bool:
    return min(progress.carried, last.corrected(progress)) >= last.number


def _refusal(error: ShortlistError) -> str:
    return f"it would be refused: {error.detail}"
