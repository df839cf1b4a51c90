"""Event logs on Redis: a record, a list of events and a snapshot under one hash tag.

What a plug-in stores: campaigns, for example. Kinds are its prefixes of names.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Literal

from app.platform.errors import QuotaReached
from app.storage import redis_keys as keys
from app.storage.memory import Level
from app.storage.part import RedisPart
from app.storage.redis_client import Argument
from app.storage.space import campaigns_full
from app.storage.types import UID_LENGTH, StoredEventLog

_LEAST = 1_024  # bytes that a log takes besides its record
_CHUNK = 16_384  # bytes that are reserved at a time, so that few results need another round trip


class EventLogs(RedisPart):
    """Event logs by kind and name. A record begins with a uid of 16 characters.

    ``kind`` says whose logs they are, such as "slates": lower-case letters and hyphens, the same forever.
    Whoever reads a log folds its events into a state; a snapshot keeps that fold short. A record never
    changes. What would make all logs of all kinds together larger than SHORTLIST_MAX_CAMPAIGNS_MB raises
    ``QuotaReached``, and changes nothing; a snapshot is then not saved. Every method raises ``Unavailable``
    when the store does not answer; a call may then have taken effect.
    """

    async def create(self, kind: str, name: str, record: bytes) -> bytes:
        """Store ``record`` if the name is free; return the one that the name has now.

        Four round trips. Bytes are reserved first; a crash afterwards leaves them reserved. The name is
        listed next, with the uid: a crash then leaves a listed name that ``names`` passes over, for no
        record has its uid, and never a log that nobody finds.
        """
        key = keys.event_log(kind, name)[0]
        current: bytes | None = await self._redis.command("GET", key)
        if current:
            return current
        self._memory.check_kept(Level.NEW, "new campaigns")
        await self._reserve(kind, name, record[:UID_LENGTH].decode(), _LEAST + len(record))
        await self._redis.command("SADD", keys.event_logs(kind), _listed(name, record))
        _, standing = await self._redis.transaction([("SETNX", key, record), ("GET", key)])
        if standing[:UID_LENGTH] != record[:UID_LENGTH]:
            await self._redis.command("SREM", keys.event_logs(kind), _listed(name, record))
            await self._reserve(kind, name, record[:UID_LENGTH].decode(), 0)
        return bytes(standing)

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

        After a lost reply that may be by one's own call: read the log again.
        """
        self._memory.check_kept(Level.NEW, "results of campaigns")
        names, arguments = keys.event_log(kind, name), (uid, position, event)
        answer = await self._redis.script("append_event", names, [*arguments, 0])
        while isinstance(answer, int):
            reserved = await self._reserve(kind, name, uid, answer)
            answer = await self._redis.script("append_event", names, [*arguments, reserved])
        outcome: Literal["appended", "overtaken", "missing"] = answer.decode()
        return outcome

    async def save_snapshot(self, kind: str, name: str, *, uid: str, position: int, state: bytes) -> None:
        """Keep the state after ``position`` events, unless a newer one is kept or the log is gone.

        One round trip, or three when the log needs more space.
        """
        if self._memory.is_reached(Level.NEW):
            return
        names, arguments = keys.event_log(kind, name), (uid, position, state)
        needed = await self._redis.script("save_snapshot", names, [*arguments, 0])
        if needed > 1:
            with contextlib.suppress(QuotaReached):
                reserved = await self._reserve(kind, name, uid, needed)
                await self._redis.script("save_snapshot", names, [*arguments, reserved])

    async def delete(self, kind: str, name: str) -> bool:
        """Remove the log with its events; False when it was not there.

        Three round trips. A crash in between leaves a listed name that is passed over, as in ``create``.
        """
        names = keys.event_log(kind, name)
        record, _ = await self._redis.transaction([("GET", names[0]), ("UNLINK", *names)])
        if record is None:
            return False
        await self._redis.command("SREM", keys.event_logs(kind), _listed(name, record))
        await self._reserve(kind, name, record[:UID_LENGTH].decode(), 0)
        return True

    async def _reserve(self, kind: str, name: str, uid: str, needed: int) -> int:
        """Reserve for a log what it needs, and some more; 0: nothing any more. Raises QuotaReached."""
        reserved = -(-needed // _CHUNK) * _CHUNK
        arguments: list[Argument] = [f"{kind} {name} {uid}", reserved, self._quota.bounds["campaigns"]]
        if not await self._redis.script("reserve_event_log", [keys.EVENT_LOG_BYTES], arguments):
            raise campaigns_full()
        return reserved


def _listed(name: str, record: bytes) -> bytes:
    return name.encode("ascii") + b" " + record[:UID_LENGTH]
