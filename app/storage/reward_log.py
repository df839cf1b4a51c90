"""The reward log on Redis: a stream for each partition."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import cache

import msgspec

from app.platform.errors import Invalid
from app.storage import redis_keys as keys
from app.storage.decision_rows import field_of, row_keys, row_record
from app.storage.memory import Level, StoreMemory
from app.storage.part import RedisPart, check_positive, log_entry
from app.storage.redis_client import Argument, RedisClient
from app.storage.reward_calls import Append, RewardCalls
from app.storage.types import UID_LENGTH, Appended, DeadLetter, Lag, LearnerId, LogEntry, RewardWrite, Trimmed

_TRIM_STEP = 256
_READ_STEP = 500  # entries that the store looks at for some learners: a millisecond
_pack = msgspec.msgpack.Encoder().encode


class RewardLog(RedisPart):
    """The logs of all partitions. Entries of one log are in the order in which they were appended."""

    def __init__(self, redis: RedisClient, partitions: int, memory: StoreMemory) -> None:
        super().__init__(redis, partitions, memory)
        self._calls = RewardCalls(redis)

    async def append(self, partition: int, rewards: Sequence[RewardWrite]) -> Sequence[Appended]:
        """Append the rewards in one piece, without duplicates, expired ones and those of forgotten learners.
        Appends of other callers at the same time may travel with them.

        Raises Invalid: neither ``ttl_ms`` nor ``expires_ms``, or a decision key without the latter. Raises
        StoreFull, and none is appended: the store has no room.
        """
        if not rewards:
            return []
        if any(reward.expires_ms is None for reward in rewards):
            self._memory.check(Level.NEW, "observations")
        self._memory.check(Level.REWARDS, "rewards")
        names: list[str] = []
        arguments: list[Argument] = []
        for reward in rewards:
            home = keys.seen(partition, reward.learner, reward.dedupe_key or "")
            if reward.expires_ms is not None:
                home = keys.seen_until(partition, keys.seen_ends_ms(reward.expires_ms))
            names += (home, keys.forgotten(partition, reward.learner))
            arguments += (_pack(_told(reward)), reward.payload)
            # Bandits without a log pay for none of its keys.
            if reward.logged is not None:
                names += (keys.deleted(partition), keys.row_logs(partition))
                names += row_keys(partition, reward.learner)[2:]
                arguments += (row_record(reward.logged.row, self._memory), reward.logged.reward)
        append = Append(len(rewards), names, arguments)
        answers = await self._calls.append(partition, _partition_keys(partition), append)
        return [_appended(answer) for answer in answers]

    async def read(self, partition: int, after: str, count: int) -> Sequence[LogEntry]:
        """The first ``count`` entries after the entry id ``after``."""
        check_positive("count", count)
        entries = await self._redis.command("XRANGE", keys.log(partition), f"({after}", "+", "COUNT", count)
        return [log_entry(entry_id, fields) for entry_id, fields in entries]

    async def read_back(self, partition: int, before: str, count: int) -> Sequence[LogEntry]:
        """The last ``count`` entries before the entry id ``before``, the newest first; "+": of all."""
        check_positive("count", count)
        end = before if before == "+" else f"({before}"
        entries = await self._redis.command("XREVRANGE", keys.log(partition), end, "-", "COUNT", count)
        return [log_entry(entry_id, fields) for entry_id, fields in entries]

    async def of_learners(
        self, partition: int, learners: Sequence[LearnerId], until: str
    ) -> AsyncIterator[Sequence[LogEntry]]:
        """The entries of these learners up to the entry id ``until``, some at a time, without dead letters.

        The store looks at each entry of the log, and answers those alone. A round trip for each step.
        """
        names, after = [keys.log(partition), keys.dead(partition)], b"0-0"
        wanted = [word for learner in learners for word in learner]
        while after:
            after, entries = await self._redis.script(
                "entries_of", names, [after, until, _READ_STEP, *wanted]
            )
            yield [
                log_entry(entry_id, dict(zip(fields[::2], fields[1::2], strict=True)))
                for entry_id, fields in entries
            ]

    async def backlog(self, partition: int) -> int:
        """Number of entries which are not yet folded."""
        return int(await self._redis.script("backlog", [keys.log(partition), keys.watermark(partition)]))

    async def lag(self, partition: int) -> Lag:
        names = keys.of_partition(partition, keys.log, keys.watermark, keys.dead)
        age_ms, dead = await self._redis.script("lag", names)
        return Lag(age_ms / 1_000, dead)

    async def trim(self, partition: int, before_ms: int) -> Trimmed:
        """Drop some of the entries older than ``before_ms`` and at or below the watermark.

        Entries in the tail of their learner stay, and all entries after them. A few hundred at most: see
        ``Trimmed``.
        """
        names = keys.of_partition(partition, keys.log, keys.watermark, keys.tails)
        result = await self._redis.script("trim_log", names, [before_ms, _TRIM_STEP])
        more, *members = result
        learners = [
            LearnerId(member[:UID_LENGTH].decode(), member[UID_LENGTH:].decode()) for member in members
        ]
        return Trimmed(bool(more), learners)

    async def dead_letters(self, partition: int) -> Sequence[DeadLetter]:
        """Entries left out by the fold and not replayed, in order."""
        letters = await self._redis.command("XRANGE", keys.dead(partition), "-", "+")
        return [DeadLetter(log_entry(id_, fields), fields[b"r"].decode()) for id_, fields in letters]

    async def replay_dead(self, partition: int, letters: Sequence[DeadLetter]) -> Sequence[str]:
        """Put dead letters at the end of the log: the new ids, or "forgotten" (dropped), or "missing".

        Repeated, it answers "missing": nothing is put back twice.

        New ids come in the order of the letters.
        """
        if not letters:
            return []
        names = keys.of_partition(partition, keys.log, keys.watermark, keys.dead)
        entries = [letter.entry for letter in letters]
        names += [keys.forgotten(partition, entry.learner) for entry in entries]
        ids = [entry.entry_id for entry in entries]
        return [answer.decode() for answer in await self._redis.script("replay_dead", names, ids)]


@cache
def _partition_keys(partition: int) -> tuple[str, ...]:
    """Keys for every append to the log of the partition."""
    names = keys.log, keys.watermark, keys.refused, keys.seen_ends
    return tuple(name(partition) for name in names)


class _Told(msgspec.Struct, omit_defaults=True, gc=False):
    """The arguments of append_rewards.lua for one reward: the fields are defined there.

    Numbers for the script to write are text: Lua would write 14 digits.
    """

    bandit: str
    learner: str
    known: str
    ends: str
    expires: int | None = None
    name: str | None = None
    first: str | None = None
    letter: str | None = None
    kind: str | None = None
    number: str | None = None
    field: str | None = None
    keep_ms: int | None = None


def _told(reward: RewardWrite) -> _Told:
    # What is of no decision has a key of its own with a time to live. Rewards share one hash for each stretch
    # of time, which goes as a whole.
    learner, signal = reward.learner, reward.signal
    told = _Told(*learner, str(reward.known_entry), str(reward.ttl_ms))
    if reward.expires_ms is None:
        check_positive("ttl_ms", reward.ttl_ms or 0)
        if signal is not None:
            raise Invalid("a decision expires", path=("expires_ms",))
        return told
    told.expires, told.ends = reward.expires_ms, str(keys.seen_ends_ms(reward.expires_ms))
    if reward.dedupe_key is not None:
        told.name = keys.seen_field(learner, reward.dedupe_key)
    if signal is not None:
        told.first = keys.seen_first_field(learner, signal.decision_key)
        # A letter rather than a digit: the script tells by it where the number of one signal ends and the
        # next begins.
        told.letter, told.kind = chr(ord("A") + signal.place), signal.aggregate[0]
        told.number = repr(float(signal.value)).removesuffix(".0")  # the shortest that is read back
        if signal.aggregate == "last":
            told.number += f"@{signal.at_ms}"
    if (logged := reward.logged) is not None:
        told.field, told.keep_ms = field_of(logged.row), logged.row.keep_ms
    return told


def _appended(answer: bytes) -> Appended:
    status, _, entry_id = answer.decode().partition(" ")
    match status:
        case "duplicate" | "forgotten" | "expired":
            return Appended(status, entry_id)
        case "revised":
            return Appended("accepted", entry_id, revised=True)
    return Appended("accepted", status)
