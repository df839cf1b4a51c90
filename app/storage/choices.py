"""What choosing remembers of learners on Redis: choices made for events, and slots of warm-ups."""

from __future__ import annotations

from app.storage import redis_keys as keys
from app.storage.part import RedisPart, check_positive
from app.storage.redis_client import Argument
from app.storage.types.decisions import LearnerId


class Choices(RedisPart):
    """An event of a learner has one value, written once; it goes when the learner is erased.

    The slots 0, 1, 2 ... of a learner's warm-up are taken once each; they go when the learner is forgotten.
    """

    async def put_event(self, learner: LearnerId, event: str, value: bytes, *, ttl_ms: int) -> bytes:
        """Store ``value`` for ``ttl_ms`` unless the event has one; return the one that it has now."""
        check_positive("ttl_ms", ttl_ms)
        partition = self._partition(learner)
        names = [keys.event(partition, learner, event), keys.events(partition, learner)]
        names.append(keys.ledger(partition))
        arguments: list[Argument] = [event, value, ttl_ms, self._quota.of("events", partition)]
        answer: bytes | int = await self._redis.script("put_event", names, arguments)
        # The event was answered before: whoever asks again gets the same choice.
        if isinstance(answer, bytes):
            return answer
        self._quota.taken("events", partition, answer)
        return value

    async def get_event(self, learner: LearnerId, event: str) -> bytes | None:
        key = keys.event(self._partition(learner), learner, event)
        current: bytes | None = await self._redis.command("GET", key)
        return current

    async def take_warm_up_slots(
        self, learner: LearnerId, *, count: int, most: int, claim: str, ttl_ms: int
    ) -> int:
        """Take the next ``count`` slots; return the first of them, at least ``most`` if all are taken.

        The same ``claim`` gets the same slots: with one that is not empty the call is idempotent. All slots
        of the learner are free again ``ttl_ms`` after the last call that took some.
        """
        check_positive("count", count)
        check_positive("ttl_ms", ttl_ms)
        partition = self._partition(learner)
        names = [keys.warm_up_slots(partition, learner), keys.ledger(partition)]
        arguments: list[Argument] = [count, most, claim, ttl_ms, self._quota.of("turns", partition)]
        first, *held = await self._redis.script("take_warm_up_slots", names, arguments)
        # Negative: there was no room. ``taken`` raises then.
        if first < 0 or held:
            self._quota.taken("turns", partition, *held or [0])
        return int(first)

    async def next_warm_up_slot(self, learner: LearnerId) -> int:
        """The slot that ``take_warm_up_slots`` would take next without a claim; none is taken."""
        key = keys.warm_up_slots(self._partition(learner), learner)
        taken: bytes | None = await self._redis.command("HGET", key, "taken")
        return int(taken or 0)
