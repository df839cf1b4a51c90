"""Quotas of bandits on Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from app.storage import redis_keys as keys
from app.storage.part import RedisPart
from app.storage.redis_client import Argument
from app.storage.types import Confirmed, Held, QuotaChanges, QuotaTerms, Share, ShareAsked

MOST_CHANGES = 20_000  # of a bandit, that are known one by one
MOST_HELD = 1_000_000  # deferred decisions of a bandit, of some 150 bytes
_CONFIRMED: Mapping[int, Confirmed] = {1: "counts", 0: "expired", -1: "used_up"}


class RedisQuotas(RedisPart):
    """Implements ``protocol.QuotaStore``."""

    async def changes(self, bandit_uid: str, after: int) -> QuotaChanges:
        names = [keys.quotas(bandit_uid), keys.quota_changes(bandit_uid)]
        number, is_all, *found = await self._redis.script("changed_quotas", names, [after])
        records = {
            quota_id.decode(): record or None
            for quota_id, record in zip(found[::2], found[1::2], strict=True)
        }
        return QuotaChanges(number, records, bool(is_all))

    async def record(self, bandit_uid: str, quota_id: str) -> bytes:
        record: bytes | None = await self._redis.command("HGET", keys.quotas(bandit_uid), quota_id)
        return record or b""

    async def put(
        self, bandit_uid: str, quota_id: str, record: bytes, terms: QuotaTerms, *, expected: bytes, most: int
    ) -> bytes | None:
        names = [keys.quotas(bandit_uid), *_of_quota(bandit_uid, quota_id), keys.quota_changes(bandit_uid)]
        arguments: list[Argument] = [quota_id, record, expected, *terms, most, MOST_CHANGES]
        current: bytes | None = await self._redis.script("put_quota", names, arguments)
        return current

    async def delete(self, bandit_uid: str, quota_id: str) -> bool:
        names = [keys.quotas(bandit_uid), *_of_quota(bandit_uid, quota_id), keys.quota_changes(bandit_uid)]
        return bool(await self._redis.script("delete_quota", names, [quota_id, MOST_CHANGES]))

    async def changed(self, bandit_uid: str) -> None:
        await self._redis.script("note_quotas", [keys.QUOTAS, keys.REGISTRY_VERSION], [bandit_uid])

    async def share(
        self, bandit_uid: str, process: str, number: int, asked: Sequence[ShareAsked]
    ) -> tuple[int, Sequence[Share]]:
        names = [name for each in asked for name in _of_quota(bandit_uid, each.id)]
        arguments: list[Argument] = [process, number]
        for each in asked:
            arguments += each[1:]
        now_ms, *answers = await self._redis.script("share_quotas", names, arguments)
        return now_ms, [Share(bool(known), bool(holds), *rest) for known, holds, *rest in answers]

    async def reward(self, bandit_uid: str, counts: Mapping[str, int]) -> None:
        names = [name for quota_id in counts for name in _of_quota(bandit_uid, quota_id)]
        await self._redis.script("reward_quotas", names, [*counts.values()])

    async def hold(
        self, bandit_uid: str, decision: str, taken: Sequence[Held], *, expires_ms: int
    ) -> Sequence[int] | None:
        arguments: list[Argument] = [decision, msgspec.msgpack.encode(taken), expires_ms, MOST_HELD]
        names = [*keys.quotas_held(bandit_uid), *_of_quota(bandit_uid, "")]
        answer: Sequence[int] | None = await self._redis.script("hold_quotas", names, arguments)
        return answer

    async def confirm(self, bandit_uid: str, decision: str, *, expires_ms: int, margin_ms: int) -> Confirmed:
        arguments: list[Argument] = [decision, expires_ms, margin_ms]
        names = [*keys.quotas_held(bandit_uid), *_of_quota(bandit_uid, "")]
        return _CONFIRMED[await self._redis.script("confirm_quotas", names, arguments)]

    async def release(self, bandit_uid: str, *, margin_ms: int, count: int) -> int:
        names = [*keys.quotas_held(bandit_uid), *_of_quota(bandit_uid, "")]
        return int(await self._redis.script("release_quotas", names, [margin_ms, count]))

    async def erase(self, bandit_uid: str) -> None:
        """Two round trips."""
        names = [keys.quotas(bandit_uid), *_of_quota(bandit_uid, "")]
        names += [*keys.quotas_held(bandit_uid), keys.quota_changes(bandit_uid)]
        await self._redis.script("erase_quotas", names)
        await self._redis.command("HDEL", keys.QUOTAS, bandit_uid)


def _of_quota(bandit_uid: str, quota_id: str) -> list[str]:
    """The keys of one quota, or of none the stems that scripts complete: itself, its shares."""
    return [keys.quota(bandit_uid, quota_id), keys.quota_shares(bandit_uid, quota_id)]
