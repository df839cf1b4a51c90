"""Event logs on Redis: a record, a list of events and a snapshot under one hash tag.

What a plug-in stores: campaigns, for example. Kinds are its prefixes of names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from app.storage import redis_keys as keys
from app.storage.memory import Level
from app.storage.part import RedisPart
from app.storage.types import UID_LENGTH, StoredEventLog


class EventLogs(RedisPart):
    """Event logs by kind and name. A record begins with a uid of 16 characters.

    ``kind`` says whose logs they are, such as "slates": lower-case letters and hyphens, the same forever.
    A reader folds the events of a log into a state; a snapshot keeps the fold short. A record never
    changes. Without room for more (``StoreMemory``) a new log or event raises ``QuotaReached``, and changes
    nothing; a snapshot is then not saved. Every method raises ``Unavailable``
    when the store does not answer; a call may then have taken effect.
    """

    async def create(self, kind: str, name: str, record: bytes) -> bytes:
        """Store ``record`` if the name is free; return the name's record after the call.

        Three round trips. The name is listed first, with the uid: a crash then leaves a listed name without a
        record, which ``names`` passes over, and never an unlisted log.
        """
        key = keys.event_log(kind, name)[0]
        current: bytes | None = await self._redis.command("GET", key)
        if current:
            return current
        self._memory.check_kept(Level.NEW, "new campaigns")
        await self._redis.command("SADD", keys.event_logs(kind), _listed(name, record))
        _, current_record = await self._redis.transaction([("SETNX", key, record), ("GET", key)])
        if current_record[:UID_LENGTH] != record[:UID_LENGTH]:
            await self._redis.command("SREM", keys.event_logs(kind), _listed(name, record))
        return bytes(current_record)

    async def names(self, kind: str) -> Sequence[str]:
        """Names of all logs of a kind, ascending. Not a snapshot: each was there at some moment.

        A round trip, and one for each name.
        """
        listed = [item.decode() for item in await self._redis.command("SMEMBERS", keys.event_logs(kind))]
        pairs = [(name, uid) for name, _, uid in (item.partition(" ") for item in listed)]
        uids = await asyncio.gather(
            *(
                self._redis.command("GETRANGE", keys.event_log(kind, name)[0], 0, UID_LENGTH - 1)
                for name, _ in pairs
            )
        )
        return sorted(name for (name, uid), stored in zip(pairs, uids, strict=True) if stored.decode() == uid)

    async def read(
        self, kind: str, name: str, *, uid: str, position: int, count: int
    ) -> StoredEventLog | None:
        """At most ``count`` events: from ``position`` on if its uid is ``uid``, else from its snapshot.

        None when there is no such log.
        """
        result = await self._redis.script(
            "read_event_log", keys.event_log(kind, name), [uid, position, count]
        )
        if result is None:
            return None
        record, position, state, events = result
        return StoredEventLog(record, position, state or None, events)

    async def append(
        self, kind: str, name: str, *, uid: str, position: int, event: bytes
    ) -> Literal["appended", "overtaken", "missing"]:
        """Compare and append: only if there are exactly ``position`` events, else "overtaken".

        After a lost reply "overtaken" may mean the caller's own event: read the log again.
        """
        self._memory.check_kept(Level.NEW, "results of campaigns")
        names = keys.event_log(kind, name)[:2]
        answer = await self._redis.script("append_event", names, [uid, position, event])
        outcome: Literal["appended", "overtaken", "missing"] = answer.decode()
        return outcome

    async def save_snapshot(self, kind: str, name: str, *, uid: str, position: int, state: bytes) -> None:
        """Keep the state after ``position`` events, unless a newer one is kept or the log is gone."""
        if self._memory.is_reached(Level.NEW):
            return
        await self._redis.script("save_snapshot", keys.event_log(kind, name), [uid, position, state])

    async def delete(self, kind: str, name: str) -> bool:
        """Remove the log with its events; False for a missing log.

        Two round trips. A crash in between leaves a listed name without a record, as in ``create``.
        """
        names = keys.event_log(kind, name)
        record, _ = await self._redis.transaction([("GET", names[0]), ("UNLINK", *names)])
        if record is None:
            return False
        await self._redis.command("SREM", keys.event_logs(kind), _listed(name, record))
        return True


def _listed(name: str, record: bytes) -> bytes:
    return name.encode("ascii") + b" " + record[:UID_LENGTH]
