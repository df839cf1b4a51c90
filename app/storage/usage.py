"""How much is held of what requests leave in the store, on Redis: a ledger for each partition."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from app.storage import redis_keys as keys
from app.storage.part import RedisPart
from app.storage.types import Kind

_EXPIRING: Sequence[Kind] = ("events", "turns", "activations", "dedupe", "log", "repeats")


class RedisUsage(RedisPart):
    """Implements ``protocol.Usage``."""

    @property
    def bounds(self) -> Mapping[Kind, int]:
        return self._quota.bounds

    async def read(self) -> Mapping[Kind, int]:
        """One round trip for each partition and one for campaigns, side by side."""
        campaigns, *result = await asyncio.gather(
            self._redis.command("HGET", keys.CAMPAIGN_BYTES, "all"),
            *map(self._held_by, range(self.partitions)),
        )
        columns = zip(*result, strict=True)
        self._quota.seen(dict(zip(("waiting", *_EXPIRING), map(list, columns), strict=True)))
        return {**self._quota.total, "campaigns": int(campaigns or 0)}

    async def _held_by(self, partition: int) -> Sequence[int]:
        names = keys.of_partition(partition, keys.ledger, keys.decisions)
        held: Sequence[int] = await self._redis.script("usage", names, list(_EXPIRING))
        return held
