"""The quotas of one bandit in one process: what it charges the store for, and hears of it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence

from app.exposure_limits.known_quotas import KnownQuotas
from app.exposure_limits.rules import BanditQuota
from app.indexes.snapshot import Snapshot
from app.platform.errors import Unavailable
from app.storage.exposure_limits import QuotaStore
from app.storage.types import QuotaCount, QuotaEvent, QuotasNow, QuotaWindow

QuotaCharge = Sequence[QuotaCount]


class BanditQuotas:
    """``known``: what was heard of them. For the event loop. All calls raise Unavailable."""

    def __init__(self, store: QuotaStore, bandit_uid: str, known: KnownQuotas) -> None:
        self._store = store
        self._uid = bandit_uid
        self.known = known

    async def poll(self) -> None:
        """Hear of all changes."""
        is_all = False
        while not is_all:
            before = self.known.number
            heard = await self._store.changes(self._uid, before)
            if isinstance(heard, QuotasNow):
                await self.known.replace(heard)
            else:
                self.known.hear(heard, before)
            is_all = isinstance(heard, QuotasNow) or self.known.number == before

    async def charge(
        self, snapshot: Snapshot, rows: Sequence[int], event: QuotaEvent = "show"
    ) -> QuotaCharge | None:
        """Count each of these arms for each of its quotas; None: one refuses, and nothing is counted.

        ``rows``: of ``snapshot``, -1 of an arm that is gone.
        """
        counts = Counter(quota for quotas in self.known.members.quotas_of(snapshot, rows) for quota in quotas)
        if not counts:
            return ()
        charge = [QuotaCount(quota.id, quota.uid, count) for quota, count in counts.items()]
        counted, windows = await self._count(event, charge)
        if not counted:
            if not self.known.number:  # so much has changed that the answer does not say what is closed
                await self.poll()
            return None
        return [
            each._replace(times=-each.times, start=window.start_ms)
            for each, window in zip(charge, windows, strict=True)
            if window.start_ms >= 0
        ]

    async def refund(self, charge: QuotaCharge) -> None:
        """What was charged was not shown. Of a window that is over nothing is given back.

        While the store is away it cannot be given back: then it counts.
        """
        with contextlib.suppress(Unavailable):
            await self._count("refund", charge)

    async def reward(self, snapshot: Snapshot, rewarded: Sequence[tuple[str, str | None]]) -> None:
        """Count rewards of arms, each of a signal if there are some.

        Where the store does not answer it is not known whether they were counted.
        """
        rows = snapshot.whole.table.row_of_each([arm for arm, _ in rewarded]).tolist()
        of_arms = zip(rewarded, self.known.members.quotas_of(snapshot, rows), strict=True)
        rewards = Counter(
            quota
            for (_, signal), quotas in of_arms
            for quota in quotas
            if quota.rule.counts_reward_of(signal)
        )
        if rewards:
            counts = [QuotaCount(quota.id, quota.uid, count) for quota, count in rewards.items()]
            await self._count("reward", counts)

    async def windows(self, quotas: Sequence[BanditQuota]) -> Sequence[QuotaWindow]:
        """What was counted for these quotas until now."""
        _, windows = await self._count("read", [QuotaCount(quota.id, quota.uid, 0) for quota in quotas])
        return windows

    async def _count(
        self, event: QuotaEvent, counts: Sequence[QuotaCount]
    ) -> tuple[bool, Sequence[QuotaWindow]]:
        """Whether all of it was counted, and the windows of then."""
        after = self.known.number
        answer = await self._store.count(self._uid, event, counts, after=after)
        self.known.hear(answer.changes, after)
        for each, window in zip(counts, answer.windows, strict=True):
            quota = self.known.by_id.get(each.quota)
            if window.start_ms >= 0 and quota is not None and quota.uid == each.uid:
                self.known.note_left(quota, quota.rule.most - window.shown, window.ends_ms)
        return answer.counted, answer.windows
