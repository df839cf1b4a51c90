"""The part of ``RedisStore`` that tells processes of each other: changes, workers, lag and dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.storage import redis_keys as keys
from app.storage.changes import ArmChanges, DeadLetter, Lag, LearnerChanges, LogEntry, StoredArm
from app.storage.learner_id import LearnerId
from app.storage.redis_client import RedisClient

_UID = 16


class RedisChanges:
    """See ``app.storage.changes.Following``."""

    _redis: RedisClient

    async def registry_version(self) -> int:
        return int(await self._redis.command("GET", keys.REGISTRY_VERSION) or 0)

    async def changed_arms(self, uid: str, since: int) -> ArmChanges:
        names = [keys.counters(uid), keys.arm_changes(uid)]
        version, *listed = await self._redis.script("changed_arms", names, [since, keys.CHANGES_KEPT])
        if not listed:
            return ArmChanges(version)
        ids: Sequence[bytes] | None = listed[0]
        return ArmChanges(version, None if ids is None else [id_.decode() for id_ in ids])

    async def arms(self, uid: str, ids: Sequence[str]) -> Sequence[StoredArm | None]:
        if not ids:
            return []
        values = await self._redis.bulk("HMGET", keys.features(uid), *ids)
        return [
            None if value is None else stored_arm(id_.encode(), value)
            for id_, value in zip(ids, values, strict=True)
        ]

    async def changed_learners(self, partition: int, since: str) -> LearnerChanges:
        names = [keys.log(partition), keys.watermark(partition), keys.learner_changes(partition)]
        found = await self._redis.script("changed_learners", names, [since, keys.CHANGES_KEPT])
        watermark, newest, *listed = found
        if not listed:
            return LearnerChanges(watermark.decode(), newest.decode())
        words: Sequence[bytes] | None = listed[0]
        if words is None:
            return LearnerChanges(watermark.decode(), newest.decode(), None)
        learners = [_learner(word) for word in words if not word.startswith(b"-")]
        removed = [_learner(word[1:]) for word in words if word.startswith(b"-")]
        return LearnerChanges(watermark.decode(), newest.decode(), learners, removed)

    async def all_states(self, partition: int, uids: Sequence[str]) -> tuple[str, Mapping[LearnerId, bytes]]:
        commands = [("GET", keys.watermark(partition))]
        commands += [("HGETALL", keys.states(partition, uid)) for uid in uids]
        watermark, *tables = await self._redis.transaction(commands)
        rows = zip(uids, tables, strict=True)
        states = {
            LearnerId(uid, name.decode()): state for uid, table in rows for name, state in table.items()
        }
        return (watermark or b"0-0").decode(), states

    async def lag(self, partition: int) -> Lag:
        names = [keys.log(partition), keys.watermark(partition), keys.dead(partition)]
        age_ms, dead = await self._redis.script("lag", names)
        return Lag(age_ms / 1_000, dead)

    async def dead_letters(self, partition: int) -> Sequence[DeadLetter]:
        letters = await self._redis.command("XRANGE", keys.dead(partition), "-", "+")
        return [DeadLetter(log_entry(id_, fields), fields[b"r"].decode()) for id_, fields in letters]

    async def replay_dead(self, partition: int, letters: Sequence[DeadLetter]) -> Sequence[str]:
        """New ids come in the order of the letters. A call whose reply was lost answers "missing"."""
        if not letters:
            return []
        names = [keys.log(partition), keys.watermark(partition), keys.dead(partition)]
        entries = [letter.entry for letter in letters]
        names += [keys.forgotten(partition, entry.learner) for entry in entries]
        ids = [entry.entry_id for entry in entries]
        return [word.decode() for word in await self._redis.script("replay_dead", names, ids)]

    async def join_workers(self, name: str, lease_ms: int) -> Sequence[str]:
        names = await self._redis.script("join_workers", [keys.WORKERS], [name, lease_ms])
        return [word.decode() for word in names]

    async def leave_workers(self, name: str) -> None:
        await self._redis.command("ZREM", keys.WORKERS, name)


def _learner(word: bytes) -> LearnerId:
    return LearnerId(word[:_UID].decode(), word[_UID:].decode())


def stored_arm(id_: bytes, value: bytes) -> StoredArm:
    return StoredArm(id_.decode(), int.from_bytes(value[:8], "little"), value[8:])


def log_entry(entry_id: bytes, fields: Mapping[bytes, bytes]) -> LogEntry:
    """What somebody else wrote has no field of ours: it is read all the same, and cannot be folded."""
    bandit, learner = fields.get(b"b", b""), fields.get(b"l", b"")
    kind, origin = fields.get(b"f"), fields.get(b"o", b"")
    return LogEntry(
        entry_id.decode(),
        LearnerId(bandit.decode("utf-8", "replace"), learner.decode("utf-8", "replace")),
        kind == b"1",
        fields.get(b"p", b""),
        origin.decode("utf-8", "replace"),
        kind == b"r",
    )
