"""The order of changes of arms, and the follower of it, on Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.storage import redis_keys as keys
from app.storage.part import RedisPart, optional
from app.storage.redis_client import Argument
from app.storage.types import DescribedArm, Followed, Position

READ_TOGETHER = 2_000


class RedisFollowedArms(RedisPart):
    """Implements ``protocol.FollowedArms``."""

    async def changes(
        self, uid: str, after: Position, limit: int, *, newest: int | None = None
    ) -> Sequence[Position]:
        arguments: list[Argument] = [*after, limit, optional(newest)]
        flat = await self._redis.script("changes_after", [keys.arm_changes(uid)], arguments, bulk=True)
        return [
            Position(int(version), arm.decode()) for arm, version in zip(flat[::2], flat[1::2], strict=True)
        ]

    async def at_ranks(self, uid: str, ranks: Sequence[int]) -> Sequence[str]:
        if not ranks:
            return []
        name = keys.arm_changes(uid)
        found = await self._redis.transaction([("ZRANGE", name, rank, rank) for rank in ranks])
        return [arm.decode() for some in found for arm in some]

    async def noted(self, uid: str) -> int:
        return int(await self._redis.command("ZCARD", keys.arm_changes(uid)))

    async def read(self, uid: str, ids: Sequence[str]) -> Sequence[DescribedArm | None]:
        """A round trip for each ``READ_TOGETHER`` arms: those were there at one moment."""
        result: list[DescribedArm | None] = []
        for start in range(0, len(ids), READ_TOGETHER):
            some = ids[start : start + READ_TOGETHER]
            features, documents = await self._redis.transaction(
                [("HMGET", keys.features(uid), *some), ("HMGET", keys.documents(uid), *some)]
            )
            result += map(_described, some, features, documents)
        return result

    async def look(self, uid: str) -> Followed:
        return await self.follow(uid, "", 1)

    async def follow(self, uid: str, owner: str, ttl_ms: int) -> Followed:
        names = [keys.counters(uid), keys.features(uid), keys.arm_changes(uid), keys.follower(uid)]
        return _followed(await self._redis.script("follow_arms", names, [owner, ttl_ms]))

    async def advance(
        self, uid: str, owner: str, *, collection: str, before: Position, after: Position, quality: bytes
    ) -> bool:
        arguments: list[Argument] = [owner, collection, *before, *after, quality]
        names = [keys.counters(uid), keys.follower(uid)]
        return bool(await self._redis.script("advance_follower", names, arguments))

    async def leave(self, uid: str, owner: str) -> None:
        await self._redis.script("leave_arms", [keys.follower(uid)], [owner])

    async def forget(self, uid: str, deleted: Sequence[Position]) -> None:
        if deleted:
            arguments: list[Argument] = [part for version, arm in deleted for part in (arm, version)]
            names = [keys.features(uid), keys.arm_changes(uid)]
            await self._redis.script("forget_arms", names, arguments)


def _described(arm_id: str, value: bytes | None, document: bytes | None) -> DescribedArm | None:
    if value is None:
        return None
    return DescribedArm(arm_id, int.from_bytes(value[:8], "little"), value[8:], document or b"")


def _followed(answer: Any) -> Followed:
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
