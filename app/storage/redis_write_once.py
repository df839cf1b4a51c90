"""Values that are written once on Redis."""

from __future__ import annotations

from app.storage import redis_keys as keys
from app.storage.redis_client import Argument
from app.storage.redis_part import RedisPart, check_positive


class RedisWriteOnce(RedisPart):
    """Implements ``protocol.WriteOnce``."""

    async def put_once(self, partition: int | None, name: str, value: bytes, *, ttl_ms: int | None) -> bytes:
        if ttl_ms is not None:
            check_positive("ttl_ms", ttl_ms)
        args: list[Argument] = [value, "" if ttl_ms is None else ttl_ms]
        current: bytes = await self._redis.script("put_once", [keys.once(partition, name)], args)
        return current

    async def get_once(self, partition: int | None, name: str) -> bytes | None:
        current: bytes | None = await self._redis.command("GET", keys.once(partition, name))
        return current
