"""The reward worker: folds the reward log into the learners.

    >>> # one partition, whose watermark stands at entry 7-0, gets two more rewards for one learner
    >>> # read_log(after 7-0)      -> entries 8-0, 9-0
    >>> # states(learner)          -> version 5
    >>> # fold                     -> version 7
    >>> # apply(expected 7-0, watermark 9-0, states)  -> True: both states and watermark moved, or neither

A crash before ``apply`` changes nothing; a second worker that was faster makes ``apply`` false, and the
entries are read again after the new watermark. Each entry takes effect exactly once. A watermark that this
worker has not set itself was set by another one, or by a call of its own whose reply was lost: whoever caches
states is told (``overtaken``). An entry that cannot be folded becomes a dead letter in the same step.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.errors import Unavailable
from app.services.formats.records import LearnerState, bytes_to_state, state_to_bytes
from app.services.learning.fold import fold, learners_of, reason_of
from app.services.learning.workers import WAIT_S
from app.storage.protocol import DeadLetter, LearnerId, LearnerStates, LogEntry, RewardLog, entry_order

log = logging.getLogger("shortlist.worker")

BATCH = 500
MOST_NUMBERS = 1 << 22  # in the states of one batch, 32 MiB: at least one state, whatever its dimension
SHORT_FOLD = 4_000_000  # sum of squared payload bytes: about 55 entries of dimension 32, or 4 of 128
RETRY_S = 0.2
TRIM_EVERY_S = 60.0

States = Mapping[LearnerId, LearnerState | None]
Encoded = Mapping[LearnerId, bytes | None]


def _is_short(entries: Sequence[LogEntry]) -> bool:
    """Whether folding takes about a millisecond: then handing it to a thread would cost more."""
    return sum(len(entry.payload) ** 2 for entry in entries) <= SHORT_FOLD


def _batches(entries: Sequence[LogEntry]) -> Iterator[Sequence[LogEntry]]:
    """Cut where the states would take more memory than ``MOST_NUMBERS``."""
    start, numbers = 0, 0
    learners = set[LearnerId]()
    for place, entry in enumerate(entries):
        identity, needed = entry.learner, (len(entry.payload) // 8) ** 2
        if identity not in learners and learners and numbers + needed > MOST_NUMBERS:
            yield entries[start:place]
            start, numbers, learners = place, 0, set()
        if identity not in learners:
            learners.add(identity)
            numbers += needed
    if entries:
        yield entries[start:]


@dataclass(frozen=True, slots=True)
class Folded:
    """What becomes of a batch: the new states, as they are stored, and the entries that were left out."""

    states: States
    encoded: Encoded
    dead: Sequence[DeadLetter]


def _fold_encoded(before: Encoded, entries: Sequence[LogEntry]) -> Folded:
    dead: dict[str, DeadLetter] = {}

    def bury(entry: LogEntry, reason: str) -> None:
        log.error("entry %s is a dead letter: %s", entry.entry_id, reason)
        dead[entry.entry_id] = DeadLetter(entry, reason)

    states, broken = _decoded(before)
    for entry in entries:
        if reason := broken.get(entry.learner):
            bury(entry, reason)
    sound = [entry for entry in entries if entry.learner not in broken]
    after = fold(states, sound, bury)
    encoded = {identity: state_to_bytes(state) if state else None for identity, state in after.items()}
    return Folded(after, encoded, [dead[entry.entry_id] for entry in entries if entry.entry_id in dead])


def _decoded(before: Encoded) -> tuple[dict[LearnerId, LearnerState | None], dict[LearnerId, str]]:
    """The states, and the reason for each that cannot be read: it stays as it is, and blocks nobody else."""
    states: dict[LearnerId, LearnerState | None] = {}
    broken: dict[LearnerId, str] = {}
    for identity, data in before.items():
        try:
            states[identity] = bytes_to_state(data) if data else None
        except Exception as error:
            broken[identity] = f"the learner's state cannot be read: {reason_of(error)}"
    return states, broken


@dataclass(frozen=True, slots=True)
class Step:
    """What one ``apply`` has done to a partition, between two watermarks."""

    partition: int
    before: str
    after: str
    states: States
    entries: int


class WorkerStore(RewardLog, LearnerStates, Protocol):
    """What the worker needs of the store."""


class RewardWorker:
    """Applies rewards of every partition as soon as it is woken, and looks by itself every ``poll_s``.

    Partitions that it does not own are left alone: another worker has them (``leases``). That saves work;
    what keeps two from applying the same is the watermark alone.
    """

    def __init__(
        self,
        store: WorkerStore,
        *,
        applied: Callable[[Step], None],
        overtaken: Callable[[int], Awaitable[object]],
        poll_s: float,
        reward_log_s: int,
        owns: Callable[[int], bool] = lambda partition: True,  # noqa: ARG005
    ) -> None:
        self._store = store
        self._applied = applied
        self._overtaken = overtaken
        self._poll_s = poll_s
        self._reward_log_s = reward_log_s
        self._owns = owns
        self._awake = asyncio.Event()
        self._folding = asyncio.Lock()
        self._due = set(range(store.partitions))
        self._watermarks: dict[int, str] = {}
        self._waiting: dict[int, list[tuple[tuple[int, int], asyncio.Future[bool]]]] = {}
        self._stopping = False

    def wake(self, partition: int) -> None:
        """There is something new in the log of this partition."""
        self._due.add(partition)
        self._awake.set()

    def stop(self) -> None:
        """Finish the batch at hand, then return from ``run``."""
        self._stopping = True
        self._awake.set()

    async def wait_applied(self, partition: int, entry_id: str) -> bool:
        """True once the entry is applied; False when it is not within ``WAIT_S``."""
        order = entry_order(entry_id)
        if entry_order(self._watermarks.get(partition, "0-0")) >= order:
            return True
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(partition, []).append((order, future))
        try:
            return await asyncio.wait_for(future, WAIT_S)
        except TimeoutError:
            return False

    async def run(self) -> None:
        """Work until ``stop``. An unreachable store is waited for."""
        trimmed = time.monotonic()
        while not self._stopping:
            try:
                await self.drain()
                if time.monotonic() - trimmed > TRIM_EVERY_S:
                    trimmed = time.monotonic()
                    await self._trim()
            except Unavailable as error:
                log.warning("the store is not available, rewards wait: %s", error.detail)
                self._due.update(range(self._store.partitions))
                await asyncio.sleep(RETRY_S)
                continue
            await self._rest()

    async def drain(self) -> None:
        """Apply everything that is in the log of the partitions that are due, all of them side by side."""
        while self._due and not self._stopping:
            due, self._due = set(filter(self._owns, self._due)), set()
            outcomes = await asyncio.gather(*map(self._try_to_advance, due), return_exceptions=True)
            for failure in filter(None, outcomes):
                raise failure

    async def _try_to_advance(self, partition: int) -> None:
        try:
            await self._advance(partition)
        except Unavailable:
            raise
        except Exception:  # the other partitions go on; this one is tried again at the next look
            log.exception("the reward log of partition %d cannot be applied", partition)

    async def _advance(self, partition: int) -> None:
        """Apply what comes next in a partition; it stays due while there may be more."""
        watermark, entries = await self._read(partition)
        self._stand(partition, watermark)
        for batch in _batches(entries):
            if not await self._apply(partition, watermark, batch):
                self._due.add(partition)
                return
            watermark = batch[-1].entry_id
            self._stand(partition, watermark)
        if len(entries) == BATCH:
            self._due.add(partition)

    async def _apply(self, partition: int, watermark: str, entries: Sequence[LogEntry]) -> bool:
        """False if the watermark does not stand where it did."""
        identities = learners_of(entries)
        stored = await self._store.states(partition, identities)
        done = await self._fold(dict(zip(identities, stored, strict=True)), entries)
        last = entries[-1].entry_id
        applied = await self._store.apply(
            partition, expected=watermark, watermark=last, states=done.encoded, dead=done.dead
        )
        if applied:
            self._applied(Step(partition, watermark, last, done.states, len(entries)))
        return applied

    async def _read(self, partition: int) -> tuple[str, Sequence[LogEntry]]:
        """The watermark as it stands, and the entries after it: read together, if it is where it was left."""
        known = self._watermarks.get(partition, "0-0")
        watermark, entries = await asyncio.gather(
            self._store.watermark(partition), self._store.read_log(partition, known, BATCH)
        )
        if partition not in self._watermarks or watermark != known:
            await self._overtaken(partition)
        if watermark != known:
            entries = await self._store.read_log(partition, watermark, BATCH)
        return watermark, entries

    async def _fold(self, before: Encoded, entries: Sequence[LogEntry]) -> Folded:
        """One partition at a time: several threads would keep requests from the interpreter."""
        async with self._folding:
            if not _is_short(entries):
                return await asyncio.to_thread(_fold_encoded, before, entries)
            await asyncio.sleep(0)  # requests come between the folds of two partitions
            return _fold_encoded(before, entries)

    def _stand(self, partition: int, watermark: str) -> None:
        self._watermarks[partition] = watermark
        self.reached(partition, watermark)

    async def _rest(self) -> None:
        self._awake.clear()
        if self._due or self._stopping:
            return
        try:
            await asyncio.wait_for(self._awake.wait(), self._poll_s)
        except TimeoutError:
            self._due.update(range(self._store.partitions))

    def reached(self, partition: int, watermark: str) -> None:
        """Whoever waits for an entry up to there need not wait any longer, whoever applied it."""
        if partition not in self._waiting:
            return
        order = entry_order(watermark)
        still = []
        for wanted, future in self._waiting.pop(partition, []):
            if wanted > order:
                still.append((wanted, future))
            elif not future.done():
                future.set_result(True)
        if still:
            self._waiting[partition] = [item for item in still if not item[1].done()]

    async def _trim(self) -> None:
        before_ms = time.time_ns() // 1_000_000 - 1_000 * self._reward_log_s
        for partition in range(self._store.partitions):
            await self._store.trim_log(partition, before_ms)
