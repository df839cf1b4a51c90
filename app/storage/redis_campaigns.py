"""The part of ``RedisStore`` that keeps campaigns: a record, a list of events, a snapshot under one tag."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from app.storage import redis_keys as keys
from app.storage.protocol import StoredCampaign
from app.storage.redis_client import RedisClient

_UID = 16


class RedisCampaigns:
    """See ``app.storage.protocol.Store``."""

    _redis: RedisClient

    async def create_campaign(self, kind: str, name: str, record: bytes) -> bytes:
        """Two round trips. The name is listed first, with the uid: a crash in between leaves a word that is
        passed over, for no record has its uid, and never a campaign that nobody finds.
        """
        standing: bytes
        await self._redis.command("SADD", keys.campaigns(kind), _word(name, record))
        key = keys.campaign_record(kind, name)
        _, standing = await self._redis.transaction([("SETNX", key, record), ("GET", key)])
        if standing[:_UID] != record[:_UID]:
            await self._redis.command("SREM", keys.campaigns(kind), _word(name, record))
        return standing

    async def campaigns(self, kind: str) -> Sequence[str]:
        """A round trip, and one for each name."""
        words = [word.decode() for word in await self._redis.command("SMEMBERS", keys.campaigns(kind))]
        pairs = [(name, uid) for name, _, uid in (word.partition(" ") for word in words)]
        uids = await asyncio.gather(
            *(
                self._redis.command("GETRANGE", keys.campaign_record(kind, name), 0, _UID - 1)
                for name, _ in pairs
            )
        )
        return sorted(name for (name, uid), stored in zip(pairs, uids, strict=True) if stored.decode() == uid)

    async def read_campaign(
        self, kind: str, name: str, *, uid: str, position: int, count: int
    ) -> StoredCampaign | None:
        names = [
            keys.campaign_record(kind, name),
            keys.campaign_events(kind, name),
            keys.campaign_snapshot(kind, name),
        ]
        found = await self._redis.script("read_campaign", names, [uid, position, count])
        if found is None:
            return None
        record, position, state, events = found
        return StoredCampaign(record, position, state or None, events)

    async def append_event(
        self, kind: str, name: str, *, uid: str, position: int, event: bytes
    ) -> Literal["appended", "overtaken", "missing"]:
        names = [keys.campaign_record(kind, name), keys.campaign_events(kind, name)]
        outcome: Literal["appended", "overtaken", "missing"]
        outcome = (await self._redis.script("append_event", names, [uid, position, event])).decode()
        return outcome

    async def save_snapshot(self, kind: str, name: str, *, uid: str, position: int, state: bytes) -> None:
        names = [keys.campaign_record(kind, name), keys.campaign_snapshot(kind, name)]
        await self._redis.script("save_snapshot", names, [uid, position, state])

    async def delete_campaign(self, kind: str, name: str) -> bool:
        """Two round trips. A crash in between leaves a word that is passed over, as above."""
        names = [
            keys.campaign_record(kind, name),
            keys.campaign_events(kind, name),
            keys.campaign_snapshot(kind, name),
        ]
        record, _ = await self._redis.transaction([("GET", names[0]), ("UNLINK", *names)])
        if record is None:
            return False
        await self._redis.command("SREM", keys.campaigns(kind), _word(name, record))
        return True


def _word(name: str, record: bytes) -> bytes:
    return name.encode("ascii") + b" " + record[:_UID]
