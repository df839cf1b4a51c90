"""Moving a bandit to another catalogue.

plan        what the move would do (``plan_steps``); a dry run ends here
switch      one step in the store: from then on every choice is from the new catalogue
carry       an entry in the reward log of each partition, which the fold meets; ``workers.carrying`` writes
            what is left. Meanwhile readers carry what they read, so nobody waits
correct     where sums can be computed again (``recomputed_sums``), what the map made of learners is corrected
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any

from app.bandits.bandit import Bandit
from app.bandits.prior_version import version_of, version_to_bytes
from app.bandits.settings import BanditRecord
from app.bandits.spaces import MoveRecord, move_to_bytes
from app.bandits.versions import BanditVersion
from app.learning.checkpoints import Workers
from app.moving.move_plan import NOT_KEPT, Asked, MovePlan
from app.moving.plan_steps import OF_MOVE, PlanSteps, take_fields
from app.platform.errors import Conflict, Invalid, ShortlistError, named_by
from app.records.records import MOVED, move_payload
from app.storage.types import MoveWrite

STUCK_S = 300.0  # a move of tens of thousands of learners takes less


class Moving:
    """Moves bandits as ``steps`` plan it. ``workers`` are woken when their logs have something new."""

    def __init__(self, steps: PlanSteps, workers: Workers, *, stuck_s: float = STUCK_S) -> None:
        self._steps = steps
        self.stuck_s = stuck_s
        self._store = steps.store
        self._workers = workers
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
            bandit = await self._steps.bandits.known_now(name)
            with named_by("catalogue"):
                target = await self._steps.catalogues.get_stocked(catalogue)
            if not dry_run:
                await self._steps.catalogues.need_fitted(target)
            last = await self._last(bandit)
            # a repeated call, whose answer was lost
            if last is not None and last.joined_uid == target.uid and last.asked == carry:
                if last.is_exact and await self._under_way(bandit):  # who began it was killed
                    await self._correct(bandit, last)
                return {**last.answer, "bandit_version": last.version}
            refusals = list[ShortlistError]()
            if (under_way := await self._under_way(bandit)) is not None:
                waits = f"learners are still being carried to {under_way[0].joined}"
                retry = 'repeat it when the bandit has no "move" any more'
                refusals.append(Conflict(f"{waits}: {retry}; if it stays, {_finishing(name, under_way[0])}"))
            if target is bandit.catalogue:
                refusals.append(Invalid("the bandit has this catalogue already", path=("catalogue",)))
            if refusals and not dry_run:
                raise refusals[0]
            plan = await self._steps.plan(bandit, target, carry, last)
            if dry_run:
                refused = [f"it would be refused: {error.detail}" for error in (*refusals, *plan.refusals)]
                warnings = [*refused, *plan.warnings]
                return {**plan.answer, "warnings": warnings, "bandit_version": bandit.version.number}
            if plan.refusals:
                raise plan.refusals[0]
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

    async def stuck(self) -> Sequence[tuple[str, str]]:
        """Bandits whose move began more than ``stuck_s`` ago and is not carried out: names, and what to do.

        Cost: a call for each partition, of each bandit whose move is under way. Raises Unavailable.
        """
        result, latest_ms = [], 1_000 * (time.time() - self.stuck_s)
        for bandit in list(self._steps.bandits):
            if not bandit.record.space or (bandit.record.moved_ms or 0) > latest_ms:
                continue
            if (under_way := await self._under_way(bandit)) is not None:
                result.append((bandit.name, _finishing(bandit.name, under_way[0])))
        return result

    async def _last(self, bandit: Bandit) -> MoveRecord | None:
        space = bandit.record.space
        return (await self._steps.moves.of(bandit.uid, space)).get(space)

    async def _under_way(self, bandit: Bandit) -> tuple[MoveRecord, float] | None:
        """The last move, and the share of partitions that are done; None: all are, or there was none."""
        space, last = bandit.record.space, await self._last(bandit)
        if last is None or self._carried.get(bandit.uid, 0) >= space:
            return None
        progress = await self._store.moves.progress(bandit.uid)
        done = sum(min(part.carried, last.corrected(part)) >= last.number for part in progress)
        if done < len(progress):
            return last, round(done / len(progress), 3)
        self._carried[bandit.uid] = space
        return None

    async def _switch(self, plan: MovePlan, by: str | None) -> dict[str, Any]:
        bandit, target, uid = plan.bandit, plan.target, plan.bandit.uid
        until_ms = plan.record.moved_ms + self._steps.rewarded_ms
        if plan.carry != "none" and plan.keeps_states and not await self._steps.sums.keep(bandit, until_ms):
            plan = plan.warn([NOT_KEPT])
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
                joined=target.name,
                joined_uid=target.uid,
                prior=prior,
                prior_number=prior_number,
                prior_since_ms=plan.record.moved_ms,
            )
            return take_fields(before, plan.record, OF_MOVE), write

        await self._steps.quotas.prepare(uid, target.resident)
        moved = await self._steps.bandits.move(bandit.name, bandit.stored, switch, by=by)
        space = moved.record.space
        for partition in range(self._store.partitions):
            payload = move_payload(space)
            await self._store.moves.append(partition, uid, learner=MOVED, number=space, payload=payload)
            self._workers.wake(partition)
        last = await self._last(moved) if plan.is_exact else None
        if last is not None:
            plan = plan.warn(await self._correct(moved, last))
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

    async def _correct(self, bandit: Bandit, last: MoveRecord) -> Sequence[str]:
        """Correct what the map made of learners; what could not be. Raises Unavailable: repeat it."""
        steps = self._steps
        if bandit.record.prior == "learned":  # by which it is known what was expected of arms
            bandit = bandit.with_prior(await steps.priors.newest(bandit.uid))
        warnings = await steps.sums.correct(bandit, restores=last.restores)
        if bandit.record.prior == "learned":
            await steps.fits.fit(bandit)
        return warnings


def _finishing(name: str, last: MoveRecord) -> str:
    """What finishes a move whose process was killed: the call that began it."""
    body = json.dumps({"catalogue": last.joined, "carry": last.asked})
    return f"POST /v1/bandits/{name}/move with {body} finishes it"
