"""The arms of a catalogue with an engine. They are read from the store, which has all."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial

import numpy as np
from numpy.typing import NDArray

from app.catalogues.kept_arms import FoundArms
from app.engines.engine_index import LAST_ARM, EngineIndex
from app.engines.proposals import ProposedSnapshot
from app.filters.attributes import Document
from app.indexes.snapshot import Snapshot
from app.platform.cursors import foreign
from app.platform.deadlines import yield_to_others
from app.platform.errors import Unavailable
from app.platform.pools import REQUESTS
from app.records.records import attributes_of, bytes_to_vector
from app.storage.types import Deleted, Position, StoredArm, Upserted
from shortlist.types import Vector

TAKEN_TOGETHER = 1_000
TRIES = 4
SAMPLED, SAMPLED_NUMBERS = 20_000, 1 << 20
SAMPLE_SEED = 0


class EngineArms:
    """Implements ``ArmRepository``. Its order of arms is the order of their last changes."""

    keeps_changes = True

    def __init__(self, index: EngineIndex, *, taken_together: int = TAKEN_TOGETHER) -> None:
        self._index, self._taken_together = index, taken_together
        self._store = index.store

    async def open(self) -> None:
        await self.sync()

    async def has_room(self) -> None:
        await self._index.has_room()

    async def wrote(
        self,
        ids: Sequence[str],
        features: NDArray[np.float64],
        documents: Sequence[Document],
        sizes: Sequence[int],  # noqa: ARG002 - it is not long: as many as were sent together
        done: Upserted,
    ) -> None:
        if done.changed:
            places = [Position(done.version, arm_id) for arm_id in ids]
            self._index.put(places, features, documents, done.revisions, done.came_ms)
            self._index.count(done.added)

    async def removed(self, ids: Sequence[str], done: Deleted) -> None:
        self._index.remove(ids)
        self._index.count(-len(done.deleted))

    async def sync(self) -> None:
        index = self._index
        followed = await self._store.look(index.uid)
        index.saw(followed)
        if followed.version < index.version:  # the store has lost writes
            index.clear()
            index.is_behind = True
        if followed.version == index.version and not index.is_behind:
            return
        after, since = followed.position, Position(index.version, LAST_ARM)
        if not index.is_behind:
            after = max(after, since)
        most = index.most_overlaid
        changes = await self._store.changes(index.uid, after, most + 1, newest=followed.version)
        index.is_behind = len(changes) > most
        if not index.is_behind:
            await self._take(changes)
        index.version = followed.version

    async def page(self, after: str | None, limit: int) -> FoundArms:
        position = Position() if after is None else _position(after)
        arms: list[StoredArm] = []
        places: list[Position] = []
        while len(arms) < limit:
            changes = await self._store.changes(self._index.uid, position, limit)
            read = await self._store.read(self._index.uid, [change.arm for change in changes])
            for change, arm in zip(changes, read, strict=True):
                if arm is not None:
                    arms.append(arm)
                    places.append(change)
            if len(changes) < limit:
                break
            position = changes[-1]
        return self._found_arms(arms[:limit], places[:limit])

    async def sample(self, seed: int, limit: int) -> FoundArms:
        return self._found_arms(await self._drawn(seed, limit))

    async def _drawn(self, seed: int, limit: int) -> Sequence[StoredArm]:
        """Draw arms by places of the order of changes. Arms deleted a moment ago may be among these: more
        places than ``limit`` are looked at while too few arms are found.
        """
        noted = await self._store.noted(self._index.uid)
        rng, arms = np.random.default_rng(seed), dict[str, StoredArm]()
        wanted = min(limit, noted)
        for _ in range(TRIES):
            ranks = rng.choice(noted, wanted, replace=False).tolist() if wanted else []
            for start in range(0, wanted, self._taken_together):
                await yield_to_others()
                ids = await self._store.at_ranks(self._index.uid, ranks[start : start + self._taken_together])
                read = await self._store.read(self._index.uid, ids)
                arms |= {arm.id: arm for arm in read if arm is not None}
            if len(arms) >= wanted:
                break
        return list(arms.values())[:limit]

    async def find(self, ids: Collection[str]) -> FoundArms:
        return self._found_arms([arm for arm in await self._store.read(self._index.uid, list(ids)) if arm])

    async def sampled(self) -> Snapshot:
        """At most ``SAMPLED`` arms, and as many numbers as are looked at of them."""
        limit = max(1, min(SAMPLED, SAMPLED_NUMBERS // self._index.dim))
        drawn = await self._drawn(SAMPLE_SEED, limit)
        return await REQUESTS.run(partial(ProposedSnapshot.of_stored, self._index.dim, drawn))

    async def at(self, arm_id: str, revision: int) -> Vector | None:  # noqa: ARG002 - nothing is at hand
        return None

    async def dropped(self) -> None:
        engine, collection = self._index.engine, self._index.followed.collection
        if engine is not None and collection:
            with suppress(Unavailable):  # what is left is swept later
                await engine.drop(collection)

    def _found_arms(self, arms: Sequence[StoredArm], places: Sequence[Position] = ()) -> FoundArms:
        features = np.array([bytes_to_vector(arm.features) for arm in arms]).reshape(-1, self._index.dim)
        ids, revisions = [arm.id for arm in arms], [arm.revision for arm in arms]
        return FoundArms(ids, features, revisions, [f"{version} {arm}" for version, arm in places])

    async def _take(self, changes: Sequence[Position]) -> None:
        """Put the present state of changed arms into the overlay."""
        for start in range(0, len(changes), self._taken_together):
            await yield_to_others()
            batch = changes[start : start + self._taken_together]
            read = await self._store.read(self._index.uid, [change.arm for change in batch])
            stored = [(change, arm) for change, arm in zip(batch, read, strict=True) if arm is not None]
            self._index.remove([change.arm for change, arm in zip(batch, read, strict=True) if arm is None])
            if stored:
                self._index.put(
                    [change for change, _ in stored],
                    np.array([bytes_to_vector(arm.features) for _, arm in stored]),
                    [attributes_of(arm.document) for _, arm in stored],
                    [arm.revision for _, arm in stored],
                    [arm.came_ms for _, arm in stored],
                )


def _position(cursor: str) -> Position:
    version, _, arm_id = cursor.partition(" ")
    if not version.isdecimal() or len(version) > 15 or not arm_id:
        raise foreign()
    return Position(int(version), arm_id)
