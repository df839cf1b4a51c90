"""Leases of workers on Redis."""

from __future__ import annotations

from collections.abc import Sequence

from app.storage import redis_keys as keys
from app.storage.redis_part import RedisPart


class RedisLeases(RedisPart):
    """Implements ``protocol.WorkerLeases``."""

    async def join_workers(self, name: str, lease_ms: int) -> Sequence[str]:
        names = await self._redis.script("join_workers", [keys.WORKERS], [name, lease_ms])
        return [name.decode() for name in names]

    async def leave_workers(self, name: str) -> None:
        await self._redis.command("ZREM", keys.WORKERS, name)
