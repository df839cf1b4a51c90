"""The arms of catalogues on Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from app.platform.errors import NotFound, Unavailable
from app.storage import redis_keys as keys
from app.storage.memory import Level
from app.storage.part import RedisPart, check_positive
from app.storage.redis_client import Argument
from app.storage.types import ArmChanges, ArmWrite, Deleted, StoredArm, StoredArms, Upserted

_SCAN_BATCH = 1_000
_BULK_BYTES = 1 << 16
TOGETHER = 1_000  # catalogues that are asked for in one call: two milliseconds


class ReductionUnknown(Unavailable):
    """The writer of arms has to read the basis first. No client sees this error, unless the store fails."""


class ArmStore(RedisPart):
    """Arms by the uid of their catalogue. Writing to a deleted catalogue raises NotFound.

    ``changes_kept``: so many arms at most are in the log of changes of a catalogue.
    """

    changes_kept = keys.CHANGES_KEPT

    async def upsert(
        self,
        uid: str,
        arms: Sequence[ArmWrite],
        *,
        keep_ms: int,
        keeps_changes: bool = False,
        knows_reduction: bool = True,
    ) -> Upserted:
        """Insert or replace arms in the given order: of several arms with one id the last one stays.

        ``keeps_changes``: no change is dropped from the log of changes, see ``FollowedArms``.
        ``knows_reduction``: the writer knows the reduction, if one was fitted (``fit``). A writer without
        this knowledge writes nothing: raises ReductionUnknown.

        Replaced features stay readable by revision for ``keep_ms``. A call without a change makes no new
        version.
        """
        check_positive("keep_ms", keep_ms)
        self._memory.check(Level.NEW, "arms")
        arguments: list[Argument] = [keep_ms, self._changes_bound(keeps_changes), int(knows_reduction)]
        for arm in arms:
            arguments += (arm.id, arm.features, arm.document)
        names = [*keys.catalogue(uid), keys.retired(uid), keys.came(uid), *self._noted_in()]
        done = await self._redis.script("upsert_arms", names, arguments, bulk=True)
        if done == b"fitted":
            raise ReductionUnknown("the features of this catalogue were fitted meanwhile")
        version, changed, added, updated, revisions, came_ms = _of_a_catalogue(done)
        return Upserted(version, added, updated, revisions, came_ms, bool(changed))

    async def fit(
        self, uid: str, version: int, reduction: bytes, arms: Sequence[ArmWrite], *, keeps_changes: bool
    ) -> bool:
        """Store the reduction of a catalogue, and all its arms in reduced form, if the catalogue has no
        reduction.

        False: the catalogue has a reduction, was deleted, or has another version by now. From now on
        ``upsert`` refuses writers without knowledge of the reduction.
        """
        arguments: list[Argument] = [version, self._changes_bound(keeps_changes), reduction]
        for arm in arms:
            arguments += (arm.id, arm.features, arm.document)
        names = [*keys.catalogue(uid), *self._noted_in()]
        return bool(await self._redis.script("fit_arms", names, arguments, bulk=True))

    async def reduction(self, uid: str) -> bytes | None:
        """The reduction stored by ``fit``."""
        stored: bytes | None = await self._redis.command("HGET", keys.counters(uid), "fitted")
        return stored

    async def delete(
        self, uid: str, ids: Sequence[str], *, keep_ms: int, keeps_changes: bool = False
    ) -> Deleted:
        """Remove arms; their features stay readable by revision for ``keep_ms``."""
        check_positive("keep_ms", keep_ms)
        arguments: list[Argument] = [keep_ms, self._changes_bound(keeps_changes), *ids]
        names = [*keys.catalogue(uid), keys.retired(uid), keys.came(uid), *self._noted_in()]
        done = await self._redis.script("delete_arms", names, arguments)
        version, result = _of_a_catalogue(done)
        was_there = list(zip(ids, result, strict=True))
        return Deleted(
            version, [id_ for id_, was in was_there if was], [id_ for id_, was in was_there if not was]
        )

    async def take_times(self, uid: str, times: Mapping[str, int], *, keeps_changes: bool = False) -> None:
        """Let those arms that are there be as old as these times say, where they seem to be younger.

        ``times``: as ``came_ms``, by id; one that is 0 leaves it open when the arm came.
        """
        arms = list(times.items())
        for start in range(0, len(arms), _SCAN_BATCH):
            arguments: list[Argument] = [self._changes_bound(keeps_changes)]
            for arm, came_ms in arms[start : start + _SCAN_BATCH]:
                arguments += (arm, came_ms)
            names = [*keys.catalogue(uid), *self._noted_in()]
            _of_a_catalogue(await self._redis.script("take_times", names, arguments))

    async def revisions(self, uid: str, ids: Sequence[str]) -> Sequence[int]:
        """The revisions of these arms, 0 for a missing arm. One step in the store for each arm."""
        revisions = list[int]()
        for start in range(0, len(ids), _SCAN_BATCH):
            batch = ids[start : start + _SCAN_BATCH]
            revisions += await self._redis.script("arm_revisions", [keys.features(uid)], batch)
        return revisions

    async def named_until(self, uid: str, revisions: Sequence[int]) -> Sequence[int]:
        """The ms for which replaced or deleted features are still kept, by revision; negative: they are
        gone.
        """
        remaining_ms = list[int]()
        for start in range(0, len(revisions), _SCAN_BATCH):
            batch = revisions[start : start + _SCAN_BATCH]
            remaining_ms += await self._redis.script("named_until", [keys.retired(uid)], batch)
        return remaining_ms

    async def features_of(self, uid: str, arms: Sequence[tuple[str, int]]) -> Sequence[bytes | None]:
        """The features of arms at a revision each. Replaced and deleted features are included while they
        are kept.
        """
        features = list[bytes | None]()
        for start in range(0, len(arms), _SCAN_BATCH):
            batch = arms[start : start + _SCAN_BATCH]
            current = await self.read(uid, [arm for arm, _ in batch])
            retired = [keys.retired(uid, revision) for _, revision in batch]
            for (_, revision), arm, kept in zip(
                batch, current, await self._redis.command("MGET", *retired), strict=True
            ):
                features.append(arm.features if arm is not None and arm.revision == revision else kept)
        return features

    async def scan(self, uid: str) -> AsyncIterator[StoredArms]:
        """All arms, each once, in batches, in no order.

        Not a snapshot: an arm written meanwhile comes in its old or its new version, or not at all if the arm
        is new or deleted.

        One round trip per batch, the next one while a batch is used.

        Servers repeat some arms while a table shrinks: those are left out.
        """
        # A scan may give an arm twice, and never misses one with a place in the table throughout: Redis
        # promises no more.
        scanned: set[bytes] = set()
        # The next batch is on its way while the one before is decoded: loading a catalogue is bound by both
        # alike.
        coming = asyncio.create_task(self._scan_from(uid, 0))
        try:
            while True:
                cursor, batch = await coming
                if int(cursor):
                    coming = asyncio.create_task(self._scan_from(uid, cursor))
                for id_ in scanned & batch.keys():
                    del batch[id_]
                scanned.update(batch)
                if batch:
                    yield StoredArms([id_.decode() for id_ in batch], [*batch.values()])
                if not int(cursor):
                    return
        finally:
            # A caller who stops early would leave a task without an awaiter.
            coming.cancel()

    async def _scan_from(self, uid: str, cursor: bytes | int) -> Any:
        return await self._redis.bulk("HSCAN", keys.features(uid), cursor, "COUNT", _SCAN_BATCH)

    async def version(self, uid: str) -> int:
        """The number of calls with a change; 0 for a catalogue without arms."""
        return int(await self._redis.command("HGET", keys.counters(uid), "version") or 0)

    async def arms_version(self, uid: str) -> int | None:
        """The version from which on there have been these arms with these features.

        None: nothing was written since stores say so.
        """
        stored = await self._redis.command("HGET", keys.counters(uid), "arms_version")
        return None if stored is None else int(stored)

    async def has_documents(self, uid: str) -> bool:
        """Return whether any arm has a document."""
        return bool(await self._redis.command("HLEN", keys.documents(uid)))

    async def documents(
        self, uid: str, ids: Sequence[str], *, most_bytes: int | None = None
    ) -> Sequence[bytes]:
        """The documents of these arms, b"" where there is none.

        With ``most_bytes`` those of the first of them: one at least, and as many as take no more together.
        """
        if not ids:
            return []
        if most_bytes is None:
            values = await self._redis.command("HMGET", keys.documents(uid), *ids)
        else:
            is_large = most_bytes > _BULK_BYTES
            values = await self._redis.script(
                "documents", [keys.documents(uid)], [most_bytes, *ids], bulk=is_large
            )
        return [value or b"" for value in values]

    async def keep_behaviour(self, uid: str, items: Mapping[str, bytes], *, ttl_ms: int) -> None:
        """Keep the likes of arms by keys, opaque here, all of them for ``ttl_ms``, or for good after
        ``hold_behaviour``.
        """
        check_positive("ttl_ms", ttl_ms)
        if items:
            self._memory.check(Level.NEW, "likes of arms")
            pairs: list[Argument] = [part for pair in items.items() for part in pair]
            name = keys.behaviour(uid)
            await self._redis.transaction([("HSET", name, *pairs), ("PEXPIRE", name, ttl_ms)])

    async def drop_behaviour(self, uid: str) -> None:
        """Forget the likes kept for a catalogue that is not made."""
        await self._redis.command("UNLINK", keys.behaviour(uid))

    async def hold_behaviour(self, uid: str) -> None:
        """Keep the likes of arms for as long as the catalogue is there."""
        await self._redis.command("PERSIST", keys.behaviour(uid))

    async def behaviour(self, uid: str, ids: Sequence[str]) -> Sequence[bytes | None]:
        """The kept likes of these arms, in the order of ``ids``."""
        if not ids:
            return []
        likes: Sequence[bytes | None] = await self._redis.command("HMGET", keys.behaviour(uid), *ids)
        return likes

    async def retired_features(self, uid: str, revision: int) -> bytes | None:
        """Replaced or deleted features, while they are kept."""
        features: bytes | None = await self._redis.command("GET", keys.retired(uid, revision))
        return features

    async def changed(self, uid: str, since: int) -> ArmChanges:
        """The arms written after the version ``since``. A ``since`` above the current version is unknown."""
        return await self._changed([keys.counters(uid), keys.arm_changes(uid)], since)

    async def changed_catalogues(self, since: int) -> ArmChanges:
        """The uids of catalogues whose arms were written after so many writes, and how many there were.

        Which these are is known on one server.
        """
        if self._redis.is_cluster:
            return ArmChanges(since, None)
        return await self._changed(keys.WRITTEN_CATALOGUES, since)

    async def _changed(self, names: Sequence[str], since: int) -> ArmChanges:
        version, *listed = await self._redis.script("changed_arms", names, [since, self.changes_kept])
        # Nothing changed: the version alone is answered, as nearly always.
        if not listed:
            return ArmChanges(version)
        ids: Sequence[bytes] | None = listed[0]
        return ArmChanges(version, None if ids is None else [id_.decode() for id_ in ids])

    async def behind(self, versions: Mapping[str, int]) -> Sequence[str]:
        """The catalogues with another version than the given one. A read of one number in the store for each.

        On one server a round trip for each ``TOGETHER`` of them, on a cluster one for each.
        """
        uids = [*versions]
        if self._redis.is_cluster:
            newest = await asyncio.gather(*map(self.version, uids))
            return [uid for uid, version in zip(uids, newest, strict=True) if version != versions[uid]]
        behind: list[str] = []
        for start in range(0, len(uids), TOGETHER):
            together = uids[start : start + TOGETHER]
            names = [keys.counters(uid) for uid in together]
            places = await self._redis.script("catalogues_behind", names, [versions[uid] for uid in together])
            behind += (together[place - 1] for place in places)
        return behind

    async def read(self, uid: str, ids: Sequence[str]) -> Sequence[StoredArm | None]:
        """The current records of these arms; None for missing arms."""
        if not ids:
            return []
        values = await self._redis.bulk("HMGET", keys.features(uid), *ids)
        return [
            None if value is None else StoredArm.of(id_, value)
            for id_, value in zip(ids, values, strict=True)
        ]

    def _noted_in(self) -> Sequence[str]:
        """Keys of the list of written catalogues: every write of arms is noted there."""
        return () if self._redis.is_cluster else keys.WRITTEN_CATALOGUES

    def _changes_bound(self, keeps_changes: bool) -> int:
        return keys.ALL_CHANGES if keeps_changes else self.changes_kept


def _of_a_catalogue(answer: Any) -> Any:
    if answer is None:
        raise NotFound("the catalogue was deleted during the request")
    return answer
