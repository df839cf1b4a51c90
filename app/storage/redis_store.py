"""The store on Redis 6.2 or newer, or Valkey. Names of keys: ``redis_keys``; scripts: ``lua/``.

Every write is one script or one transaction, so it happens whole or not at all, and is safe to repeat:
that is what makes a lost reply harmless. Each call is one round trip unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from app.errors import Invalid, NotFound, StartupError
from app.storage import redis_keys as keys
from app.storage.protocol import (
    Appended,
    ArmWrite,
    DeadLetter,
    Deleted,
    LearnerId,
    LogEntry,
    RewardWrite,
    StoredArm,
    Upserted,
)
from app.storage.redis_campaigns import RedisCampaigns
from app.storage.redis_changes import RedisChanges, log_entry, stored_arm
from app.storage.redis_client import RedisClient, Word
from app.storage.redis_decisions import forget_keys
from app.storage.redis_registry import RedisRegistry, catalogue_keys

_SCAN_BATCH = 1_000


class RedisStore(RedisCampaigns, RedisChanges, RedisRegistry):
    """Implements ``app.storage.protocol.Store`` on one Redis server: redis://, rediss:// or unix://."""

    def __init__(
        self,
        url: str,
        *,
        partitions: int = 16,
        max_connections: int = 64,
        pool_timeout_s: float = 2.0,
        socket_timeout_s: float = 5.0,
    ) -> None:
        self.partitions = partitions
        self._redis = RedisClient(
            url,
            max_connections=max_connections,
            pool_timeout_s=pool_timeout_s,
            socket_timeout_s=socket_timeout_s,
        )

    def __repr__(self) -> str:
        return f"RedisStore({self._redis.address!r}, partitions={self.partitions})"

    async def open(self) -> None:
        """Connect and check the server; the first to open a store fixes its number of partitions for good."""
        await self._redis.check()
        fixed = await self._redis.script("put_once", [keys.PARTITIONS], [self.partitions, ""])
        if int(fixed) != self.partitions:
            raise StartupError(
                f"the store at {self._redis.address} has {int(fixed)} partitions for good: "
                f"it cannot be opened with {self.partitions}"
            )

    async def durability(self) -> str:
        """When writes reach the disk: "always", "everysec", "no", "off" (no append-only file), "unknown"."""
        return await self._redis.durability()

    async def ping(self) -> None:
        await self._redis.ping()

    async def close(self) -> None:
        await self._redis.close()

    # Catalogues ---------------------------------------------------------------------------------
    async def upsert_arms(self, uid: str, arms: Sequence[ArmWrite], *, keep_ms: int) -> Upserted:
        """In the given order: of several with one id the last stands. No change: no new version."""
        _positive("keep_ms", keep_ms)
        words: list[Word] = [keep_ms, keys.CHANGES_KEPT]
        for arm in arms:
            words += (arm.id, arm.features, arm.document)
        done = await self._redis.script("upsert_arms", catalogue_keys(uid), words, bulk=True)
        version, changed, added, updated, revisions = _of_a_catalogue(done)
        return Upserted(version, added, updated, revisions, bool(changed))

    async def delete_arms(self, uid: str, ids: Sequence[str], *, keep_ms: int) -> Deleted:
        _positive("keep_ms", keep_ms)
        words: list[Word] = [keep_ms, keys.CHANGES_KEPT, *ids]
        done = await self._redis.script("delete_arms", catalogue_keys(uid), words)
        version, found = _of_a_catalogue(done)
        there = list(zip(ids, found, strict=True))
        return Deleted(version, [id_ for id_, was in there if was], [id_ for id_, was in there if not was])

    async def scan_arms(self, uid: str) -> AsyncIterator[Sequence[StoredArm]]:
        """One round trip per batch. Each arm comes once, though servers repeat some while a table shrinks."""
        seen: set[bytes] = set()
        cursor: bytes | int = 0
        while True:
            cursor, batch = await self._redis.bulk("HSCAN", keys.features(uid), cursor, "COUNT", _SCAN_BATCH)
            fresh = [stored_arm(id_, value) for id_, value in batch.items() if id_ not in seen]
            seen.update(batch)
            if fresh:
                yield fresh
            if not int(cursor):
                return

    async def catalogue_version(self, uid: str) -> int:
        return int(await self._redis.command("HGET", keys.counters(uid), "version") or 0)

    async def documents(self, uid: str, ids: Sequence[str]) -> Sequence[bytes]:
        if not ids:
            return []
        return [value or b"" for value in await self._redis.command("HMGET", keys.documents(uid), *ids)]

    async def retired_features(self, uid: str, revision: int) -> bytes | None:
        kept: bytes | None = await self._redis.command("GET", keys.retired(uid, revision))
        return kept

    # Rewards ------------------------------------------------------------------------------------
    async def append_rewards(self, partition: int, rewards: Sequence[RewardWrite]) -> Sequence[Appended]:
        """Entries appended by a call whose reply was lost are duplicates when it is repeated."""
        if not rewards:
            return []
        names, words = [keys.log(partition), keys.watermark(partition)], list[Word]()
        for reward in rewards:
            _positive("ttl_ms", reward.ttl_ms)
            names += _reward_keys(partition, reward)
            words += (*reward.learner, "" if reward.first is None else "1")
            words += (reward.issued_ms, reward.ttl_ms, reward.payload)
        return [_appended(word) for word in await self._redis.script("append_rewards", names, words)]

    async def append_forget(self, learner: LearnerId, *, payload: bytes, now_ms: int, ttl_ms: int) -> str:
        """Repeated with the same ``now_ms`` it appends nothing and returns the id of the first entry."""
        _positive("ttl_ms", ttl_ms)
        names = forget_keys(learner.partition(self.partitions), learner)
        words: list[Word] = [*learner, payload, now_ms, ttl_ms]
        entry_id: bytes = await self._redis.script("append_forget", names, words)
        return entry_id.decode()

    async def read_log(self, partition: int, after: str, count: int) -> Sequence[LogEntry]:
        _positive("count", count)
        entries = await self._redis.command("XRANGE", keys.log(partition), f"({after}", "+", "COUNT", count)
        return [log_entry(entry_id, fields) for entry_id, fields in entries]

    async def watermark(self, partition: int) -> str:
        entry_id: bytes | None = await self._redis.command("GET", keys.watermark(partition))
        return (entry_id or b"0-0").decode()

    async def states(self, partition: int, learners: Sequence[LearnerId]) -> Sequence[bytes | None]:
        by_bandit: dict[str, list[str]] = {}
        for bandit_uid, learner in learners:
            by_bandit.setdefault(bandit_uid, []).append(learner)
        commands = [("HMGET", keys.states(partition, uid), *names) for uid, names in by_bandit.items()]
        if not commands:
            return []
        if len(commands) == 1:
            ask = self._redis.command if len(learners) == 1 else self._redis.bulk
            return list(await ask(*commands[0]))
        answers = await self._redis.transaction(commands)
        rows = {uid: iter(row) for uid, row in zip(by_bandit, answers, strict=True)}
        return [next(rows[bandit_uid]) for bandit_uid, _ in learners]

    async def apply(
        self,
        partition: int,
        *,
        expected: str,
        watermark: str,
        states: Mapping[LearnerId, bytes | None],
        dead: Sequence[DeadLetter] = (),
    ) -> bool:
        """False may also mean that an earlier call, its reply lost, has done it: read the watermark again."""
        uids = {uid: number for number, uid in enumerate(dict.fromkeys(uid for uid, _ in states), start=1)}
        words: list[Word] = [expected, watermark, keys.CHANGES_KEPT, len(dead)]
        for letter in dead:
            words += (letter.entry.entry_id, letter.reason)
        for (uid, learner), state in states.items():
            words += (uids[uid], learner, "" if state is None else "1", state or b"")
        names = [keys.watermark(partition), keys.log(partition)]
        names += [keys.dead(partition), keys.learner_changes(partition), keys.deleted(partition)]
        names += [keys.states(partition, uid) for uid in uids]
        return bool(await self._redis.script("apply", names, words, bulk=True))

    async def backlog(self, partition: int) -> int:
        return int(await self._redis.script("backlog", [keys.log(partition), keys.watermark(partition)]))

    async def trim_log(self, partition: int, before_ms: int) -> None:
        await self._redis.script("trim_log", [keys.log(partition), keys.watermark(partition)], [before_ms])

    # Words written once -------------------------------------------------------------------------
    async def put_once(self, partition: int | None, name: str, value: bytes, *, ttl_ms: int | None) -> bytes:
        if ttl_ms is not None:
            _positive("ttl_ms", ttl_ms)
        args: list[Word] = [value, "" if ttl_ms is None else ttl_ms]
        standing: bytes = await self._redis.script("put_once", [keys.word(partition, name)], args)
        return standing

    async def get_once(self, partition: int | None, name: str) -> bytes | None:
        standing: bytes | None = await self._redis.command("GET", keys.word(partition, name))
        return standing

    # Turns --------------------------------------------------------------------------------------
    async def take_turns(self, learner: LearnerId, *, count: int, most: int, claim: str, ttl_ms: int) -> int:
        _positive("count", count)
        _positive("ttl_ms", ttl_ms)
        name = keys.turns(learner.partition(self.partitions), learner)
        return int(await self._redis.script("take_turns", [name], [count, most, claim, ttl_ms]))

    async def drop_turns(self, learner: LearnerId) -> None:
        await self._redis.command("DEL", keys.turns(learner.partition(self.partitions), learner))


def _positive(name: str, value: int) -> None:
    # A script that fails half way keeps what it wrote, so what Redis would refuse must not reach one.
    if value < 1:
        raise Invalid(f"{name} must be at least 1", loc=(name,))


def _of_a_catalogue(answer: Any) -> Any:
    if answer is None:
        raise NotFound("no catalogue of this name: it was deleted meanwhile")
    return answer


def _reward_keys(partition: int, reward: RewardWrite) -> Iterable[str]:
    learner = reward.learner
    seen = keys.seen(partition, learner, reward.once)
    first = seen if reward.first is None else keys.seen_first(partition, learner, reward.first)
    return seen, first, keys.forgotten(partition, learner)


def _appended(word: bytes) -> Appended:
    status, _, newest = word.decode().partition(" ")
    if status == "duplicate":
        return Appended("duplicate", newest)
    if status == "forgotten":
        return Appended("forgotten")
    return Appended("accepted", status)
