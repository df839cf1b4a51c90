"""The order of changes of arms, and its follower, for an engine with a copy of a catalogue.

Notation
    position    (version, arm) of a change: an arm stands at its last change alone, deleted ones too. Within a
                version arms stand in the order of the bytes of their ids.

The engine's copy is kept by one follower at a time of all processes, the holder of the lease. Every change up
to ``Followed.position`` is in ``Followed.collection`` of the engine, in its state of then or later.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.storage import redis_keys as keys
from app.storage.part import RedisPart
from app.storage.redis_client import Argument
from app.storage.types import Followed, Position, StoredArm

READ_TOGETHER = 2_000
SMALL = 100  # arms: other commands may wait behind so many, as they do behind those of a choice


class FollowedArms(RedisPart):
    """The order of changes by the uid of a catalogue, which is written with ``keeps_changes``: none is
    dropped.
    """

    async def changes(
        self, uid: str, after: Position, limit: int, *, newest: int | None = None
    ) -> Sequence[Position]:
        """The first ``limit`` changes after a position, up to the version ``newest``, in their order.

        Cost: O(log arms + limit).
        """
        arguments: list[Argument] = [*after, limit, "" if newest is None else newest]
        flat = await self._redis.script("changes_after", [keys.arm_changes(uid)], arguments, bulk=True)
        return [
            Position(int(version), arm.decode()) for arm, version in zip(flat[::2], flat[1::2], strict=True)
        ]

    async def at_ranks(self, uid: str, ranks: Sequence[int]) -> Sequence[str]:
        """The arms at these places of the order of changes, counted from 0; deleted ones are among them."""
        if not ranks:
            return []
        name = keys.arm_changes(uid)
        arms_by_rank = await self._redis.transaction([("ZRANGE", name, rank, rank) for rank in ranks])
        return [arm.decode() for arms in arms_by_rank for arm in arms]

    async def noted(self, uid: str) -> int:
        """The number of arms in the order of changes."""
        return int(await self._redis.command("ZCARD", keys.arm_changes(uid)))

    async def read(self, uid: str, ids: Sequence[str]) -> Sequence[StoredArm | None]:
        """The current records of these arms with their documents; None for missing arms.

        A round trip, and one moment, for each ``READ_TOGETHER`` arms.
        """
        result: list[StoredArm | None] = []
        for start in range(0, len(ids), READ_TOGETHER):
            batch = ids[start : start + READ_TOGETHER]
            # As one, so no arm has the features of one write and the document of another.
            names = [keys.features(uid), keys.documents(uid)]
            is_large = len(batch) > SMALL
            features, documents = await self._redis.script("read_arms", names, batch, bulk=is_large)
            result += [
                None if value is None else StoredArm.of(arm_id, value, document)
                for arm_id, value, document in zip(batch, features, documents, strict=True)
            ]
        return result

    async def look(self, uid: str) -> Followed:
        """Read the state of the copy, without taking the lease."""
        return await self.follow(uid, "", 1)

    async def follow(self, uid: str, owner: str, ttl_ms: int) -> Followed:
        """Read the state of the copy; take or renew the lease, unless another owner holds it."""
        names = [keys.counters(uid), keys.features(uid), keys.arm_changes(uid), keys.follower(uid)]
        answer = await self._redis.script("follow_arms", names, [owner, ttl_ms])
        ours, arms, pending, version, followed, arm, collection, quality = answer
        return Followed(
            version=int(version or 0),
            arms=arms,
            pending=pending,
            position=Position(int(followed or 0), (arm or b"").decode()),
            collection=(collection or b"").decode(),
            quality=quality or b"",
            is_ours=bool(ours),
        )

    async def advance(
        self, uid: str, owner: str, *, collection: str, before: Position, after: Position, quality: bytes
    ) -> bool:
        """The engine has everything up to ``after``.

        False: the lease was lost, and nothing is noted. The caller's writes after ``before`` may then have
        come after writes of a later follower, who therefore begins again at ``before`` in the same
        collection.
        """
        arguments: list[Argument] = [owner, collection, *before, *after, quality]
        names = [keys.counters(uid), keys.follower(uid)]
        return bool(await self._redis.script("advance_follower", names, arguments))

    async def leave(self, uid: str, owner: str) -> None:
        """Give the lease back, if ``owner`` holds it."""
        await self._redis.script("leave_arms", [keys.follower(uid)], [owner])

    async def forget(self, uid: str, deleted: Sequence[Position]) -> None:
        """Drop deleted arms from the order of changes, unless they changed since."""
        if deleted:
            arguments: list[Argument] = [part for version, arm in deleted for part in (arm, version)]
            names = [keys.features(uid), keys.arm_changes(uid)]
            await self._redis.script("forget_arms", names, arguments)
