"""The states of learners on Redis: a hash for each bandit in each partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.storage import redis_keys as keys
from app.storage.learner_id import LearnerId
from app.storage.protocol import DeadLetter, LearnerChanges
from app.storage.redis_client import Argument
from app.storage.redis_part import UID_LENGTH, RedisPart


class RedisLearnerStates(RedisPart):
    """Implements ``protocol.LearnerStates``."""

    async def watermark(self, partition: int) -> str:
        entry_id: bytes | None = await self._redis.command("GET", keys.watermark(partition))
        return (entry_id or b"0-0").decode()

    async def states(self, partition: int, learners: Sequence[LearnerId]) -> Sequence[bytes | None]:
        by_bandit: dict[str, list[str]] = {}
        for bandit_uid, name in learners:
            by_bandit.setdefault(bandit_uid, []).append(name)
        commands = [("HMGET", keys.states(partition, uid), *names) for uid, names in by_bandit.items()]
        if not commands:
            return []
        if len(commands) == 1:
            ask = self._redis.command if len(learners) == 1 else self._redis.bulk
            return list(await ask(*commands[0]))
        answers = await self._redis.transaction(commands)
        rows = {uid: iter(row) for uid, row in zip(by_bandit, answers, strict=True)}
        return [next(rows[bandit_uid]) for bandit_uid, _ in learners]

    async def all_states(self, partition: int, uids: Sequence[str]) -> tuple[str, Mapping[LearnerId, bytes]]:
        commands = [("GET", keys.watermark(partition))]
        commands += [("HGETALL", keys.states(partition, uid)) for uid in uids]
        watermark, *tables = await self._redis.transaction(commands)
        rows = zip(uids, tables, strict=True)
        states = {
            LearnerId(uid, name.decode()): state for uid, table in rows for name, state in table.items()
        }
        return (watermark or b"0-0").decode(), states

    async def apply(
        self,
        partition: int,
        *,
        expected: str,
        watermark: str,
        states: Mapping[LearnerId, bytes | None],
        dead: Sequence[DeadLetter] = (),
    ) -> bool:
        uids = {uid: number for number, uid in enumerate(dict.fromkeys(uid for uid, _ in states), start=1)}
        arguments: list[Argument] = [expected, watermark, keys.CHANGES_KEPT, len(dead)]
        for letter in dead:
            arguments += (letter.entry.entry_id, letter.reason)
        for (uid, name), state in states.items():
            arguments += (uids[uid], name, "" if state is None else "1", state or b"")
        names = [keys.watermark(partition), keys.log(partition)]
        names += [keys.dead(partition), keys.learner_changes(partition), keys.deleted(partition)]
        names += [keys.states(partition, uid) for uid in uids]
        return bool(await self._redis.script("apply", names, arguments, bulk=True))

    async def changed_learners(self, partition: int, since: str) -> LearnerChanges:
        names = [keys.log(partition), keys.watermark(partition), keys.learner_changes(partition)]
        found = await self._redis.script("changed_learners", names, [since, keys.CHANGES_KEPT])
        watermark, newest, *listed = found
        if not listed:
            return LearnerChanges(watermark.decode(), newest.decode())
        members: Sequence[bytes] | None = listed[0]
        if members is None:
            return LearnerChanges(watermark.decode(), newest.decode(), None)
        learners = [_learner(member) for member in members if not member.startswith(b"-")]
        removed = [_learner(member[1:]) for member in members if member.startswith(b"-")]
        return LearnerChanges(watermark.decode(), newest.decode(), learners, removed)


def _learner(member: bytes) -> LearnerId:
    return LearnerId(member[:UID_LENGTH].decode(), member[UID_LENGTH:].decode())
