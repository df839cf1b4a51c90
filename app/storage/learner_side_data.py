"""Records of learners besides their states on Redis, and the erasure of these records."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from app.storage import redis_keys as keys
from app.storage.decision_rows import Names, erase_all_rows, erase_named_rows, erase_rows
from app.storage.part import RedisPart, check_positive
from app.storage.registry import drop_states
from app.storage.types import Knew, entry_order
from app.storage.types.decisions import LearnerId

_STEP = 1_000

Goes = Callable[[bytes | None], bool]


class LearnerSideData(RedisPart):
    """Forgetting is an entry of the reward log: the fold of the entry drops the state, ``erase`` all else."""

    async def touch(self, learner: LearnerId, *, expires_ms: int) -> None:
        """The learner is not idle before then. Never makes the time shorter."""
        await self._redis.command(
            "ZADD", keys.idle(self._partition(learner)), "GT", expires_ms, learner.member
        )

    async def append_forget(self, learner: LearnerId, *, payload: bytes, now_ms: int, ttl_ms: int) -> str:
        """Append the entry which forgets the learner, and return its id.

        In the same step all rewards of earlier decisions are refused: for ``ttl_ms`` at least, and until the
        store refuses all rewards of this age (``drop_expired``). The learner is no longer idle, and is listed
        for ``erase``. Idempotent by ``now_ms``: a repeated call returns the id of the first entry.
        """
        return await self._forget("append_forget", learner, payload, now_ms, ttl_ms) or ""

    async def expire(self, learner: LearnerId, *, payload: bytes, now_ms: int, ttl_ms: int) -> str | None:
        """As ``append_forget`` if the learner is idle since before ``now_ms``, else None without effect."""
        return await self._forget("expire", learner, payload, now_ms, ttl_ms)

    async def erase(
        self, learner: LearnerId, entry_id: str, *, decision_knew: Knew, event_knew: Knew
    ) -> bool:
        """Remove log entries up to ``entry_id``, dead letters, rows, waiting decisions, choices for events.

        ``entry_id`` names the entry which forgot the learner. Decisions made with knowledge of the entry
        stay: the learner may have come back before the end of the erasure, and several processes may erase at
        the same time. ``decision_knew`` reads the record of a waiting decision, ``event_knew`` the record of
        a choice for an event. In steps. False, and nothing is done, while the entry is not folded.

        A few round trips per thousand entries of the partition's log, waiting decisions, or events.
        """
        partition, number = self._partition(learner), entry_order(entry_id)[1]
        if not await self._erase_entries(partition, learner, entry_id):
            return False
        await self._erase_dead_letters(partition, learner, entry_id)
        older_decision, older_event = (_older_than(number, knew) for knew in (decision_knew, event_knew))
        await self._erase_decisions(partition, f"{learner.member}/*", older_decision)
        await self._erase_events(partition, learner, older_event)
        await erase_rows(self._redis, partition, learner, entry_id)
        await self._redis.script("erased", [keys.erase(partition)], [learner.member, entry_id])
        return True

    async def erase_visitor(
        self, learner: LearnerId, visitor: str, *, row_names: Names, event_names: Names
    ) -> None:
        """Remove a visitor's rows, choices for events and exposures, of one learner.

        ``row_names`` reads the record of a row, ``event_names`` the record of a choice. Safe to repeat.

        Reads all rows and events of the learner, some round trips per thousand of them.
        """
        partition = self._partition(learner)

        def goes(record: bytes | None) -> bool:
            return record is not None and event_names(record)

        await self._erase_events(partition, learner, goes)
        await erase_named_rows(self._redis, partition, learner, row_names)
        key = LearnerId(learner.bandit_uid, visitor)
        await self._redis.command("UNLINK", keys.exposures(self._partition(key), key))

    async def erase_bandit(self, uid: str) -> None:
        """Remove all records of all learners of a deleted bandit, under any key.

        In steps; ``RegistryStore.deletions`` names the bandit until all is gone. Costs a scan of all keys of
        the store, and of the logs of all partitions.

        Some round trips per partition, and one per thousand entries, members and keys of the store.
        """
        everybody = LearnerId(uid, "")
        for partition in range(self.partitions):
            await drop_states(self._redis, partition, uid)
            await self._erase_decisions(partition, f"{uid}/*")
            await self._erase_members("ZSCAN", "ZREM", keys.idle(partition), f"{uid}/*")
            await self._erase_members("HSCAN", "HDEL", keys.erase(partition), f"{uid}/*")
            await self._erase_members("ZSCAN", "ZREM", keys.forgotten_until(partition), f"{uid}:*")
            for end in await self._redis.command("ZRANGE", keys.seen_ends(partition), 0, -1):
                dedupe_keys = keys.seen_until(partition, int(end))
                await self._erase_members("HSCAN", "HDEL", dedupe_keys, keys.seen_pattern(uid))
            await erase_all_rows(self._redis, partition, uid)
            await self._erase_entries(partition, everybody, "+")
            await self._erase_dead_letters(partition, everybody, "+")
        await self._erase_keys(uid)
        await self._redis.command("HDEL", keys.DELETED, uid)

    async def _forget(
        self, script: str, learner: LearnerId, payload: bytes, now_ms: int, ttl_ms: int
    ) -> str | None:
        check_positive("ttl_ms", ttl_ms)
        partition = self._partition(learner)
        names = [keys.log(partition), keys.watermark(partition), keys.forgotten(partition, learner)]
        names += [keys.erase(partition), keys.idle(partition)]
        names += [keys.forgotten_until(partition), keys.exposures(partition, learner)]
        entry_id = await self._redis.script(script, names, [*learner, payload, now_ms, ttl_ms])
        return entry_id.decode() if entry_id else None

    async def _erase_entries(self, partition: int, learner: LearnerId, last: str) -> bool:
        """Remove a learner's log entries up to ``last``; False, and nothing is done, while ``last`` is not
        folded. A learner without a name stands for all learners of the bandit, with folded entries and
        others.
        """
        names, after = [keys.log(partition), keys.watermark(partition)], b"0-0"
        while after:
            after = await self._redis.script("erase_log", names, [*learner, last, after, _STEP])
            if after is None:
                return False
        return True

    async def _erase_dead_letters(self, partition: int, learner: LearnerId, last: str) -> None:
        """Up to the entry ``last``. Without a name: of all learners of the bandit."""
        letters = await self._redis.command("XRANGE", keys.dead(partition), "-", last)
        uid, name = (word.encode() for word in learner)
        theirs = [id_ for id_, f in letters if f.get(b"b") == uid and name in (b"", f.get(b"l"))]
        if theirs:
            await self._redis.command("XDEL", keys.dead(partition), *theirs)

    async def _erase_decisions(self, partition: int, pattern: str, goes: Goes | None = None) -> None:
        """Remove the waiting decisions whose members match the pattern: all, or those with records named
        by ``goes``.
        """
        names = keys.of_partition(partition, keys.decisions, keys.due)
        async for members in self._redis.scan_members("HSCAN", names[0], pattern):
            gone = members
            if goes is not None:
                records = await self._redis.command("HMGET", names[0], *members)
                gone = [member for member, record in zip(members, records, strict=True) if goes(record)]
            if gone:
                await self._redis.transaction([("HDEL", names[0], *gone), ("ZREM", names[1], *gone)])

    async def _erase_members(self, scan: str, remove: str, key: str, pattern: str) -> None:
        async for members in self._redis.scan_members(scan, key, pattern):
            await self._redis.command(remove, key, *members)

    async def _erase_events(self, partition: int, learner: LearnerId, goes: Goes) -> None:
        """Remove the choices for events named by ``goes``."""
        async for events in self._redis.scan_members("ZSCAN", keys.events(partition, learner), "*"):
            names = [keys.event(partition, learner, event.decode()) for event in events]
            values = await self._redis.command("MGET", *names)
            gone = [index for index, value in enumerate(values) if goes(value)]
            if gone:
                arguments = [argument for index in gone for argument in (events[index], values[index] or b"")]
                keys_of_events = [keys.events(partition, learner), *(names[index] for index in gone)]
                await self._redis.script("erase_events", keys_of_events, arguments)

    async def _erase_keys(self, uid: str) -> None:
        """Remove every key named after the bandit or one of its learners."""
        is_theirs = re.compile(keys.bandit_regex(uid))
        async for result in self._redis.scan_keys(keys.bandit_pattern(uid)):
            theirs = [key for key in map(bytes.decode, result) if is_theirs.fullmatch(key)]
            await asyncio.gather(*(self._redis.command("UNLINK", key) for key in theirs))


def _older_than(number: int, knew: Knew) -> Goes:
    """Make a test of a decision's record: was the decision made without knowledge of the entry ``number``?
    Yes without a record.
    """

    def is_older(record: bytes | None) -> bool:
        newest_known = None if record is None else knew(record)
        return newest_known is None or newest_known < number

    return is_older
