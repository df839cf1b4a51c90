"""What choosing remembers of learners on Redis: choices made for events."""

from __future__ import annotations

from app.storage import redis_keys as keys
from app.storage.memory import Level
from app.storage.part import RedisPart, check_positive
from app.storage.types.decisions import LearnerId


class Choices(RedisPart):
    """An event of a learner has one value, written once; it goes when the learner is erased."""

    async def put_event(self, learner: LearnerId, event: str, value: bytes, *, ttl_ms: int) -> bytes:
        """Store ``value`` for ``ttl_ms`` unless the event has one; return the one that it has now."""
        check_positive("ttl_ms", ttl_ms)
        self._memory.check(Level.NEW, "choices with an event_id")
        partition = self._partition(learner)
        names = [keys.event(partition, learner, event), keys.events(partition, learner)]
        # Of an event that was answered before, whoever asks again gets the same choice.
        current: bytes = await self._redis.script("put_event", names, [event, value, ttl_ms])
        return current

    async def get_event(self, learner: LearnerId, event: str) -> bytes | None:
        key = keys.event(self._partition(learner), learner, event)
        current: bytes | None = await self._redis.command("GET", key)
        return current
