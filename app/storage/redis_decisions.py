"""The part of ``RedisStore`` for logged decisions, idle learners, and what is left of forgotten ones."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from app.storage import redis_keys as keys
from app.storage.decision_log import Activated, Chores, DefaultWrite
from app.storage.redis_client import RedisClient, Word

_ERASE_STEP = 1_000


class RedisDecisions:
    """See ``app.storage.decision_log.DecisionLog``; each call is one round trip unless it says otherwise."""

    _redis: RedisClient

    async def log_decision(self, partition: int, member: str, record: bytes, *, due_ms: int) -> None:
        names = [keys.decisions(partition), keys.due(partition)]
        await self._redis.script("log_decision", names, [member, record, due_ms])

    async def activate(
        self, partition: int, member: str, *, issued_ms: int, ttl_ms: int, record: bytes | None, due_ms: int
    ) -> Activated:
        bandit_uid, learner, _ = member.split("/")
        names = [keys.active(partition, member), keys.decisions(partition), keys.due(partition)]
        names.append(keys.forgotten(partition, bandit_uid, learner))
        words: list[Word] = [member, ttl_ms, record or b"", due_ms, issued_ms]
        outcome: Activated = (await self._redis.script("activate", names, words)).decode()
        return outcome

    async def is_active(self, partition: int, member: str) -> bool:
        return bool(await self._redis.command("EXISTS", keys.active(partition, member)))

    async def append_defaults(
        self, partition: int, members: Sequence[str], writes: Sequence[DefaultWrite]
    ) -> str | None:
        if not members:
            return None
        names = [
            keys.log(partition),
            keys.watermark(partition),
            keys.decisions(partition),
            keys.due(partition),
        ]
        words: list[Word] = [len(members), *members]
        for write in writes:
            names.append(keys.seen_first(partition, write.bandit_uid, write.learner, write.first))
            names.append(keys.forgotten(partition, write.bandit_uid, write.learner))
            words += (write.member, write.bandit_uid, write.learner)
            words += (write.issued_ms, max(1, write.ttl_ms), write.payload)
        last: bytes | None = await self._redis.script("append_defaults", names, words)
        return last.decode() if last else None

    async def touch(self, partition: int, member: str, *, expires_ms: int) -> None:
        await self._redis.command("ZADD", keys.idle(partition), "GT", expires_ms, member)

    async def expire(
        self, partition: int, member: str, *, payload: bytes, now_ms: int, ttl_ms: int
    ) -> str | None:
        bandit_uid, _, learner = member.partition("/")
        entry: bytes | None = await self._redis.script(
            "expire",
            forget_keys(partition, bandit_uid, learner),
            [bandit_uid, learner, payload, now_ms, ttl_ms],
        )
        return entry.decode() if entry else None

    async def chores(self, partition: int, now_ms: int, count: int) -> Chores:
        names = [keys.decisions(partition), keys.due(partition), keys.idle(partition), keys.erase(partition)]
        due, records, idle, erase = await self._redis.script("chores", names, [now_ms, count])
        return Chores(
            decisions=[(member.decode(), record) for member, record in zip(due, records, strict=True)],
            idle=[member.decode() for member in idle],
            erase=_pairs(erase),
        )

    async def put_event(self, partition: int, member: str, event: str, value: bytes, *, ttl_ms: int) -> bytes:
        now_ms = time.time_ns() // 1_000_000
        standing: bytes = await self._redis.script(
            "put_event",
            [keys.event(partition, member, event), keys.events(partition, member)],
            [event, value, now_ms, ttl_ms],
        )
        return standing

    async def get_event(self, partition: int, member: str, event: str) -> bytes | None:
        standing: bytes | None = await self._redis.command("GET", keys.event(partition, member, event))
        return standing

    async def erase(self, partition: int, member: str, entry_id: str) -> bool:
        """One round trip per thousand entries of the partition's log, logged decisions, or events."""
        bandit_uid, _, learner = member.partition("/")
        names, after = [keys.log(partition), keys.watermark(partition)], b"0-0"
        while after:
            after = await self._redis.script(
                "erase_log", names, [bandit_uid, learner, entry_id, after, _ERASE_STEP]
            )
            if after is None:
                return False
        dead = await self._redis.command("XRANGE", keys.dead(partition), "-", entry_id)
        owner = (bandit_uid.encode(), learner.encode())
        mine = [id_ for id_, fields in dead if (fields.get(b"b"), fields.get(b"l")) == owner]
        if mine:
            await self._redis.command("XDEL", keys.dead(partition), *mine)
        await self.drop_decisions(partition, f"{member}/*")
        while events := await self._redis.command("ZRANGE", keys.events(partition, member), 0, _ERASE_STEP):
            await self._redis.command(
                "UNLINK", *(keys.event(partition, member, event.decode()) for event in events)
            )
            await self._redis.command("ZREM", keys.events(partition, member), *events)
        await self._redis.script("erased", [keys.erase(partition)], [member, entry_id])
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


def forget_keys(partition: int, bandit_uid: str, learner: str) -> list[str]:
    return [
        keys.log(partition),
        keys.watermark(partition),
        keys.forgotten(partition, bandit_uid, learner),
        keys.erase(partition),
        keys.idle(partition),
    ]


def _pairs(flat: Sequence[bytes]) -> Mapping[str, str]:
    return {name.decode(): value.decode() for name, value in zip(flat[::2], flat[1::2], strict=True)}
