"""Sums of learners computed again, with the features that arms have in another catalogue.

They are those of the learner's starting state (``starting_states``) and of the rewards that came since.

The map carries a learner first, so nobody waits. Then the difference of the sums that it should have and of
those that it has is appended to the reward log, as an entry that the fold adds. Sums are linear, so it does
not matter what comes in between, and a process that does it once more adds nothing.

What a learner should have is told as of a watermark. Rows are read page by page, while rewards come in: a
page has the rewards up to the entry that was the newest then. What the log has after it is added.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec
from msgspec.structs import replace as replace_fields

from app.bandits.bandit import Bandit
from app.bandits.registry import Bandits
from app.bandits.spaces import Moves, Spaces
from app.catalogues.catalogues import Catalogues
from app.learning.checkpoints import Workers, read_together, restored
from app.learning.entry_rows import source_of
from app.learning.fold import fold
from app.moving.starting_states import (
    SHARE,
    ArmFeatures,
    Budget,
    NotWhole,
    StartingStates,
    kept_states,
    logged_states,
)
from app.platform.background import Pace
from app.platform.errors import StoreFull, Unavailable
from app.platform.phrases import counted
from app.platform.pools import MEASURING
from app.records.arm_sums import ArmSums
from app.records.records import (
    LearnerState,
    RewardPayload,
    bytes_to_context,
    correction_payload,
    pack,
    state_to_bytes,
    unpack,
    vector_to_bytes,
)
from app.storage.store import Store
from app.storage.types import (
    CarriedWrite,
    LearnerId,
    LogEntry,
    RewardWrite,
    StoredLearner,
    entry_order,
)
from shortlist.linear.sum_algebra import minus

ENTRIES_TOGETHER = 250
TOLERANCE = 1e-9  # by which counts that do not depend on features may differ: they are rounded
MOST_EXAMINED = 300
TRIES = 100  # to read learners between two steps of the worker
DEDUPE_MS = 3_600_000
WAIT_S = 0.05
AT_ONCE_BYTES = 1 << 15  # of states that are read together: the store syncs as much to disk in one step


@dataclass(frozen=True, slots=True)
class Recomputed:
    """A learner as it is at a watermark, in any space, and as it should be, in that of the target.

    ``taught``: what it has taught the arms, by their ids; None: that would take too long.
    """

    learner: LearnerId
    watermark: str
    now: LearnerState
    wanted: LearnerState
    taught: Mapping[str, ArmSums] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputedSums:
    """Recomputes sums of learners. ``moved``: the bandit in its new catalogue, maybe before it is moved."""

    store: Store
    catalogues: Catalogues
    bandits: Bandits
    moves: Moves
    workers: Workers

    async def keep(self, bandit: Bandit, until_ms: int) -> bool:
        """Keep what learners know, until then. False: there is no space, and nothing is kept.

        Cost: each state is read and written once.
        """
        uid, space, moves = bandit.uid, bandit.record.space, self.store.moves
        try:
            for partition in range(self.store.partitions):
                watermark = await self.store.learners.watermark(partition)
                await moves.begin_keeping(partition, uid, space, watermark, until_ms)
                for learners in await self._batches(bandit, partition):
                    stored = await self.store.learners.stored(partition, learners)
                    writes = await MEASURING.run(partial(_kept_writes, learners, stored))
                    await moves.keep(partition, uid, space, writes, until_ms=until_ms)
        except StoreFull:  # others have taken it since the move was planned
            for partition in range(self.store.partitions):
                await moves.drop_kept(partition, uid, space)
            return False
        return True

    async def examine(self, moved: Bandit, spaces: Spaces, *, restores: bool) -> Mapping[str, LearnerState]:
        """Of at most ``MOST_EXAMINED`` learners what they would know. Raises NotWhole, Unavailable."""
        wanted, budget, pace = dict[str, LearnerState](), Budget(), Pace(SHARE)
        for partition in range(self.store.partitions):
            async for batch in self._learners(moved, partition, spaces, budget, restores=restores):
                await pace.rest()
                for learner in batch:
                    if not isinstance(learner, Recomputed):
                        raise NotWhole(learner)
                    if len(wanted) < MOST_EXAMINED:
                        wanted[learner.learner.name] = learner.wanted
        return wanted

    async def correct(self, moved: Bandit, *, restores: bool) -> Sequence[str]:
        """Correct the learners of a bandit that was moved, and its arms if it is given with a learned prior.

        What could not be corrected, in words. Repeated, it changes nothing. Raises Unavailable.
        """
        uid, number, left, has_arms = moved.uid, moved.record.space, 0, True
        spaces, budget, pace = await self.moves.spaces(uid, number), Budget(), Pace(SHARE)
        for partition, progress in enumerate(await self.store.moves.progress(uid)):
            if progress.made >= number:
                continue
            try:
                is_applied = True
                async for batch in self._learners(moved, partition, spaces, budget, restores=restores):
                    recomputed = [learner for learner in batch if isinstance(learner, Recomputed)]
                    left += len(batch) - len(recomputed)
                    has_arms &= all(learner.taught is not None for learner in recomputed)
                    writes = await MEASURING.run(partial(_corrections, moved, recomputed, spaces))
                    appended = await self.store.rewards.append(partition, writes)
                    self.workers.wake(partition)
                    last = next((entry.entry_id for entry in reversed(appended) if entry.entry_id), "")
                    if last and is_applied:  # what no worker folds in time is in the log
                        is_applied = await self.workers.wait_applied(partition, last)
                    await pace.rest()
            except NotWhole:
                left += sum(map(len, await self._batches(moved, partition)))
            await self.store.moves.all_made(partition, uid, number)
        warnings = list[str]()
        if left:
            are = counted(left, "learner is", "learners are")
            warnings.append(f"{are} as carried by the map, as rewards came meanwhile")
        if not has_arms:
            warnings.append("effects of arms begin anew: they have too many numbers to be made again")
        return warnings

    async def _batches(self, bandit: Bandit, partition: int) -> Sequence[Sequence[LearnerId]]:
        """The learners of a bandit in a partition, by as many as are read together."""
        count = read_together(bandit.state_bytes, most_bytes=AT_ONCE_BYTES)
        names = await self.store.learners.names(partition, bandit.uid)
        learners = [LearnerId(bandit.uid, name) for name in names]
        return [learners[start : start + count] for start in range(0, len(learners), count)]

    async def _learners(
        self, moved: Bandit, partition: int, spaces: Spaces, budget: Budget, *, restores: bool
    ) -> AsyncIterator[Sequence[Recomputed | str]]:
        """All learners of a partition; in place of one that cannot be computed again the reason."""
        batches = await self._batches(moved, partition)
        if not batches:
            return
        if restores:
            beginning = await kept_states(self.store, moved, partition, batches)
        else:
            beginning = await logged_states(
                self.store, moved, partition, budget, catalogues=self.catalogues, bandits=self.bandits
            )
        log = _RewardsSince(self.store, partition, moved.uid, beginning.after)
        for learners in batches:
            watermark, stored = await self._at_watermark(partition, learners, beginning)
            await log.read_up_to(watermark, budget)
            rewards = [log.by_learner.get(learner, ()) for learner in learners]
            sources = [source_of(entry) for entries in rewards for entry in entries]
            arms = {source.arm for source in sources if source is not None}
            features = await self.catalogues.features(moved.catalogue, arms)
            yield await MEASURING.run(
                partial(
                    _recomputed, moved, spaces, beginning, watermark=watermark,
                    learners=zip(learners, stored, rewards, strict=True), features=features,
                )
            )  # fmt: skip

    async def _at_watermark(
        self, partition: int, learners: Sequence[LearnerId], beginning: StartingStates
    ) -> tuple[str, Sequence[StoredLearner]]:
        """Learners, and the watermark that they are of, which is not before the newest entry of a row."""
        least = beginning.pages[-1][1] if beginning.pages else 0
        self.workers.wake(partition)
        for _ in range(TRIES):
            watermark = await self.store.learners.watermark(partition)
            # rows of the decision log have rewards before a worker has folded them
            if entry_order(watermark)[1] >= least:
                stored = await self.store.learners.stored(partition, learners)
                if watermark == await self.store.learners.watermark(partition):
                    return watermark, stored
            await asyncio.sleep(WAIT_S)
        raise Unavailable("rewards come faster than learners can be read; safe to try again")


@dataclass(slots=True)
class _RewardsSince:
    """The rewards of a bandit in the log of a partition after an entry, as far as they were read.

    One that came before its learner was forgotten is not told apart: ``StartingStates.since`` leaves it
    out, by the version of the learner or by the rows that went with it.
    """

    store: Store
    partition: int
    uid: str
    after: str
    by_learner: dict[LearnerId, list[LogEntry]] = field(default_factory=dict)

    async def read_up_to(self, watermark: str, budget: Budget) -> None:
        """Raises NotWhole: they are too many."""
        last = entry_order(watermark)[1]
        while entry_order(self.after)[1] < last:
            page = await self.store.rewards.read(self.partition, self.after, ENTRIES_TOGETHER)
            page = [entry for entry in page if entry_order(entry.entry_id)[1] <= last]
            budget.take(entries=sum(map(self._add, page)))
            if not page:
                break
            self.after = page[-1].entry_id

    def _add(self, entry: LogEntry) -> bool:
        """Whether it is anything but a correction, which is no reward that has come since."""
        if entry.learner.bandit_uid != self.uid:
            return True
        try:
            payload = unpack(entry.payload, RewardPayload)
        except msgspec.DecodeError:
            return True  # it was left out
        if payload.features:
            self.by_learner.setdefault(entry.learner, []).append(entry)
        return not payload.corrects


def _kept_writes(learners: Sequence[LearnerId], stored: Sequence[StoredLearner]) -> list[CarriedWrite]:
    writes = list[CarriedWrite]()
    for learner, data in zip(learners, stored, strict=True):
        with suppress(ValueError):  # one that cannot be read cannot be read after the move either
            if (state := restored(learner, data)) is not None:
                write = CarriedWrite(learner.name, data.checkpoint, len(data.tail), state_to_bytes(state))
                writes.append(write)
    return writes


def _corrections(moved: Bandit, recomputed: Sequence[Recomputed], spaces: Spaces) -> list[RewardWrite]:
    """The entries that add to learners what they lack."""
    now_ms, space = time.time_ns() // 1_000_000, moved.record.space
    carried = spaces.carried_each(moved.uid, [learner.now for learner in recomputed], space)
    writes = list[RewardWrite]()
    for learner, now in zip(recomputed, carried, strict=True):
        if now is None:
            continue
        sums = minus(learner.wanted.sums, now.sums)
        # these do not depend on features: what is left of them is rounding
        sums = replace(sums, observations=0, weight=0.0, squares=0.0, squares_error=0.0)
        change = LearnerState(0, sums, now.time_ms, now.half_life_s, space)
        payload = correction_payload(change, taught=learner.taught)
        number = entry_order(learner.watermark)[1]
        write = RewardWrite(
            learner.learner, f"m/{space}", None, now_ms, DEDUPE_MS, payload, known_entry=number
        )
        writes.append(write)
    return writes


def _recomputed(
    moved: Bandit,
    spaces: Spaces,
    beginning: StartingStates,
    *,
    watermark: str,
    learners: Iterable[tuple[LearnerId, StoredLearner, Sequence[LogEntry]]],
    features: ArmFeatures,
) -> Sequence[Recomputed | str]:
    """The learners that are there, as they are and as they should be, or why that is not known.

    ``learners``: each as it is stored, with its rewards since the beginning.
    """
    results, after = list[Recomputed | str](), Spaces({moved.uid: moved.record.space}, spaces.maps)
    for learner, stored, rewards in learners:
        try:
            now = restored(learner, stored)
            if now is None:
                continue
            since = beginning.since(learner.name, rewards, now)
            entries = [_with_features(entry, moved, beginning.spaces, features) for entry in since]
            begins = {learner: beginning.states.get(learner.name)}
            # a dead letter was one before too: it is passed over
            folded = fold(begins, entries, lambda *_: None, after).get(learner, begins[learner])
            wanted = _with_same_rewards(now, folded)
        except NotWhole as error:
            results.append(error.detail)
        else:
            taught = {} if beginning.arms is None else beginning.arms.of(learner.name)
            results.append(Recomputed(learner, watermark, now, wanted, taught))
    return results


def _with_features(entry: LogEntry, moved: Bandit, spaces: frozenset[int], features: ArmFeatures) -> LogEntry:
    """An entry with the features that its arm has in the catalogue; as it is where that lacks the arm.

    Then the fold maps it as it maps states.
    """
    payload, source, space = unpack(entry.payload, RewardPayload), source_of(entry), moved.record.space
    if payload.space in spaces:
        payload = replace_fields(payload, space=space)
    elif source is not None and source.arm in features:
        context = None if source.context is None else bytes_to_context(source.context)
        joint = moved.joint_features(features[source.arm][0], context)
        if source.examined is not None:
            joint = source.examined * joint
        payload = replace_fields(payload, features=vector_to_bytes(joint), space=space)
    return replace(entry, payload=pack(payload), source=b"")


def _with_same_rewards(now: LearnerState, wanted: LearnerState | None) -> LearnerState:
    """``wanted``, if it is of the same rewards as ``now``. Raises NotWhole."""
    count = 0 if wanted is None else wanted.version
    if wanted is None or count != now.version:
        raise NotWhole(
            f"a learner has {counted(now.version, 'reward', 'rewards')}, and {count:,} can be read again; "
            "the others are observations, an imported state, or of decisions that were not logged"
        )
    pairs = [(now.sums.observations, wanted.sums.observations), (now.sums.weight, wanted.sums.weight)]
    if now.sums.has_squares and wanted.sums.has_squares:
        pairs.append((now.sums.squares, wanted.sums.squares))
    if now.time_ms != wanted.time_ms or not all(
        math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE) for one, other in pairs
    ):
        raise NotWhole("the rewards of a learner are not those that it has learned from")
    return wanted
