"""The arm effects of bandits, laid out as choices need them: by rows of a table, or beside an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import numpy as np

from app.bandits.bandit import Bandit
from app.bandits.effect_version import EffectVersion
from app.catalogues.learner_snapshot import LearnerSnapshot
from app.platform.cache import BoundedCache
from app.platform.deadlines import shared_task, task_for_all
from app.platform.pools import REQUESTS
from app.policies.arm_effects import ArmEffects, Directions, RowEffects, row_capacity
from app.policies.engine_effects import EngineEffects, HeadFollower

DIRECTION_BYTES = 17
INLINE_ARMS = 10_000  # of a version: some milliseconds


class EffectTables:
    """The effects of bandits, each of one version, and of one table where the arms are in memory.

    ``capacity_bytes`` bounds the memory of those by rows, that of directions, and that of heads. Effects of
    a version of more than ``inline_arms`` are laid out in a thread. For the event loop.
    """

    def __init__(self, *, capacity_bytes: int, inline_arms: int = INLINE_ARMS) -> None:
        self._inline_arms = inline_arms
        self._held: BoundedCache[tuple[str, Sequence[float]], RowEffects] = BoundedCache(capacity_bytes)
        self._directions: BoundedCache[int, Directions] = BoundedCache(capacity_bytes)
        self._making: dict[tuple[object, ...], asyncio.Task[RowEffects]] = {}
        self._heads: BoundedCache[str, HeadFollower] = BoundedCache(capacity_bytes)

    async def of(self, bandit: Bandit, arms: LearnerSnapshot) -> ArmEffects | None:
        """Those of a bandit as it is served; None: it has none.

        Awaits nothing but for the first choices with a version of many arms.
        """
        version = bandit.effects
        if version is None:
            return None
        if arms.plain.waiting is not None:
            return self._beside(bandit, version)
        table = arms.plain.whole.table
        weights = (1.0,) if bandit.weighing is None else bandit.weighing.weights
        key = bandit.uid, weights
        held, directions = self._held.get(key), self._directions.get(table.number)
        # After a compaction rows have other numbers.
        is_of_now = (
            held is not None
            and held.directions is directions
            and held.version is version
            and held.exploration == bandit.exploration
            and table.rows <= min(len(held.effects), held.rows + self._inline_arms)
        )
        if is_of_now and held is not None:
            if held.rows < table.rows:
                held = held.with_rows(table)
                self._held.put(key, held, held.memory_bytes(table.dim))
            return held
        if directions is None:
            directions = Directions()
            self._directions.put(table.number, directions, DIRECTION_BYTES * row_capacity(table.rows))
            # Before choices need them: those of the hundred arms of one take it a fifth longer.
            task_for_all(REQUESTS.run(partial(directions.of_all, table)))
        make = partial(RowEffects.of, version, directions, table, np.array(weights), bandit.exploration)
        if len(version.names) <= self._inline_arms:
            held = make()
        else:
            identity = *key, id(version), table.number, bandit.exploration
            held = await asyncio.shield(shared_task(self._making, identity, partial(REQUESTS.run, make)))
            if held.rows < table.rows:  # another choice began it, and arms came since
                held = await REQUESTS.run(make)
        self._held.put(key, held, held.memory_bytes(table.dim))
        return held

    def _beside(self, bandit: Bandit, version: EffectVersion) -> EngineEffects:
        """Those of a bandit whose arms are in an engine; their head is read in the background."""
        follower = self._heads.get(bandit.uid)
        if follower is None or follower.catalogue is not bandit.catalogue:
            follower = HeadFollower(bandit.catalogue)
            self._heads.put(bandit.uid, follower, follower.most_bytes)
        signals = bandit.record.signals
        # By its own weights, whatever those of this request are: one head serves all of them.
        weights = np.array([1.0] if signals is None else [rule.weight for rule in signals.values()])
        follower.follow(version, weights, bandit.exploration)
        if bandit.weighing is not None:
            weights = np.array(bandit.weighing.weights)
        return EngineEffects(version, weights, bandit.exploration, follower.head)
