"""Quotas of bandits on Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.storage import redis_keys as keys
from app.storage.part import RedisPart
from app.storage.redis_client import Argument
from app.storage.types import QuotaChanges, QuotaTerms, Share, ShareAsked


class QuotaStore(RedisPart):
    """All quotas of a bandit are in one place: one script counts for many of them."""

    most_changes = 20_000  # of a bandit, that are known one by one

    async def changes(self, bandit_uid: str, after: int) -> QuotaChanges:
        """What has changed since a number; all records for one of another time, or too long ago."""
        names = [keys.quotas(bandit_uid), keys.quota_changes(bandit_uid)]
        number, is_all, *changed = await self._redis.script("changed_quotas", names, [after])
        records = {
            quota_id.decode(): record or None
            for quota_id, record in zip(changed[::2], changed[1::2], strict=True)
        }
        return QuotaChanges(number, records, bool(is_all))

    async def put(
        self, bandit_uid: str, quota_id: str, record: bytes, terms: QuotaTerms, *, heard_changes: int
    ) -> bool:
        """Store a quota if nothing has changed since that change of the quotas; whether it was stored.

        Counts go on for the same ``terms.uid``, else they start again.
        """
        names = [keys.quotas(bandit_uid), *_of_quota(bandit_uid, quota_id), keys.quota_changes(bandit_uid)]
        arguments: list[Argument] = [quota_id, record, heard_changes, *terms, self.most_changes]
        return bool(await self._redis.script("put_quota", names, arguments))

    async def delete(self, bandit_uid: str, quota_id: str) -> bool:
        names = [keys.quotas(bandit_uid), *_of_quota(bandit_uid, quota_id), keys.quota_changes(bandit_uid)]
        return bool(await self._redis.script("delete_quota", names, [quota_id, self.most_changes]))

    async def changed(self, bandit_uid: str) -> int:
        """Tell all processes that the quotas of a bandit changed; how often now (``Registry.quotas``)."""
        names = [keys.QUOTAS, keys.REGISTRY_VERSION]
        return int(await self._redis.script("note_quotas", names, [bandit_uid]))

    async def share(
        self, bandit_uid: str, process: str, number: int, asked: Sequence[ShareAsked]
    ) -> tuple[int, Sequence[Share]]:
        """Change the shares of a process, as far as there is something left; (the store's time in ms, them).

        A process that wants less than it holds has stopped to spend the rest when it asks.
        ``number`` ascends with every call of a process: one that arrives after a later one changes nothing.
        """
        names = [name for question in asked for name in _of_quota(bandit_uid, question.id)]
        arguments: list[Argument] = [process, number]
        for question in asked:
            arguments += question[1:]
        now_ms, *answers = await self._redis.script("share_quotas", names, arguments)
        return now_ms, [Share(bool(exists), bool(holds), *rest) for exists, holds, *rest in answers]

    async def reward(self, bandit_uid: str, counts: Mapping[str, int]) -> None:
        """Count rewards of the arms of these quotas, in their current windows; each call, repeated or not."""
        names = [name for quota_id in counts for name in _of_quota(bandit_uid, quota_id)]
        await self._redis.script("reward_quotas", names, [*counts.values()])

    async def erase(self, bandit_uid: str) -> None:
        """Remove everything of a deleted bandit.

        Two round trips.
        """
        names = [keys.quotas(bandit_uid), *_of_quota(bandit_uid, ""), keys.quota_changes(bandit_uid)]
        await self._redis.script("erase_quotas", names)
        await self._redis.command("HDEL", keys.QUOTAS, bandit_uid)


def _of_quota(bandit_uid: str, quota_id: str) -> list[str]:
    """The keys of one quota, or of none the stems that scripts complete: itself, its shares."""
    return [keys.quota(bandit_uid, quota_id), keys.quota_shares(bandit_uid, quota_id)]
