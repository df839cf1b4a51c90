"""The reward log on Redis: a stream for each partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from app.errors import Invalid
from app.storage import redis_keys as keys
from app.storage.protocol import Appended, DeadLetter, Lag, LearnerId, LogEntry, RewardWrite, Trimmed
from app.storage.redis_client import Argument
from app.storage.redis_part import UID_LENGTH, RedisPart, check_positive, log_entry, optional

_TRIM_STEP = 256


class RedisRewardLog(RedisPart):
    """Implements ``protocol.RewardLog``."""

    async def append_rewards(self, partition: int, rewards: Sequence[RewardWrite]) -> Sequence[Appended]:
        if not rewards:
            return []
        names = [keys.log(partition), keys.watermark(partition)]
        names += [keys.refused(partition), keys.seen_ends(partition), keys.ledger(partition)]
        arguments: list[Argument] = [self._room.of("dedupe", partition)]
        for reward in rewards:
            names += _reward_keys(partition, reward)
            arguments += (*reward.learner, "" if reward.decision_key is None else "1")
            arguments += (reward.issued_ms, optional(reward.known_entry), optional(reward.expires_ms))
            arguments += (optional(reward.ttl_ms), reward.payload)
        held, answers = await self._redis.script("append_rewards", names, arguments)
        if held:
            self._room.taken("dedupe", partition, held)
        return [_appended(answer) for answer in answers]

    async def read_log(self, partition: int, after: str, count: int) -> Sequence[LogEntry]:
        check_positive("count", count)
        entries = await self._redis.command("XRANGE", keys.log(partition), f"({after}", "+", "COUNT", count)
        return [log_entry(entry_id, fields) for entry_id, fields in entries]

    async def backlog(self, partition: int) -> int:
        return int(await self._redis.script("backlog", [keys.log(partition), keys.watermark(partition)]))

    async def lag(self, partition: int) -> Lag:
        names = [keys.log(partition), keys.watermark(partition), keys.dead(partition)]
        age_ms, dead = await self._redis.script("lag", names)
        return Lag(age_ms / 1_000, dead)

    async def trim_log(self, partition: int, before_ms: int, *, pooled: str) -> Trimmed:
        names = [keys.log(partition), keys.watermark(partition), keys.tails(partition)]
        found = await self._redis.script("trim_log", names, [before_ms, _TRIM_STEP, pooled])
        more, *members = found
        held = [LearnerId(member[:UID_LENGTH].decode(), member[UID_LENGTH:].decode()) for member in members]
        return Trimmed(bool(more), held)

    async def dead_letters(self, partition: int) -> Sequence[DeadLetter]:
        letters = await self._redis.command("XRANGE", keys.dead(partition), "-", "+")
        return [DeadLetter(log_entry(id_, fields), fields[b"r"].decode()) for id_, fields in letters]

    async def replay_dead(self, partition: int, letters: Sequence[DeadLetter]) -> Sequence[str]:
        """New ids come in the order of the letters."""
        if not letters:
            return []
        names = [keys.log(partition), keys.watermark(partition), keys.dead(partition)]
        entries = [letter.entry for letter in letters]
        names += [keys.forgotten(partition, entry.learner) for entry in entries]
        ids = [entry.entry_id for entry in entries]
        return [answer.decode() for answer in await self._redis.script("replay_dead", names, ids)]


def _reward_keys(partition: int, reward: RewardWrite) -> Iterable[str]:
    learner = reward.learner
    seen = keys.seen(partition, learner, reward.dedupe_key)
    first = seen_until = seen
    if reward.expires_ms is None:
        check_positive("ttl_ms", reward.ttl_ms or 0)
        if reward.decision_key is not None:
            raise Invalid("a decision expires", loc=("expires_ms",))
    else:
        seen_until = keys.seen_until(partition, reward.expires_ms)
        if reward.decision_key is not None:
            first = keys.seen_first(partition, learner, reward.decision_key)
    return seen, first, keys.forgotten(partition, learner), seen_until


def _appended(answer: bytes) -> Appended:
    status, _, newest = answer.decode().partition(" ")
    if status == "duplicate":
        return Appended("duplicate", newest)
    if status in {"forgotten", "expired"}:
        return Appended("forgotten" if status == "forgotten" else "expired")
    return Appended("accepted", status)
