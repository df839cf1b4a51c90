"""The reward worker: folds the reward log into the learners.

    >>> # one partition, whose watermark is entry 7-0, gets two more rewards for one learner
    >>> # read_log(after 7-0)      -> entries 8-0, 9-0
    >>> # stored(learner)          -> checkpoint of version 4, tail 5-0: version 5
    >>> # fold                     -> version 7
    >>> # apply(expected 7-0, watermark 9-0, tails: 8-0, 9-0)  -> True: tail and watermark moved, or neither

Each entry takes effect exactly once. A crash before ``apply`` changes nothing. A second worker that was
faster makes ``apply`` false, and the entries are read again after the new watermark. A watermark not set by
this worker was set by another one, or by a call of its own whose reply was lost: then all caches of states
have to sync (``resync``). While the watermark is its own, the worker folds on from the learners kept in
memory, and reads none. An unfoldable entry becomes a dead letter in the same step.

Entries which forget learners of bandits with arm effects wait for a pass over the log, which finds the
contributions of these learners to arms, once for all of a batch. Other partitions go on meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from app.bandits.spaces import Moves, Spaces
from app.fold.arm_sums import (
    NOTHING_TAUGHT,
    AnySums,
    Taught,
    arms_of,
    folded_sums,
    forgets,
    taught_by,
)
from app.fold.checkpoints import state_memory_bytes
from app.fold.fold import is_short, spaces_of
from app.fold.fold_batches import (
    MOST_NUMBERS,
    ArmsBefore,
    Before,
    CheckpointedLearner,
    Folded,
    States,
    batches,
    fold_stored,
)
from app.platform.answer_memory import Budget
from app.platform.background import OUTAGES
from app.platform.cache import BoundedCache
from app.platform.errors import Unavailable
from app.platform.pauses import Pauses
from app.records.log_entries import DecodedEntry, decoded, decoded_all, dim_of
from app.records.records import pack
from app.storage.store import Store
from app.storage.types import ArmId, LearnerId, StoredLearner, entry_order
from workers.log_trimming import trim

log = logging.getLogger("shortlist.worker")

RETRY_S = 0.2
TRIM_EVERY_S = 60.0
SUMS_BYTES = 850  # that the sums of an arm take in memory besides its name


@dataclass(frozen=True, slots=True)
class Step:
    """The effect of one ``apply`` on a partition, between two watermarks."""

    partition: int
    before: str
    after: str
    states: States
    entries: int


@dataclass(frozen=True, slots=True)
class _Pass:
    """A pass over the log of a partition from a watermark on, for entries of which some forget learners."""

    watermark: str
    entries: Sequence[DecodedEntry]
    taught: asyncio.Task[Taught]


class Waiters:
    """Callers waiting until an entry of the reward log is applied, by partition."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[tuple[tuple[int, int], asyncio.Future[bool]]]] = {}

    @property
    def any(self) -> bool:
        """True if a caller waits."""
        return bool(self._waiting)

    async def wait(self, partition: int, entry_id: str, timeout_s: float) -> bool:
        """True once ``reached`` says so; False without an answer within ``timeout_s``."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(partition, []).append((entry_order(entry_id), future))
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            return False

    def reached(self, partition: int, watermark: str) -> None:
        """Note the watermark of the partition: calls waiting for an entry up to there return."""
        if partition not in self._waiting:
            return
        order = entry_order(watermark)
        waiting = []
        for wanted, future in self._waiting.pop(partition):
            if wanted > order:
                waiting.append((wanted, future))
            elif not future.done():
                future.set_result(True)
        if waiting:
            self._waiting[partition] = [item for item in waiting if not item[1].done()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycles:
    """``batch``: entries of a partition in a cycle. ``numbers``: in the states of a batch.

    From one cycle to the next are ``least_s``, in which new entries are folded and written together. The
    pause is longer under other load, ``factor`` times the last cycle, and with many entries, ``entry_s`` for
    each applied entry, so from 1 / ``entry_s`` entries a second on; ``most_s`` at most.
    """

    batch: int = 500
    numbers: int = MOST_NUMBERS
    least_s: float = 0.025
    most_s: float = 0.1
    factor: float = 4.0
    entry_s: float = 0.001

    def length_s(self, took_s: float, entries: int) -> float:
        """From the beginning of a cycle, which took so long and applied so many entries, to the next."""
        return min(max(self.least_s, self.factor * took_s, self.entry_s * entries), self.most_s)


class RewardWorker:
    """Applies rewards of every partition as soon as it is woken, and every ``poll_s`` without being woken.

    ``folded(step)``       is called after each step
    ``resync(partition)``  is called at the start, and when another has moved the watermark: read the learners
                           again
    ``reward_log_s``       for how long applied entries stay in the log
    ``capacity_bytes``     of memory for the learners kept by this worker
    ``wait_s``             a caller waiting for an entry is answered "not applied" after so long
    ``moves``              of bandits; None: read by this worker alone
    ``owns(partition)``    True if this worker applies a partition; the others are left to other workers
                           (``leases``). This saves work: the watermark alone keeps two from applying the same
    ``cycles``             number of entries applied together
    """

    def __init__(
        self,
        store: Store,
        *,
        poll_s: float,
        reward_log_s: int,
        capacity_bytes: int,
        owns: Callable[[int], bool] = lambda partition: True,  # noqa: ARG005
        moves: Moves | None = None,
        wait_s: float = Pauses().applied_s,
        cycles: Cycles = Cycles(),
        folded: Callable[[Step], None] = lambda _: None,
        resync: Callable[[int], Awaitable[object]] | None = None,
    ) -> None:
        self.cycles = cycles
        self._store = store
        self._wait_s = wait_s
        self._folded, self._resync = folded, resync
        self._poll_s = poll_s
        self._reward_log_s = reward_log_s
        self._trimming: AsyncGenerator[int] | None = None  # of the log, where it is under way
        # Kept learners belong to a watermark set by this worker: states change with the watermark alone. At
        # each other watermark a new cycle begins, and learners kept in earlier ones are void.
        self._kept: BoundedCache[tuple[int, int, LearnerId], CheckpointedLearner] = BoundedCache(
            capacity_bytes
        )
        self._passes = dict[int, _Pass]()  # by partition
        self._kept_sums: BoundedCache[tuple[int, int, ArmId], AnySums | None] = BoundedCache(
            capacity_bytes // 8
        )
        self._cycles = [0] * store.partitions
        self._owns = owns
        self._moves = moves or Moves(store.moves)
        # of each partition the moves up to its watermark, by the uids of bandits
        self._moved: list[dict[str, int]] = [{} for _ in range(store.partitions)]
        self._awake = asyncio.Event()
        self._folding = asyncio.Lock()
        self._memory = Budget(MOST_NUMBERS)  # of the current batches, in numbers
        # All of them at first: nobody knows what was left when the last worker ended.
        self._due = set(range(store.partitions))
        self._cycle_began, self._cycle_s = -cycles.least_s, cycles.least_s
        self._cycle_entries = 0  # that it has applied
        self._is_behind = False
        self._hurry = asyncio.Event()
        self._watermarks: dict[int, str] = {}
        self._waiters = Waiters()
        self._stopping = False

    def wake(self, partition: int) -> None:
        """There is something new in the log of this partition."""
        self._due.add(partition)
        self._awake.set()

    def stop(self) -> None:
        """Finish the current batch, then return from ``run``."""
        self._stopping = True
        self._awake.set()
        self._hurry.set()

    async def wait_applied(self, partition: int, entry_id: str) -> bool:
        """True once the entry is applied; False if not within ``wait_s``."""
        if entry_order(self._watermarks.get(partition, "0-0")) >= entry_order(entry_id):
            return True
        # Somebody waits: the cycle need not wait for more to come.
        self._hurry.set()
        return await self._waiters.wait(partition, entry_id, self._wait_s)

    async def run(self) -> None:
        """Work until ``stop``. An unreachable store is waited for."""
        trimmed = time.monotonic()
        while not self._stopping:
            try:
                await self.drain()
                if self._trimming is None and time.monotonic() - trimmed > TRIM_EVERY_S:
                    trimmed, owned = time.monotonic(), filter(self._owns, range(self._store.partitions))
                    self._trimming = trim(self._store, owned, reward_log_s=self._reward_log_s)
                if self._trimming is not None and await anext(self._trimming, None) is None:
                    self._trimming = None
            except Unavailable as error:
                OUTAGES.warn("rewards wait", error)
                # Which partitions had their turn is not known: all are looked at again.
                self._due.update(range(self._store.partitions))
                await asyncio.sleep(RETRY_S)
                continue
            if self._trimming is None:
                await self._woken()
        for pass_over in self._passes.values():
            pass_over.taught.cancel()
        if self._trimming is not None:
            await self._trimming.aclose()

    async def drain(self) -> None:
        """Apply all entries in the logs of the due partitions, side by side."""
        while not self._stopping:
            if not self._due:
                if all(pass_over.taught.done() for pass_over in self._passes.values()):
                    return
                await self._woken()
            # A step costs the store and this process much more than one more entry in it. So under load,
            # where a cycle takes longer, there are fewer of them, unless a partition has more entries than a
            # cycle applies, or somebody waits.
            rest_s = self._cycle_s - (time.monotonic() - self._cycle_began)
            if rest_s > 0 and not self._waiters.any:
                self._hurry.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(rest_s):
                        await self._hurry.wait()
            self._cycle_began = time.monotonic()
            # Emptied before anything is awaited: a wake meanwhile puts its partition into the next round.
            due, self._due, self._is_behind = set(filter(self._owns, self._due)), set(), False
            self._cycle_entries = 0
            failures = await asyncio.gather(*map(self._advance, due), return_exceptions=True)
            length_s = self.cycles.length_s(time.monotonic() - self._cycle_began, self._cycle_entries)
            self._cycle_s = self.cycles.least_s if self._is_behind else length_s
            ending = None
            for partition, failure in zip(due, failures, strict=True):
                if isinstance(failure, Exception) and not isinstance(failure, Unavailable):
                    # The others went on, and this one is tried again after the next poll.
                    log.error("the reward log of partition %d cannot be applied", partition, exc_info=failure)
                elif failure is not None:
                    ending = failure
            if ending is not None:
                raise ending

    async def _advance(self, partition: int) -> None:
        """Apply the next entries of a partition, which stays due while there may be more."""
        watermark, entries = await self._read(partition)
        self._note_watermark(partition, watermark)
        is_more = len(entries) == self.cycles.batch  # the log may have more entries than were read
        taught, dead = NOTHING_TAUGHT, set[str]()
        if any(map(forgets, entries)):
            pass_over = await self._pass_over(partition, watermark, entries)
            if pass_over is None:
                return
            entries, taught, is_more = pass_over.entries, await pass_over.taught, True
        for batch in batches(entries, self.cycles.numbers, taught):
            taught_by_entry = {
                entry.entry_id: [item for item in taught[entry.entry_id] if item.entry.entry_id not in dead]
                for entry, _ in batch
                if entry.entry_id in taught
            }
            done = await self._apply(partition, watermark, batch, taught_by_entry)
            if done is None:
                self._due.add(partition)
                return
            # What has become a dead letter since the pass has taught nothing.
            dead |= {letter.entry.entry_id for letter in done.dead}
            watermark = batch[-1].entry.entry_id
            self._cycle_entries += len(batch)
            self._note_watermark(partition, watermark)
        if is_more:
            self._is_behind = True
            self._due.add(partition)

    async def _read(self, partition: int) -> tuple[str, Sequence[DecodedEntry]]:
        """The watermark, and the entries after it: read together, if this worker was the last to set the
        watermark.
        """
        watermark_kept = self._watermarks.get(partition, "0-0")
        # Asking for both at once saves a round trip. If the watermark has moved, the entries are read again.
        watermark, entries = await asyncio.gather(
            self._store.learners.watermark(partition),
            self._store.rewards.read(partition, watermark_kept, self.cycles.batch),
        )
        if partition not in self._watermarks or watermark != watermark_kept:
            self._cycles[partition] += 1
            self._moved[partition] = dict(await self._store.moves.folded(partition))
            if self._resync is not None:
                await self._resync(partition)
        if watermark != watermark_kept:
            entries = await self._store.rewards.read(partition, watermark, self.cycles.batch)
        return watermark, decoded_all(entries)

    async def _pass_over(
        self, partition: int, watermark: str, entries: Sequence[DecodedEntry]
    ) -> _Pass | None:
        """A pass over the log for these entries, some of which forget learners, or an earlier one from the
        same watermark; None while it is under way: meanwhile other partitions go on.
        """
        pass_over = self._passes.pop(partition, None)
        if pass_over is None or pass_over.watermark != watermark:
            if pass_over is not None:
                pass_over.taught.cancel()
            pass_over = _Pass(watermark, entries, asyncio.create_task(self._taught(partition, entries)))
            await asyncio.wait({pass_over.taught}, timeout=self.cycles.least_s)  # mostly it takes less
        if not pass_over.taught.done():
            self._passes[partition] = pass_over
            return None
        return pass_over

    async def _taught(self, partition: int, entries: Sequence[DecodedEntry]) -> Taught:
        """The contributions to arms of learners forgotten by these entries: one pass over the log for all
        of them.
        """
        forgetting = list(filter(forgets, entries))
        uids = {entry.learner.bandit_uid for entry, _ in forgetting}
        try:
            teaching = {uid for uid in uids if await self._store.effects.has_sums(partition, uid)}
            teaching_entries = [item for item in forgetting if item.entry.learner.bandit_uid in teaching]
            return await taught_by(self._store, partition, teaching_entries)
        finally:
            self.wake(partition)

    async def _apply(
        self, partition: int, watermark: str, entries: Sequence[DecodedEntry], taught: Taught = NOTHING_TAUGHT
    ) -> Folded | None:
        """None if the watermark is not ``watermark`` any more: nothing was applied."""
        last = entries[-1].entry.entry_id
        dims = {entry.learner: dim_of(content) for entry, content in entries}
        # Partitions are applied side by side; of large states only so many as fit into memory.
        async with self._memory.taken(sum(dim**2 for dim in dims.values())):
            before, arms, spaces = await self._read_before(partition, entries, taught)
            # One partition at a time: several threads would keep requests from the interpreter.
            async with self._folding:
                tails = (stored.tail for stored in before.values() if isinstance(stored, StoredLearner))
                if arms.taught or not is_short(chain(entries, map(decoded, chain.from_iterable(tails)))):
                    done = await asyncio.to_thread(fold_stored, before, entries, spaces, arms)
                else:
                    await asyncio.sleep(0)  # requests come between the folds of two partitions
                    done = fold_stored(before, entries, spaces, arms)
            applied = await self._store.learners.apply(
                partition,
                expected=watermark,
                watermark=last,
                states=done.checkpoints,
                tails=done.tails,
                dead=done.dead,
                folded=done.counts,
                moved=done.moved,
                arms={arm: None if sums is None else pack(sums) for arm, sums in done.arms.items()},
                known_arms=done.known_arms,
            )
            # if not, another worker was faster, and what was folded here is dropped
            if applied:
                self._keep(partition, done.learners)
                for arm, sums in done.arms.items():
                    size = SUMS_BYTES + len(arm.arm)
                    self._kept_sums.put((partition, self._cycles[partition], arm), sums, size)
                self._moved[partition] |= done.moved
                self._folded(Step(partition, watermark, last, done.states, len(entries)))
        return done if applied else None

    async def _read_before(
        self, partition: int, entries: Sequence[DecodedEntry], taught: Taught
    ) -> tuple[Before, ArmsBefore, Spaces]:
        """Read what folding these entries needs, but for what this worker has kept: their learners, the sums
        of their arms and the moves of their bandits, as they are at the watermark.
        """
        cycle = partition, self._cycles[partition]
        learners = sorted({entry.learner for entry, _ in entries})
        before: dict[LearnerId, CheckpointedLearner | StoredLearner] = {}
        for learner in learners:
            if (learner_kept := self._kept.get((*cycle, learner))) is not None:
                before[learner] = learner_kept
        missing = [learner for learner in learners if learner not in before]
        before.update(zip(missing, await self._store.learners.stored(partition, missing), strict=True))

        named = list(chain(entries, *taught.values()))
        arms = await asyncio.to_thread(arms_of, named) if taught else arms_of(named)
        sums = {arm: self._kept_sums.get((*cycle, arm)) for arm in arms if (*cycle, arm) in self._kept_sums}
        unread = [arm for arm in arms if arm not in sums]
        for arm, data in zip(unread, await self._store.effects.sums(partition, unread), strict=True):
            sums[arm] = None if data is None else folded_sums(arm.revision, data)

        moved, spaces = self._moved[partition], spaces_of(entries)
        for uid in {learner.bandit_uid for learner in learners} & moved.keys():
            spaces[uid] = max(moved[uid], spaces.get(uid, 0))
        maps = Spaces(moved, await self._moves.maps(spaces)) if spaces else Spaces()
        return before, ArmsBefore(sums, taught) if arms else ArmsBefore(), maps

    def _keep(self, partition: int, learners: Mapping[LearnerId, CheckpointedLearner]) -> None:
        for learner, learner_kept in learners.items():
            size = state_memory_bytes(learner.name, learner_kept.state)
            self._kept.put((partition, self._cycles[partition], learner), learner_kept, size)

    def _note_watermark(self, partition: int, watermark: str) -> None:
        self._watermarks[partition] = watermark
        self.reached(partition, watermark)

    async def _woken(self) -> None:
        self._awake.clear()
        # After the clear, and without an await between: an earlier wake is in ``_due``, and a later one ends
        # the wait.
        if self._due or self._stopping:
            return
        try:
            async with asyncio.timeout(self._poll_s):
                await self._awake.wait()
        except TimeoutError:
            self._due.update(range(self._store.partitions))

    def reached(self, partition: int, watermark: str) -> None:
        """Calls waiting for an entry up to there return, whichever worker applied the entry."""
        self._waiters.reached(partition, watermark)
