"""Export and import of stored learners, from one service to another: bit for bit.

An entry of the reward log gives a learner its state, only if the learner has none. So a repeated state counts
once, every process learns of the new state, and a replay of the log finds the entry again.
"""

from __future__ import annotations

import asyncio
import secrets
import struct
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from app.bandits.bandit import Bandit
from app.bandits.spaces import Moves
from app.fold.checkpoints import Workers, restored
from app.platform.answer_memory import hold
from app.platform.cursors import decode_cursor, encode_cursor, foreign
from app.platform.errors import Conflict, Invalid, NotFound, Unavailable
from app.platform.pools import REQUESTS
from app.records.log_entries import StateEntry, encode
from app.records.records import LearnerState, bytes_to_state, state_to_bytes
from app.storage.store import Store
from app.storage.types import NOT_DECIDED, LearnerId, RewardWrite
from shortlist.errors import InvalidArgument
from shortlist.linear import ridge

COPIES = 4  # of a state: as it is stored, as arrays, written again, as text
PAGE_BYTES = 1 << 22
DEDUPE_MS = 60_000
SMALLEST_RIDGE = 1e-9
LARGEST_SUM = 1e100


class LearnerCopies:
    """Reads stored learners, and gives their states to learners without rewards.

    ``page_bytes``: of the states read for one page, at least one.
    """

    def __init__(
        self, store: Store, workers: Workers, moves: Moves | None = None, *, page_bytes: int = PAGE_BYTES
    ) -> None:
        self.page_bytes = page_bytes
        self._store = store
        self._moves = moves or Moves(store.moves)
        self._workers = workers
        self._giving = asyncio.Lock()  # states are large: the log holds few that are not folded

    async def page(
        self, bandit: Bandit, cursor: str | None, limit: int
    ) -> tuple[Sequence[tuple[str, LearnerState]], str | None]:
        """Some learners of a bandit, partition by partition, there by name; and the cursor of those after.

        ``limit`` at most, and as many as ``page_bytes`` allow. Cost: one step in the store for each learner
        of the partition, and what reading those of the page takes.
        """
        partition, after = _position(cursor)
        size = bandit.state_bytes
        limit = min(limit, max(1, self.page_bytes // size))
        while partition < self._store.partitions:
            names = await self._store.learners.names(partition, bandit.uid)
            left = [name for name in names if name > after]
            if left:
                page_names = left[:limit]
                # Before they are read: a request beyond the memory for answers is refused without having
                # taken any.
                hold(COPIES * size * len(page_names))
                result = await self._read(
                    bandit, partition, [LearnerId(bandit.uid, name) for name in page_names]
                )
                if len(left) > limit:
                    return result, encode_cursor(f"{partition}/{page_names[-1]}")
                more = partition + 1 < self._store.partitions
                return result, encode_cursor(f"{partition + 1}/") if more else None
            partition, after = partition + 1, ""
        return [], None

    async def state(self, bandit: Bandit, learner: LearnerId) -> bytes:
        """The stored state of a learner. Raises NotFound: no rewards."""
        hold(COPIES * bandit.state_bytes)
        read = await self._read(bandit, learner.partition(self._store.partitions), [learner])
        if not read:
            raise NotFound("the learner has no rewards, so it has no stored state")
        return await REQUESTS.run(partial(state_to_bytes, read[0][1]))

    async def give(self, bandit: Bandit, learner: LearnerId, data: bytes) -> bool:
        """Give a learner the state of another one; False if the learner has exactly this state already.

        Raises Invalid (no state, or not of such a bandit), Conflict (the learner has other rewards),
        Unavailable (not folded yet: safe to repeat).
        """
        data = await self._in_space(bandit, data)
        state = await REQUESTS.run(partial(checked_state, data, bandit))
        data = await REQUESTS.run(partial(state_to_bytes, state))  # one state can be written in several ways
        async with self._giving:
            # First, so that a repeated request appends nothing: an entry holds the whole state.
            if await self._stands(bandit, learner, data):
                return False
            await self.append_state(bandit, learner, data)
            # Somebody may have appended another state, or a reward, just before: the fold takes the first of
            # them.
            if not await self._stands(bandit, learner, data):
                raise Unavailable("the state is not stored yet; safe to try again")
        return True

    async def append_state(self, bandit: Bandit, learner: LearnerId, data: bytes) -> None:
        now_ms = time.time_ns() // 1_000_000
        record = bandit.record
        if record.idle_ttl_s is not None:
            await self._store.side_data.touch(learner, expires_ms=now_ms + round(1_000 * record.idle_ttl_s))
        # No dedupe between calls: whether it is there is asked before, and the fold takes one state only.
        name = f"state.{secrets.token_hex(8)}"
        partition = learner.partition(self._store.partitions)
        write = RewardWrite(learner, NOT_DECIDED, encode(StateEntry(data)), name, ttl_ms=DEDUPE_MS)
        (done,) = await self._store.rewards.append(partition, [write])
        self._workers.wake(partition)
        await self._workers.wait_applied(partition, done.entry_id)

    async def _in_space(self, bandit: Bandit, data: bytes) -> bytes:
        """The state in the bandit's space: carried from an earlier space, if any; else assumed to be
        there.
        """
        try:
            state: LearnerState | None = bytes_to_state(data)
            if state is None or state.space == bandit.record.space:
                return data
            state = await self._moves.carried(bandit.uid, state, bandit.record.space)
        except (ValueError, struct.error, InvalidArgument):
            return data  # ``checked_state`` says what is wrong
        if state is None:
            raise Invalid("must be of the catalogue that the bandit has now", path=("state",))
        return state_to_bytes(replace(state, space=bandit.record.space))

    async def _stands(self, bandit: Bandit, learner: LearnerId, data: bytes) -> bool:
        """Return whether the learner has this state already. Raises Conflict (another state). Raises Conflict
        if it is otherwise.
        """
        result = await self._read(bandit, learner.partition(self._store.partitions), [learner])
        if result and state_to_bytes(result[0][1]) != data:
            raise Conflict("the learner has rewards of its own; a state is given only to one that has none")
        return bool(result)

    async def _read(
        self, bandit: Bandit, partition: int, learners: Sequence[LearnerId]
    ) -> Sequence[tuple[str, LearnerState]]:
        """Read the learners with a state, in the space of the bandit."""
        stored = await self._store.learners.stored(partition, learners)
        uid, space = bandit.uid, bandit.record.space
        spaces = await self._moves.spaces(uid, space)

        def work() -> list[tuple[str, LearnerState]]:
            result = [
                (learner.name, spaces.carried(uid, restored(learner, stored_learner), space))
                for learner, stored_learner in zip(learners, stored, strict=True)
            ]
            return [(name, state) for name, state in result if state is not None]

        return await REQUESTS.run(work)


def checked_state(data: bytes, bandit: Bandit) -> LearnerState:
    """The state. Raises Invalid: no state, or impossible for a learner of the bandit."""
    where = ("state",)
    try:
        state = bytes_to_state(data)
    except (ValueError, struct.error):
        raise Invalid("must be the state of a learner, as it was read", path=where) from None
    dim, intercept = bandit.learner_dim, bandit.record.intercept
    if intercept and state.sums.dim == dim - 1:  # of a bandit without: its rewards say nothing of a constant
        state = replace(state, sums=state.sums.with_coordinate())
    if state.sums.dim != dim:
        least = f"{dim - 1} or " if intercept else ""
        raise Invalid(f"must be of dimension {least}{dim}, not {state.sums.dim}", path=where)
    if state.half_life_s != (bandit.record.key_half_life_s or 0.0):
        raise Invalid("must be discounted by the half-life of the bandit", path=where)
    most = bandit.record.signal_count
    if state.sums.signals > most:
        raise Invalid(f"must be of at most {most} signals, not {state.sums.signals}", path=where)
    sums = state.sums
    numbers = np.abs(np.concatenate((sums.total, sums.error, sums.more, sums.more_error)))
    counts = (state.version, state.sums.observations, state.time_ms)
    numbers = np.append(numbers, np.abs(state.sums.squares) if state.sums.has_squares else 0.0)
    if not (numbers <= LARGEST_SUM).all() or state.version < 1 or max(counts) >= 2**53:
        raise Invalid("must hold finite sums of at least one reward", path=where)
    if not 0 <= state.sums.weight <= state.sums.observations:
        raise Invalid("must hold observations that weigh at most 1 each", path=where)
    try:
        # Finite numbers may still be no Gram matrix: a later choice would fail, and so for ever.
        ridge.posterior(state.sums, ridge=SMALLEST_RIDGE)
    except InvalidArgument:
        raise Invalid("must hold sums of products, which make a positive matrix", path=where) from None
    return state


def _position(cursor: str | None) -> tuple[int, str]:
    """Partition, and the name after which the page begins."""
    if cursor is None:
        return 0, ""
    partition, slash, after = decode_cursor(cursor).partition("/")
    if not slash or not partition.isdecimal() or len(partition) > 6:
        raise foreign()
    return int(partition), after
