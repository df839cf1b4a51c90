"""The arm effects of bandits, laid out as choices need them: by rows of a table."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from app.bandits.bandit import Bandit
from app.bandits.effect_version import EffectVersion
from app.catalogues.learner_snapshot import LearnerSnapshot
from app.engines.engine_index import EngineIndex
from app.engines.proposals import ProposedSnapshot
from app.filtering.filtered_snapshots import among
from app.filters.filter import Filter
from app.indexes.snapshot import Snapshot
from app.platform.cache import BoundedCache
from app.platform.deadlines import shared_task, task_for_all
from app.platform.pools import REQUESTS
from app.selection.arm_effects import MOST_HEAD, OPTIMISM, ArmEffects, Directions, row_capacity
from app.storage.types import StoredArm
from shortlist.types import Vector

DIRECTION_BYTES = 17
HEAD_NUMBERS = 1 << 20  # of the features of a head: 8 MB, a millisecond of a choice
NUMBER_BYTES, ARM_BYTES = 20, 1_000  # of an arm in a head, about
READ_TOGETHER = 256
INLINE_ARMS = 10_000  # of a version: some milliseconds


@dataclass(frozen=True, slots=True)
class EngineHead:
    """The arms of largest effect of a version, of a catalogue in an engine, as of the arrival of the
    version.
    """

    catalogue: str
    version: int
    arms: Snapshot


class EffectTables:
    """The effects of bandits, each of one version, and of one table where the arms are in memory.

    ``capacity_bytes`` bounds the memory of effects by rows, of directions, and of heads, each. Versions of
    more than ``inline_arms`` are laid out in a thread. For the event loop.
    """

    def __init__(self, *, capacity_bytes: int, inline_arms: int = INLINE_ARMS) -> None:
        self._inline_arms = inline_arms
        self._effects: BoundedCache[tuple[str, Sequence[float]], ArmEffects] = BoundedCache(capacity_bytes)
        self._directions: BoundedCache[int, Directions] = BoundedCache(capacity_bytes)
        self._making: dict[tuple[object, ...], asyncio.Task[ArmEffects]] = {}
        self._heads: BoundedCache[str, EngineHead] = BoundedCache(capacity_bytes)
        self._reading: dict[str, asyncio.Task[None]] = {}

    async def of(self, bandit: Bandit, arms: LearnerSnapshot) -> ArmEffects | None:
        """The effects of a bandit, by rows; None: without effects.

        Awaits only in the first choices with a version of many arms.
        """
        version = bandit.effects
        if version is None:
            return None
        if arms.plain.whole.is_of_one_request:
            return self.of_few(bandit, arms)
        table = arms.plain.whole.table
        weights = (1.0,) if bandit.weighing is None else bandit.weighing.weights
        key = bandit.uid, weights
        effects, directions = self._effects.get(key), self._directions.get(table.number)
        # After a compaction rows have other numbers.
        is_of_now = (
            effects is not None
            and effects.directions is directions
            and effects.version is version
            and effects.exploration == bandit.exploration
            and table.rows <= min(len(effects.effects), effects.rows + self._inline_arms)
        )
        if is_of_now and effects is not None:
            if effects.rows < table.rows:
                effects = effects.with_rows(table)
                self._effects.put(key, effects, effects.memory_bytes(table.dim))
            return effects
        if directions is None:
            directions = Directions()
            self._directions.put(table.number, directions, DIRECTION_BYTES * row_capacity(table.rows))
            # Before choices need them: those of the hundred arms of one take it a fifth longer.
            task_for_all(REQUESTS.run(partial(directions.of_all, table)))
        make = partial(ArmEffects.of, version, directions, table, np.array(weights), bandit.exploration)
        if len(version.names) <= self._inline_arms:
            effects = make()
        else:
            identity = *key, id(version), table.number, bandit.exploration
            effects = await asyncio.shield(shared_task(self._making, identity, partial(REQUESTS.run, make)))
            if effects.rows < table.rows:  # another choice began it, and arms came since
                effects = await REQUESTS.run(make)
        self._effects.put(key, effects, effects.memory_bytes(table.dim))
        return effects

    @property
    def is_reading(self) -> bool:
        """A head is being read."""
        return bool(self._reading)

    async def at_hand(
        self, bandit: Bandit, index: EngineIndex, arm_filter: Filter | None
    ) -> tuple[LearnerSnapshot, ArmEffects | None]:
        """The arms of largest effect of those in an engine, for one choice, and their effects.

        They are read in the background, anew with each version, and are as they were then; none at first.
        """
        head = None if bandit.effects is None else self._head(bandit, index, bandit.effects)
        arms: Snapshot = replace(index.snapshot() if head is None else head, recent=deque(maxlen=1))
        effects = self.of_few(bandit, arms) if head is None else await self.of(bandit, head)
        if head is not None and arm_filter is not None:
            arms = among(arms, arm_filter)
        return bandit.seen(arms), effects

    def of_few(self, bandit: Bandit, arms: LearnerSnapshot) -> ArmEffects | None:
        """As ``of``, for some hundred arms in memory for one choice."""
        if bandit.effects is None:
            return None
        weights = np.array((1.0,) if bandit.weighing is None else bandit.weighing.weights)
        of_few = ArmEffects.of(bandit.effects, Directions(), arms.plain.table, weights, bandit.exploration)
        return of_few.only_of_catalogue(arms.plain.table)

    def _head(self, bandit: Bandit, index: EngineIndex, version: EffectVersion) -> Snapshot | None:
        """The head in memory, of this version or of another; a newer one is read meanwhile."""
        head = self._heads.get(bandit.uid)
        if head is not None and head.catalogue != index.uid:
            head = None
        if head is None or head.version < version.number:
            shared_task(self._reading, bandit.uid, partial(self._read, bandit, index, version))
        return None if head is None else head.arms

    async def _read(self, bandit: Bandit, index: EngineIndex, version: EffectVersion) -> None:
        most, signals = head_size(index.dim), bandit.record.signals
        # By its own weights, whatever those of this request are: one head serves all of them.
        weights = np.array([1.0] if signals is None else [rule.weight for rule in signals.values()])
        ids = await REQUESTS.run(partial(most_promising, version, weights, bandit.exploration, most))
        arms = list[StoredArm]()
        for start in range(0, len(ids), READ_TOGETHER):
            stored = await index.store.read(index.uid, ids[start : start + READ_TOGETHER])
            arms += [arm for arm in stored if arm is not None]
        head = EngineHead(index.uid, version.number, await REQUESTS.run(partial(described, index.dim, arms)))
        self._heads.put(bandit.uid, head, most * (NUMBER_BYTES * index.dim + ARM_BYTES))


def described(dim: int, arms: Sequence[StoredArm]) -> Snapshot:
    """Some arms of the store, of which filters will ask."""
    proposed = ProposedSnapshot.of_stored(dim, arms)
    return Snapshot(proposed.table, None, proposed.expected_us, deque(maxlen=1), proposed.attributes)


def head_size(dim: int) -> int:
    """The most arms in the head of a catalogue in an engine."""
    return max(1, min(MOST_HEAD, HEAD_NUMBERS // dim))


def most_promising(version: EffectVersion, weights: Vector, exploration: float, most: int) -> list[str]:
    """Ids of the arms of largest b_i + 2.5 e s_i, at most so many. Cost: O(J K)."""
    effects, deviations = version.at(slice(None))
    weights = weights[: len(effects)]
    promise = weights @ effects + OPTIMISM * exploration * np.sqrt(weights**2 @ deviations**2)
    places = np.arange(len(promise))
    if len(promise) > most:
        places = np.argpartition(-promise, most)[:most]
    return [version.names[position] for position in places.tolist()]
