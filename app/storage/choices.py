"""Choices made for events, which choosing remembers for each learner on Redis."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from app.storage import redis_keys as keys
from app.storage.memory import Level
from app.storage.part import RedisPart, check_positive
from app.storage.types.decisions import LearnerId


class Choices(RedisPart):
    """An event of a learner has one value, written once; the value goes when the learner is erased."""

    async def put_event(self, learner: LearnerId, event: str, value: bytes, *, ttl_ms: int) -> bytes:
        """Store ``value`` for ``ttl_ms`` unless the event has one; return the event's value after the
        call.
        """
        check_positive("ttl_ms", ttl_ms)
        self._memory.check(Level.NEW, "choices with an event_id")
        partition = self._partition(learner)
        names = [keys.event(partition, learner, event), keys.events(partition, learner)]
        # A caller who asks again with an answered event gets the same choice.
        current: bytes = await self._redis.script("put_event", names, [event, value, ttl_ms])
        return current

    async def get_event(self, learner: LearnerId, event: str) -> bytes | None:
        key = keys.event(self._partition(learner), learner, event)
        current: bytes | None = await self._redis.command("GET", key)
        return current

    async def get_events(self, events: Sequence[tuple[LearnerId, str]]) -> Sequence[bytes | None]:
        """The value of each of these events, None where there is none. A command a partition, all at once."""
        values: list[bytes | None] = [None] * len(events)
        places = defaultdict[int, list[int]](list)
        for index, (learner, _) in enumerate(events):
            places[self._partition(learner)].append(index)

        async def read(partition: int, places: Sequence[int]) -> None:
            names = [keys.event(partition, *events[index]) for index in places]
            for index, value in zip(places, await self._redis.bulk("MGET", *names), strict=True):
                values[index] = value

        await asyncio.gather(*(read(*part) for part in places.items()))
        return values
