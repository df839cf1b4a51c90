"""A learner in the store: a checkpoint and a tail; and the processes of the fold.

    >>> # d = 256: a state is 530 kB, an entry 2 kB. About every 241st reward writes the state, the others
    >>> # put their entry id at the end of the tail: 2 kB a reward, instead of 530.

The fold is bit-identical however a log is cut, so every process gets the same bits from checkpoint and tail.
A tail never has more bytes than the state, about d entries. From d = 950 on tails are shorter still: their
fold never takes much longer than a second.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from app.fold.fold import continued, is_short
from app.platform.cache import BoundedCache
from app.platform.pools import LEARNERS
from app.records.log_entries import decoded, decoded_all
from app.records.records import LearnerState, bytes_to_state, state_bytes
from app.storage.learner_states import LearnerStates
from app.storage.types import LearnerId, LogEntry, StoredLearner

ENTRY_BYTES = 150  # that an entry takes in a tail besides its payload
FOLD_TERMS = 420_000_000  # numbers that the entries of a tail add to a state: about 1.5 s
SMALL_BYTES = 12_000  # a smaller state, d up to 37, is written in less time than a tail is read and folded
LARGE_CHECKPOINT = 1 << 19  # bytes that take half a millisecond to decode
KEY_BYTES = 400  # that an entry of a cache takes in memory besides the name of its learner
MOST_TOGETHER = 64  # learners that are read in one step
OBJECT_BYTES = 700  # that a state or a posterior takes in memory besides its numbers


class Workers(Protocol):
    """The workers of all partitions, in this process or in others."""

    def wake(self, partition: int) -> None:
        """There is something new in the log of this partition."""

    async def wait_applied(self, partition: int, entry_id: str) -> bool:
        """Return True once the entry is folded and stored; False after a long wait."""
        ...


def tail_bytes(tail: Iterable[LogEntry]) -> int:
    """The bytes a tail counts for."""
    return sum(len(entry.payload) + ENTRY_BYTES for entry in tail)


def is_due(state: LearnerState, tail: int, *, was_read: bool = False) -> bool:
    """Return whether to write the whole state now, rather than let the tail grow to this many bytes.

    ``was_read``: the worker had no copy in memory and read the learner. So may happen next time.
    """
    dim = state.sums.dim
    size = state_bytes(dim, discounted=bool(state.half_life_s), signals=state.sums.signals)
    # Reading a tail as long as the state costs as much as writing the state once: longer tails cost more.
    if tail >= size or (was_read and size <= SMALL_BYTES):
        return True
    # An estimate: the number of entries is not kept, only their bytes.
    entries = tail / (8 * dim + ENTRY_BYTES)
    return entries * dim * (dim + 3) / 2 >= FOLD_TERMS


def memory_bytes(name: str, dim: int | None) -> int:
    """The bytes a learner of this name takes in a cache: as a state, or as a posterior, which is a little
    less.

    ``dim``: None: no rewards.
    """
    return KEY_BYTES + sys.getsizeof(name) + (0 if dim is None else OBJECT_BYTES + 8 * dim * (dim + 3))


def state_memory_bytes(name: str, state: LearnerState | None) -> int:
    """The bytes a learner in this state takes in a cache."""
    return memory_bytes(name, None if state is None else state.sums.dim)


def read_together(size: int, *, most_bytes: int) -> int:
    """The number of learners read in one step, each of about ``size`` bytes: at least one, however large."""
    return max(1, min(MOST_TOGETHER, most_bytes // max(size, 1)))


def restored(identity: LearnerId, stored: StoredLearner) -> LearnerState | None:
    """The state of a learner, None if there is none. Raises ValueError (unreadable)."""
    state = None if stored.checkpoint is None else bytes_to_state(stored.checkpoint)
    return continued(identity, state, decoded_all(stored.tail)) if stored.tail else state


@dataclass(frozen=True, slots=True)
class _Read:
    """A state, and the last entry of its tail: while the stored tail has this entry, only later ones are
    folded.
    """

    state: LearnerState | None
    last: str


class LearnerReader:
    """Reads the learners of other writers. Folds each entry of a growing tail once, if there is space."""

    def __init__(self, learners: LearnerStates, *, capacity_bytes: int) -> None:
        self._learners = learners
        self._read: BoundedCache[tuple[int, LearnerId], _Read] = BoundedCache(capacity_bytes)

    async def read(self, partition: int, identity: LearnerId) -> LearnerState | None:
        """The learner as the store has it now; long reads and folds run in a thread."""
        before = self._read.get((partition, identity))
        folded_entries = {} if before is None else {identity: before.last}
        (stored,) = await self._learners.stored(partition, [identity], folded_entries)

        def work() -> LearnerState | None:
            # The tail still has the last folded entry: nothing before that entry was rewritten.
            if before is not None and stored.continues:
                return continued(identity, before.state, decoded_all(stored.tail))
            return restored(identity, stored)

        is_small = len(stored.checkpoint or b"") < LARGE_CHECKPOINT and is_short(map(decoded, stored.tail))
        state = work() if is_small else await LEARNERS.run(work)
        if stored.tail:
            read = _Read(state, stored.tail[-1].entry_id)
            self._read.put((partition, identity), read, state_memory_bytes(identity.name, state))
        # A checkpoint without a tail is read quickly; only tails are worth a place.
        elif not stored.continues:
            self._read.drop((partition, identity))
        return state
