"""Moving a bandit to another catalogue.

plan        what the move would do (``plan_steps``); a dry run ends here
times       arms of the new catalogue are as old as those of the old one
switch      one step in the store: from then on every choice is from the new catalogue
carry       an entry in the reward log of each partition, which the fold meets; ``workers.bandit_moves``
            writes what is left. Meanwhile readers carry what they read, so nobody waits
"""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace as replace_fields

from app.bandits.bandit import Bandit
from app.bandits.prior_version import version_of, version_to_bytes
from app.bandits.settings import BanditRecord
from app.bandits.spaces import Carry, MoveRecord, move_to_bytes
from app.bandits.versions import BanditVersion
from app.fold.checkpoints import Workers
from app.moving.move_plan import MovePlan
from app.moving.plan_steps import OF_CATALOGUE, PlanSteps
from app.platform.errors import Conflict, Invalid, ShortlistError, named_by
from app.records.log_entries import MOVED, MoveEntry, encode
from app.storage.types import MoveWrite

OF_MOVE = ("catalogue", "space", "catalogue_uid", "moved_ms", *OF_CATALOGUE)  # fields that it changes


class Moving:
    """Moves bandits as ``steps`` plan it. ``workers`` are woken when their logs have something new."""

    def __init__(self, steps: PlanSteps, workers: Workers) -> None:
        self._steps = steps
        self._store = steps.store
        self._workers = workers
        self._carried: dict[str, int] = {}  # by uid, moves that are known to be carried out
        self._one = asyncio.Lock()  # a plan reads many learners and computes for seconds

    async def move(
        self, name: str, catalogue: str, carry: Carry, *, dry_run: bool, by: str | None
    ) -> dict[str, Any]:
        """Move a bandit, or plan the move; return the answer of the API.

        A repeated call answers the same. Raises NotFound, Conflict (another move is under way), TooDifferent,
        Invalid (no common arm; the bandit cannot have this catalogue), Unavailable.
        """
        async with self._one:
            bandit = await self._steps.bandits.known_now(name)
            with named_by("catalogue"):
                target = await self._steps.catalogues.get_stocked(catalogue)
            if not dry_run:
                await self._steps.catalogues.need_fitted(target)
            last = await self._last(bandit)
            # a repeated call, whose answer was lost
            if last is not None and last.joined_uid == target.uid and last.carry == carry:
                return {**last.answer, "bandit_version": last.version}
            refusals = list[ShortlistError]()
            if (under_way := await self._under_way(bandit)) is not None:
                waits = f"learners are still being carried to {under_way[0].joined}"
                refusals.append(Conflict(f'{waits}: repeat it when the bandit has no "move" any more'))
            if target is bandit.catalogue:
                refusals.append(Invalid("the bandit has this catalogue already", path=("catalogue",)))
            if refusals and not dry_run:
                raise refusals[0]
            plan = await self._steps.plan(bandit, target, carry)
            if dry_run:
                refused = [f"it would be refused: {error.detail}" for error in (*refusals, *plan.refusals)]
                warnings = [*refused, *plan.warnings]
                return {**plan.answer, "warnings": warnings, "bandit_version": bandit.version.number}
            if plan.refusals:
                raise plan.refusals[0]
            await self._take_times(plan)
            return await self._switch(plan, by)

    async def status(self, bandit: Bandit) -> dict[str, Any] | None:
        """The move of a bandit whose learners are being carried; None: there is none. Raises Unavailable."""
        if (under_way := await self._under_way(bandit)) is None:
            return None
        last, carried = under_way
        return {
            "from": last.left,
            "to": last.joined,
            "carry": last.carry,
            "learners": last.answer["learners"],
            "carried": carried,
        }

    async def _last(self, bandit: Bandit) -> MoveRecord | None:
        space = bandit.record.space
        return (await self._steps.moves.of(bandit.uid, space)).get(space)

    async def _under_way(self, bandit: Bandit) -> tuple[MoveRecord, float] | None:
        """The last move, and the share of finished partitions; None: all are, or there was no move."""
        space, last = bandit.record.space, await self._last(bandit)
        if last is None or self._carried.get(bandit.uid, 0) >= space:
            return None
        progress = await self._store.moves.progress(bandit.uid)
        done = sum(part.carried >= last.number for part in progress)
        if done < len(progress):
            return last, round(done / len(progress), 3)
        self._carried[bandit.uid] = space
        return None

    async def _take_times(self, plan: MovePlan) -> None:
        """Let the arms of the new catalogue be as old as those with the same ids that the bandit had."""
        target = plan.target
        async for arms in self._store.arms.scan(plan.bandit.catalogue.uid):
            times = {arm.id: arm.came_ms for arm in arms}
            await self._store.arms.take_times(target.uid, times, keeps_changes=target.resident is None)

    async def _switch(self, plan: MovePlan, by: str | None) -> dict[str, Any]:
        bandit, target, uid = plan.bandit, plan.target, plan.bandit.uid
        prior, prior_number = await self._stored_prior(plan)

        def switch(found_uid: str, version: BanditVersion) -> tuple[BanditRecord, MoveWrite]:
            before = version.record
            expected = (uid, bandit.record.space, bandit.record.catalogue)
            if (found_uid, before.space, before.catalogue) != expected:
                raise Conflict("the bandit was moved, or deleted and made again, meanwhile: repeat it")
            write = MoveWrite(
                plan.record.space,
                move_to_bytes(plan.move_record(version.number + 1)),
                left=bandit.record.catalogue,
                left_uid=bandit.catalogue.uid,
                needed_until_ms=plan.record.moved_ms + self._steps.catalogues.keep_ms,
                joined=target.name,
                joined_uid=target.uid,
                prior=prior,
                prior_number=prior_number,
                prior_since_ms=plan.record.moved_ms,
            )
            return replace_fields(before, **{name: getattr(plan.record, name) for name in OF_MOVE}), write

        moved = await self._steps.bandits.move(bandit.name, bandit.stored, switch, by=by)
        space = moved.record.space
        for partition in range(self._store.partitions):
            payload = encode(MoveEntry(space))
            await self._store.moves.append(partition, uid, learner=MOVED, number=space, payload=payload)
            self._workers.wake(partition)
        return {**plan.answer, "bandit_version": moved.version.number}

    async def _stored_prior(self, plan: MovePlan) -> tuple[bytes, int]:
        """The learned prior of the carried learners as a version, and its number; b"" and 0: none."""
        if plan.prior is None:
            return b"", 0
        newest = await self._steps.priors.newest(plan.bandit.uid)
        (counts,) = await self._store.priors.folded([plan.bandit.uid])
        number = 1 if newest is None else newest.number + 1
        version = version_of(number, plan.record.moved_ms, plan.prior, counts, space=plan.record.space)
        return version_to_bytes(version), number
