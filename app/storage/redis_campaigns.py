"""Campaigns on Redis: a record, a list of events and a snapshot under one hash tag."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from app.storage import redis_keys as keys
from app.storage.protocol import StoredCampaign
from app.storage.redis_part import UID_LENGTH, RedisPart


class RedisCampaigns(RedisPart):
    """Implements ``protocol.CampaignStore``."""

    async def create_campaign(self, kind: str, name: str, record: bytes) -> bytes:
        """Two round trips. The name is listed first, with the uid: a crash in between leaves a listed name
        that ``campaigns`` passes over, for no record has its uid, and never a campaign that nobody finds.
        """
        current: bytes
        await self._redis.command("SADD", keys.campaigns(kind), _listed(name, record))
        key = keys.campaign_record(kind, name)
        _, current = await self._redis.transaction([("SETNX", key, record), ("GET", key)])
        if current[:UID_LENGTH] != record[:UID_LENGTH]:
            await self._redis.command("SREM", keys.campaigns(kind), _listed(name, record))
        return current

    async def campaigns(self, kind: str) -> Sequence[str]:
        """A round trip, and one for each name."""
        listed = [item.decode() for item in await self._redis.command("SMEMBERS", keys.campaigns(kind))]
        pairs = [(name, uid) for name, _, uid in (item.partition(" ") for item in listed)]
        uids = await asyncio.gather(
            *(
                self._redis.command("GETRANGE", keys.campaign_record(kind, name), 0, UID_LENGTH - 1)
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
        """Two round trips. A crash in between leaves a listed name that is passed over, as above."""
        names = [
            keys.campaign_record(kind, name),
            keys.campaign_events(kind, name),
            keys.campaign_snapshot(kind, name),
        ]
        record, _ = await self._redis.transaction([("GET", names[0]), ("UNLINK", *names)])
        if record is None:
            return False
        await self._redis.command("SREM", keys.campaigns(kind), _listed(name, record))
        return True


def _listed(name: str, record: bytes) -> bytes:
    return name.encode("ascii") + b" " + record[:UID_LENGTH]
