"""The part of ``RedisStore`` for the registry of catalogues and bandits, and what is left of deleted ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from app.storage import redis_keys as keys
from app.storage.protocol import Registry
from app.storage.redis_client import RedisClient
from app.storage.redis_decisions import RedisDecisions


class RedisRegistry(RedisDecisions):
    """See ``app.storage.protocol.Store``."""

    _redis: RedisClient
    partitions: int

    async def registry(self) -> Registry:
        version, catalogues, bandits = await self._redis.transaction(
            [("GET", keys.REGISTRY_VERSION), ("HGETALL", keys.CATALOGUES), ("HGETALL", keys.BANDITS)]
        )
        return Registry(_named(catalogues), _named(bandits), int(version or 0))

    async def create_catalogue(self, name: str, record: bytes) -> bytes:
        names = [keys.CATALOGUES, keys.REGISTRY_VERSION]
        standing: bytes = await self._redis.script("create_catalogue", names, [name, record])
        return standing

    async def delete_catalogue(self, name: str, uid: str) -> Literal["deleted", "missing", "in_use"]:
        """Three round trips. The arms go even if the name is gone: an earlier call may have failed there."""
        outcome: Literal["deleted", "missing", "in_use"]
        names = [keys.CATALOGUES, keys.users(name), keys.REGISTRY_VERSION, keys.DELETED]
        outcome = (await self._redis.script("delete_catalogue", names, [name, uid])).decode()
        if outcome != "in_use":
            await self._drop_catalogue(uid)
        return outcome

    async def create_bandit(self, name: str, record: bytes, *, catalogue: str) -> bytes | None:
        names = [keys.CATALOGUES, keys.BANDITS, keys.users(catalogue), keys.REGISTRY_VERSION]
        standing: bytes | None = await self._redis.script("create_bandit", names, [catalogue, name, record])
        return standing

    async def delete_bandit(self, name: str, uid: str, *, catalogue: str) -> bool:
        """Two round trips and two per partition; the states go even if the name is gone, as above."""
        names = [keys.BANDITS, keys.users(catalogue), keys.REGISTRY_VERSION, keys.DELETED]
        outcome = await self._redis.script("delete_bandit", names, [name, uid])
        if outcome != b"in_use":
            await self._drop_bandit(uid)
        return bool(outcome == b"deleted")

    async def finish_deletions(self) -> int:
        """One round trip when there are none."""
        unfinished = await self._redis.command("HGETALL", keys.DELETED)
        for uid, kind in unfinished.items():
            drop = self._drop_bandit if kind == b"bandit" else self._drop_catalogue
            await drop(uid.decode())
        return len(unfinished)

    async def _drop_bandit(self, uid: str) -> None:
        for partition in range(self.partitions):
            names = [keys.deleted(partition), keys.states(partition, uid)]
            await self._redis.script("drop_bandit", names, [uid, keys.DELETED_KEPT_MS])
            await self.drop_decisions(partition, f"{uid}/*")
        await self._redis.command("HDEL", keys.DELETED, uid)

    async def _drop_catalogue(self, uid: str) -> None:
        await self._redis.script("drop_catalogue", catalogue_keys(uid)[:-1], [keys.DELETED_KEPT_MS])
        await self._redis.command("HDEL", keys.DELETED, uid)


def _named(records: Mapping[bytes, bytes]) -> dict[str, bytes]:
    return {name.decode(): record for name, record in records.items()}


def catalogue_keys(uid: str) -> list[str]:
    names = [keys.features(uid), keys.documents(uid), keys.counters(uid), keys.arm_changes(uid)]
    return [*names, keys.retired(uid)]
