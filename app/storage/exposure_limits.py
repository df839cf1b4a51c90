"""Exposures of keys, for frequency caps, and the quotas of bandits, on Redis."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from app.storage import redis_keys as keys
from app.storage.memory import Level
from app.storage.part import RedisPart
from app.storage.redis_client import Argument
from app.storage.types import (
    Exposures,
    QuotaAnswer,
    QuotaChange,
    QuotaChanges,
    QuotaCount,
    QuotaEvent,
    QuotasNow,
    QuotaTerms,
    QuotaWindow,
)
from app.storage.types.decisions import LearnerId

CHANGES_TOGETHER = 1_000


class FrequencyCapStore(RedisPart):
    """The exposures of keys. They go with the learner of the same name."""

    async def take(
        self, key: LearnerId, shown: Sequence[tuple[str, str]], *, within_ms: int, most: int, most_kept: int
    ) -> Exposures:
        """Write the exposures of a choice, (name, arm) each once, unless the key was shown an arm ``most``
        times.

        ``most`` 0: any number. The last ``most_kept`` are kept, for ``within_ms``. Without room new exposures
        take the place of the key's oldest; a new key then has no exposures kept.
        """
        name = keys.exposures(self._partition(key), key)
        room = 2 - sum(map(self._memory.is_reached, (Level.OPTIONAL, Level.REWARDS)))
        arguments: list[Argument] = [within_ms, most, most_kept, room]
        arguments += [part for pair in shown for part in pair]
        answer = await self._redis.script("take_exposures", [name], arguments)
        is_allowed, is_whole, now_ms, *members = answer
        written = [member.decode().partition(":") for member in members[::2]]
        # Scores of sorted sets are floats, which the server may write as 1.76e+12.
        times = map(int, map(float, members[1::2]))
        exposures = [(arm, at_ms) for (_, _, arm), at_ms in zip(written, times, strict=True)]
        names = [name for name, _, _ in written]
        return Exposures(bool(is_allowed), bool(is_whole), now_ms, exposures, names)

    async def drop(self, key: LearnerId, shown: Sequence[tuple[str, str]]) -> None:
        """As if these had not been written."""
        members = [f"{decision}:{arm}" for decision, arm in shown]
        await self._redis.command("ZREM", keys.exposures(self._partition(key), key), *members)


class QuotaStore(RedisPart):
    """All quotas of a bandit are in one place: one script counts for many of them."""

    async def put(
        self, bandit_uid: str, quota_id: str, record: bytes, before: bytes, terms: QuotaTerms, *, most: int
    ) -> bool | None:
        """Store a quota in place of the record ``before``, b"" for a new quota; False: the quota has another
        record.

        None: the bandit has ``most`` quotas. Counts go on for the same ``terms.uid``, else they start again.
        """
        self._memory.check_kept(Level.NEW, "quotas")
        names = [*keys.quota_changes(bandit_uid), keys.quota(bandit_uid, quota_id), keys.quotas(bandit_uid)]
        outcome = await self._redis.script("put_quota", names, [quota_id, record, before, most, *terms])
        return None if outcome < 0 else bool(outcome)

    async def delete(self, bandit_uid: str, quota_id: str) -> bool:
        names = [*keys.quota_changes(bandit_uid), keys.quota(bandit_uid, quota_id), keys.quotas(bandit_uid)]
        return bool(await self._redis.script("put_quota", names, [quota_id, ""]))

    async def changed(self, bandit_uid: str) -> int:
        """Tell all processes of a change to the bandit's quotas; return the number of changes so far
        (``Registry.quotas``).
        """
        names = [keys.QUOTAS, keys.REGISTRY_VERSION]
        return int(await self._redis.script("note_quotas", names, [bandit_uid]))

    async def count(
        self, bandit_uid: str, events: Sequence[tuple[QuotaEvent, Sequence[QuotaCount]]], *, after: str
    ) -> QuotaAnswer:
        """Count events, each for all of its quotas or for none.

        A repeated call counts again. A quota refuses an exposure when closed or with too little left, an
        activation with too little left. A quota of another uid neither counts nor refuses. ``after``: the
        last known change.
        """
        numbers, asked = dict[tuple[str, str], int](), list[Argument]()
        for event, counts in events:
            asked += event, len(counts)
            for each in counts:
                number = numbers.setdefault((each.quota, each.uid), len(numbers) + 1)
                asked += number, each.times, each.start
        names = [*keys.quota_changes(bandit_uid), *(keys.quota(bandit_uid, name) for name, _ in numbers)]
        arguments = [after, *chain.from_iterable(numbers), *asked]
        now_ms, entries, counted, *windows = await self._redis.script("count_quotas", names, arguments)
        return QuotaAnswer(
            [*map(bool, counted)],
            QuotaChanges(now_ms, _changes_after(after, entries)),
            {name: QuotaWindow(*each) for name, each in zip(numbers, windows, strict=True)},
        )

    async def changes(self, bandit_uid: str, after: str) -> QuotaChanges | QuotasNow:
        """The changes after the change ``after``; all quotas where ``after`` is unknown."""
        names = [*keys.quota_changes(bandit_uid), keys.quotas(bandit_uid)]
        now_ms, first, *everything = await self._redis.script("changed_quotas", names, [after])
        if not everything:
            return QuotaChanges(now_ms, _changes_after(after, first))
        records, closed = (dict(zip(flat[::2], flat[1::2], strict=True)) for flat in everything)
        return QuotasNow(
            now_ms,
            first.decode(),
            {name.decode(): record for name, record in records.items()},
            {name.decode(): int(until_ms) for name, until_ms in closed.items()},
        )

    async def changes_between(self, bandit_uid: str, one: str, other: str) -> Sequence[QuotaChange]:
        """Changes from ``one`` on towards ``other``, both included, at most ``CHANGES_TOGETHER``."""
        ends: tuple[Argument, ...] = (keys.quota_changes(bandit_uid)[0], one, other)
        command = "XREVRANGE" if change_order(one) > change_order(other) else "XRANGE"
        return [*map(_change, await self._redis.command(command, *ends, "COUNT", CHANGES_TOGETHER))]

    async def trim(self, bandit_uid: str, before_ms: int) -> None:
        """Drop changes before a time, but for the last of these: rows decided after the time may name the
        last one.

        Two round trips.
        """
        key = keys.quota_changes(bandit_uid)[0]
        last = await self._redis.command("XREVRANGE", key, before_ms, "-", "COUNT", 1)
        if last:
            await self._redis.command("XTRIM", key, "MINID", "~", last[0][0])

    async def erase(self, bandit_uid: str) -> None:
        """Remove everything of a deleted bandit.

        Two round trips.
        """
        names = [keys.quotas(bandit_uid), keys.quota(bandit_uid, ""), *keys.quota_changes(bandit_uid)]
        await self._redis.script("erase_quotas", names)
        await self._redis.command("HDEL", keys.QUOTAS, bandit_uid)


def change_order(number: str) -> tuple[int, int]:
    """The numbers of changes ascend by this."""
    milliseconds, _, sequence = (number or "0-0").partition("-")
    return int(milliseconds), int(sequence or 0)


def _changes_after(number: str, entries: Sequence[Any]) -> Sequence[QuotaChange] | None:
    """The changes after the first, which has this number; None: the first has another one, so some are
    missing.
    """
    if not entries or entries[0][0] != number.encode():
        return None
    return [*map(_change, entries[1:])]


def _change(entry: tuple[bytes, Any]) -> QuotaChange:
    number, parts = entry
    # Scripts answer a flat list, the driver a dictionary.
    fields = parts if isinstance(parts, dict) else dict(zip(parts[::2], parts[1::2], strict=True))
    closed = int(fields[b"u"]), int(fields[b"w"])
    return QuotaChange(number.decode(), fields[b"q"].decode(), *closed, fields.get(b"r"), fields.get(b"b"))
