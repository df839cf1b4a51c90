"""The pooled prior: what all keys of a bandit have taught together, as a new key starts from it.

Each partition keeps a part of it, as the state of a learner of its own (``POOLED``). Folding keeps the part
exact, and takes a forgotten learner out of it. Here the parts are read and added up when a bandit needs them
and the last sum is older than a second; an older one serves only while the store does not answer.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial

from app.bandits.bandit import Bandit
from app.bandits.spaces import BanditMoved, Moves
from app.learning.checkpoints import LearnerReader
from app.learning.fold import merged
from app.platform.cache import BoundedCache
from app.platform.deadlines import shared_task
from app.platform.errors import Unavailable
from app.records.records import POOLED, LearnerState
from app.storage.types import LearnerId
from shortlist.linear import sum_algebra
from shortlist.linear.pooled_prior import with_pooled_prior
from shortlist.linear.ridge_sums import RidgeSums

MAX_AGE_S = 1.0
PATIENCE_S = 0.2  # how long a caller waits for the store before an older sum serves
ENTRY_BYTES = 400


@dataclass(slots=True)
class Pooled:
    """What all keys of a bandit have taught; ``state`` is None before the first reward of any key."""

    state: LearnerState | None
    read_at: float

    @property
    def bytes(self) -> int:
        return ENTRY_BYTES + (0 if self.state is None else 2 * self.state.sums.total.nbytes)


class PooledPriors:
    """The pooled priors of the bandits that this process serves. ``capacity_bytes`` bounds their memory.

    ``max_age_s``: of a sum that serves while the store answers. ``patience_s``: how long a caller waits for
    the store before an older one serves.
    """

    def __init__(
        self,
        reader: LearnerReader,
        partitions: int,
        moves: Moves,
        *,
        capacity_bytes: int,
        max_age_s: float = MAX_AGE_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.max_age_s, self.patience_s = max_age_s, patience_s
        self._reader = reader
        self._moves = moves
        self._partitions = partitions
        self._held: BoundedCache[str, Pooled] = BoundedCache(capacity_bytes)
        self._reading: dict[str, asyncio.Task[Pooled]] = {}

    async def with_prior(self, bandit: Bandit, key_state: LearnerState, *, anew: bool = False) -> RidgeSums:
        """The sums of a key, with those of all other keys as its prior.

        ``anew``: with the others as the store has them now.
        """
        state = (await self._read_now(bandit.uid)).state if anew else await self._recent(bandit)
        state = await self._carried(bandit, state)
        return with_others(key_state, state, strength=bandit.record.prior_strength)

    async def get(self, bandit: Bandit) -> LearnerState | None:
        """What all keys have taught, in the space of the bandit. Raises BanditMoved, Unavailable."""
        return await self._carried(bandit, await self._recent(bandit))

    async def _carried(self, bandit: Bandit, state: LearnerState | None) -> LearnerState | None:
        if state is not None and state.space > bandit.record.space:
            raise BanditMoved
        return await self._moves.carried(bandit.uid, state, bandit.record.space)

    async def _recent(self, bandit: Bandit) -> LearnerState | None:
        """What all keys have taught, at most ``max_age_s`` ago, or longer while the store does not answer."""
        pooled = self._held.get(bandit.uid)
        if pooled is None:
            return (await self._read(bandit.uid)).state
        if time.monotonic() - pooled.read_at <= self.max_age_s:
            return pooled.state
        try:
            async with asyncio.timeout(self.patience_s):
                return (await self._read(bandit.uid)).state
        except (TimeoutError, Unavailable):
            return pooled.state

    async def _read(self, uid: str) -> Pooled:
        """Callers share one read."""
        return await asyncio.shield(shared_task(self._reading, uid, partial(self._read_now, uid)))

    async def _read_now(self, uid: str) -> Pooled:
        started = time.monotonic()
        learner = LearnerId(uid, POOLED)
        parts = await asyncio.gather(
            *(self._reader.read(partition, learner) for partition in range(self._partitions))
        )
        # while a move is carried out parts are of two spaces
        space = max((part.space for part in parts if part is not None), default=0)
        total: LearnerState | None = None
        for part in [await self._moves.carried(uid, part, space) for part in parts]:
            # In the order of partitions, whoever answers first: sums of floats depend on their order.
            total = total if part is None else merged(total, part)
        # its age counts from the start: rewards that came while it was read may not be in it
        pooled = Pooled(total, started)
        self._held.put(uid, pooled, pooled.bytes)
        return pooled


def with_others(key_state: LearnerState, pooled: LearnerState | None, *, strength: float) -> RidgeSums:
    """The sums of a key, with those of all others as its prior. ``pooled``: what all keys have taught."""
    if pooled is None:
        return key_state.sums
    sums = key_state.sums
    if key_state.half_life_s:
        sums = sum_algebra.scaled(
            sums, sum_algebra.weight(pooled.time_ms - key_state.time_ms, key_state.half_life_s)
        )
    # the pooled sums have the key's own rewards too, and these must not count twice
    others = sum_algebra.minus(pooled.sums, sums)
    return with_pooled_prior(key_state.sums, others, strength=strength)
