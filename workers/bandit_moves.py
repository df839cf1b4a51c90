"""Carrying out moves of bandits: their entries in the logs, and the learners carried by nothing else.

The fold carries a learner with its next entry, and readers carry the learners as read, so nobody waits for
this work. It ends the move: once every checkpoint of a partition is of the new space, the end is noted. It
also writes the entries of a process killed after the move and before its entries were in all logs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from app.bandits.spaces import Moves, Spaces
from app.bandits.versions import BanditVersion, StoredVersions
from app.fold.checkpoints import read_together, restored
from app.platform.background import Pace, repeat
from app.platform.long_work import LongWork
from app.platform.metrics import Metrics
from app.records.log_entries import MOVED, MoveEntry, encode
from app.records.records import state_to_bytes
from app.storage.store import Store
from app.storage.types import CarriedWrite, LearnerId, StoredLearner

log = logging.getLogger("shortlist.worker")

EVERY_S = 0.5
# Of the states read together, at least one. The store syncs as much to disk in one step, and readers of
# learners wait for the sync: with four times as much the p99 of choices was three times as long.
AT_ONCE_BYTES = 1 << 15
SHARE = 0.3  # of the time that is spent on it: meanwhile choices come in
CARRYING = LongWork(threads=1, waiting=4, name="carrying")


class Carrying:
    """For one process. Any number of processes may do this; ``owns(partition)`` saves them the same work.

    ``wake(partition)``   is called when something was appended to the log of the partition
    ``carried(count)``    is told how many learners were, for metrics
    """

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        *,
        owns: Callable[[int], bool],
        wake: Callable[[int], None],
        moves: Moves | None = None,
    ) -> None:
        self._store = store
        self._owns = owns
        self._wake = wake
        self._moves = moves or Moves(store.moves)
        self._carried = metrics.housekeeping.labels("carried")
        self._versions = StoredVersions(store)
        self._done: dict[str, int] = {}  # by the uid of a bandit: the moves that are carried out
        self._finished: Mapping[str, BanditVersion] | None = None  # of these versions all moves are

    async def run(self) -> None:
        """Carry moves until cancelled. An unreachable store is waited for."""
        await repeat(self.round, every_s=EVERY_S, waits="learners of moved bandits are not carried")

    async def round(self) -> bool:
        """Do a round; return whether there was something to do."""
        versions = await self._versions.all()
        # The same object until any bandit changes: of thousands at rest none is looked at.
        if versions is self._finished:
            return False
        spaces = {uid: version.record.space for uid, version in versions.items() if version.record.space}
        self._done = {uid: number for uid, number in self._done.items() if uid in versions}
        busy = False
        for uid, number in spaces.items():
            if self._done.get(uid, 0) < number:
                busy = True
                await self._carry_out(uid, number)
        self._finished = None if busy else versions
        return busy

    async def _carry_out(self, uid: str, number: int) -> None:
        progress = await self._store.moves.progress(uid)
        for partition, part in enumerate(progress):
            for missing in range(part.in_log + 1, number + 1):
                payload = encode(MoveEntry(missing))
                await self._store.moves.append(partition, uid, learner=MOVED, number=missing, payload=payload)
                self._wake(partition)
            # Only once the entry of the move is folded: until then rewards of the earlier space still come.
            if part.folded >= number > part.carried and self._owns(partition):
                await self._carry(partition, uid, number)
        if min(part.carried for part in progress) >= number:
            self._done[uid] = number

    async def _carry(self, partition: int, uid: str, number: int) -> None:
        """Write every learner of a partition in an earlier space, and note the end: all are carried."""
        spaces = await self._moves.spaces(uid, number)
        names = await self._store.learners.names(partition, uid)
        together, is_whole, pace = 1, True, Pace(SHARE)
        while names:
            batch, names = names[:together], names[together:]
            stored = await self._store.learners.stored(partition, [LearnerId(uid, name) for name in batch])
            writes = await CARRYING.run(partial(_writes, uid, batch, stored, spaces, number))
            if writes:
                written = await self._store.moves.carry(partition, uid, writes)
                self._carried.inc(written)
                is_whole &= written == len(writes)  # others changed meanwhile: they are looked at again
            # By the size of the last ones: learners of a bandit have one dimension, so the first tells the
            # size. Not by checkpoints alone: all rewards may be in tails.
            datas = (*(learner.checkpoint for learner in stored), *(write.state for write in writes))
            size = max((len(data or b"") for data in datas), default=0)
            together = read_together(size, most_bytes=AT_ONCE_BYTES)
            await pace.rest()
        if is_whole:
            await self._store.moves.all_carried(partition, uid, number)


def _writes(
    uid: str, names: Sequence[str], stored: Sequence[StoredLearner], spaces: Spaces, number: int
) -> list[CarriedWrite]:
    """The states to write. An unreadable learner stays as it is: it knows nothing either way."""
    try:
        read = [restored(LearnerId(uid, name), learner) for name, learner in zip(names, stored, strict=True)]
        later = spaces.carried_each(uid, read, number)
    except Exception:
        if len(names) > 1:  # the others are carried
            pairs = zip(names, stored, strict=True)
            return [
                write for name, learner in pairs for write in _writes(uid, [name], [learner], spaces, number)
            ]
        log.exception("a learner cannot be carried to the new catalogue of its bandit")
        return []
    return [
        CarriedWrite(
            name, learner.checkpoint, len(learner.tail), None if new is None else state_to_bytes(new)
        )
        for name, learner, state, new in zip(names, stored, read, later, strict=True)
        if state is not None and state.space < number
    ]
