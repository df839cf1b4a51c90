"""The part of ``RedisStore`` for logged decisions, idle learners, and what is left of forgotten ones."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from app.storage import redis_keys as keys
from app.storage.decision_log import Activated, Chores, DecisionId, DefaultWrite
from app.storage.learner_id import LearnerId
from app.storage.redis_client import RedisClient, Word

_ERASE_STEP = 1_000


class RedisDecisions:
    """See ``app.storage.decision_log.DecisionLog``; each call is one round trip unless it says otherwise."""

    _redis: RedisClient
    partitions: int

    async def log_decision(self, decision: DecisionId, record: bytes, *, due_ms: int) -> None:
        partition = decision.learner.partition(self.partitions)
        names = [keys.decisions(partition), keys.due(partition)]
        await self._redis.script("log_decision", names, [decision.member, record, due_ms])

    async def activate(
        self, decision: DecisionId, *, issued_ms: int, ttl_ms: int, record: bytes | None, due_ms: int
    ) -> Activated:
        partition = decision.learner.partition(self.partitions)
        names = [keys.active(partition, decision), keys.decisions(partition), keys.due(partition)]
        names.append(keys.forgotten(partition, decision.learner))
        words: list[Word] = [decision.member, ttl_ms, record or b"", due_ms, issued_ms]
        outcome: Activated = (await self._redis.script("activate", names, words)).decode()
        return outcome

    async def is_active(self, decision: DecisionId) -> bool:
        partition = decision.learner.partition(self.partitions)
        return bool(await self._redis.command("EXISTS", keys.active(partition, decision)))

    async def append_defaults(
        self, partition: int, decisions: Sequence[DecisionId], writes: Sequence[DefaultWrite]
    ) -> str | None:
        if not decisions:
            return None
        names = [
            keys.log(partition),
            keys.watermark(partition),
            keys.decisions(partition),
            keys.due(partition),
        ]
        words: list[Word] = [len(decisions), *(decision.member for decision in decisions)]
        for write in writes:
            learner = write.decision.learner
            names.append(keys.seen_first(partition, learner, write.first))
            names.append(keys.forgotten(partition, learner))
            words += (write.decision.member, *learner)
            words += (write.issued_ms, max(1, write.ttl_ms), write.payload)
        last: bytes | None = await self._redis.script("append_defaults", names, words)
        return last.decode() if last else None

    async def touch(self, learner: LearnerId, *, expires_ms: int) -> None:
        idle = keys.idle(learner.partition(self.partitions))
        await self._redis.command("ZADD", idle, "GT", expires_ms, learner.member)

    async def expire(self, learner: LearnerId, *, payload: bytes, now_ms: int, ttl_ms: int) -> str | None:
        entry: bytes | None = await self._redis.script(
            "expire",
            forget_keys(learner.partition(self.partitions), learner),
            [*learner, payload, now_ms, ttl_ms],
        )
        return entry.decode() if entry else None

    async def chores(self, partition: int, now_ms: int, count: int) -> Chores:
        names = [keys.decisions(partition), keys.due(partition), keys.idle(partition), keys.erase(partition)]
        due, records, idle, erase = await self._redis.script("chores", names, [now_ms, count])
        return Chores(
            decisions=[
                (DecisionId.of_member(member.decode()), record)
                for member, record in zip(due, records, strict=True)
            ],
            idle=[LearnerId.of_member(member.decode()) for member in idle],
            erase=_pairs(erase),
        )

    async def put_event(self, learner: LearnerId, event: str, value: bytes, *, ttl_ms: int) -> bytes:
        partition = learner.partition(self.partitions)
        now_ms = time.time_ns() // 1_000_000
        standing: bytes = await self._redis.script(
            "put_event",
            [keys.event(partition, learner, event), keys.events(partition, learner)],
            [event, value, now_ms, ttl_ms],
        )
        return standing

    async def get_event(self, learner: LearnerId, event: str) -> bytes | None:
        partition = learner.partition(self.partitions)
        standing: bytes | None = await self._redis.command("GET", keys.event(partition, learner, event))
        return standing

    async def erase(self, learner: LearnerId, entry_id: str) -> bool:
        """One round trip per thousand entries of the partition's log, logged decisions, or events."""
        partition = learner.partition(self.partitions)
        names, after = [keys.log(partition), keys.watermark(partition)], b"0-0"
        while after:
            after = await self._redis.script("erase_log", names, [*learner, entry_id, after, _ERASE_STEP])
            if after is None:
                return False
        dead = await self._redis.command("XRANGE", keys.dead(partition), "-", entry_id)
        owner = tuple(word.encode() for word in learner)
        mine = [id_ for id_, fields in dead if (fields.get(b"b"), fields.get(b"l")) == owner]
        if mine:
            await self._redis.command("XDEL", keys.dead(partition), *mine)
        await self.drop_decisions(partition, f"{learner.member}/*")
        while events := await self._redis.command("ZRANGE", keys.events(partition, learner), 0, _ERASE_STEP):
            await self._redis.command(
                "UNLINK", *(keys.event(partition, learner, event.decode()) for event in events)
            )
            await self._redis.command("ZREM", keys.events(partition, learner), *events)
        await self._redis.script("erased", [keys.erase(partition)], [learner.member, entry_id])
        return True

    async def drop_decisions(self, partition: int, pattern: str) -> None:
        """Remove logged decisions by the pattern of their members; a round trip or two per thousand."""
        cursor: bytes | int = 0
        while True:
            cursor, found = await self._redis.command(
                "HSCAN", keys.decisions(partition), cursor, "MATCH", pattern, "COUNT", _ERASE_STEP
            )
            if found:
                await self._redis.command("HDEL", keys.decisions(partition), *found)
                await self._redis.command("ZREM", keys.due(partition), *found)
            if not int(cursor):
                return


def forget_keys(partition: int, learner: LearnerId) -> list[str]:
    return [
        keys.log(partition),
        keys.watermark(partition),
        keys.forgotten(partition, learner),
        keys.erase(partition),
        keys.idle(partition),
    ]


def _pairs(flat: Sequence[bytes]) -> Mapping[LearnerId, str]:
    return {
        LearnerId.of_member(name.decode()): value.decode()
        for name, value in zip(flat[::2], flat[1::2], strict=True)
    }
