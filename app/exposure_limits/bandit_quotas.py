"""The quotas of one bandit in one process: its charges to the store, and changes heard from the store."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy

from app.exposure_limits.known_quotas import KnownQuotas
from app.exposure_limits.rules import BanditQuota
from app.indexes.snapshot import Snapshot
from app.platform.deadlines import task_for_all
from app.platform.errors import Unavailable
from app.storage.exposure_limits import QuotaStore
from app.storage.types import QuotaAnswer, QuotaCount, QuotaEvent, QuotasNow, QuotaWindow

QuotaCharge = Sequence[QuotaCount]


class BanditQuotas:
    """``known``: what was heard of them. For the event loop. All calls raise Unavailable."""

    def __init__(self, store: QuotaStore, bandit_uid: str, known: KnownQuotas) -> None:
        self._store = store
        self._uid = bandit_uid
        self.known = known
        self._events: list[tuple[QuotaEvent, Sequence[QuotaCount]]] = []  # which the next call counts
        self._calling = asyncio.Lock()
        self._answer: asyncio.Task[QuotaAnswer]

    async def poll(self) -> None:
        """Hear of all changes."""
        is_all = False
        while not is_all:
            before = self.known.number
            changes = await self._store.changes(self._uid, before)
            if isinstance(changes, QuotasNow):
                await self.known.replace(changes)
            else:
                self.known.hear(changes, before)
            is_all = isinstance(changes, QuotasNow) or self.known.number == before

    async def charge(
        self, snapshot: Snapshot, rows: Sequence[int], event: QuotaEvent = "show"
    ) -> QuotaCharge | None:
        """Count each of these arms for each of its quotas; None: one refuses, and nothing is counted.

        ``rows``: of ``snapshot``, -1 for an arm which is gone.
        """
        counts = Counter(quota for quotas in self.known.members.quotas_of(snapshot, rows) for quota in quotas)
        if not counts:
            return ()
        charge = [QuotaCount(quota.id, quota.uid, count) for quota, count in counts.items()]
        is_counted, windows = await self._count(event, charge)
        if not is_counted:
            if not self.known.number:  # so much has changed that the answer does not say what is closed
                await self.poll()
            return None
        starts = [windows[charged.quota, charged.uid].start_ms for charged in charge]
        return [
            charged._replace(times=-charged.times, start=start)
            for charged, start in zip(charge, starts, strict=True)
            if start >= 0
        ]

    async def refund(self, charge: QuotaCharge) -> None:
        """Give a charge back: the arms were not shown. Windows in the past keep their counts.

        While the store is away the charge cannot be given back, and counts.
        """
        with contextlib.suppress(Unavailable):
            await self._count("refund", charge)

    async def reward(self, snapshot: Snapshot, rewarded: Sequence[tuple[str, str | None]]) -> None:
        """Count rewards of arms, each of a signal if there are some.

        Where the store does not answer, nobody knows whether they were counted.
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
        """The present counts of these quotas."""
        _, windows = await self._count("read", [QuotaCount(quota.id, quota.uid, 0) for quota in quotas])
        return [windows[quota.id, quota.uid] for quota in quotas]

    async def _count(
        self, event: QuotaEvent, counts: Sequence[QuotaCount]
    ) -> tuple[bool, Mapping[tuple[str, str], QuotaWindow]]:
        """Count, and return whether all were counted, and the windows of then.

        Calls of one turn of the event loop, or while another call is under way, go to the store together.
        """
        number = len(self._events)
        if not number:
            self._answer = task_for_all(self._ask())  # it begins after this turn
        self._events.append((event, counts))
        try:
            answer = await asyncio.shield(self._answer)
        except Unavailable as error:
            raise copy(error) from error  # each caller has its own, which may say more
        return answer.counted[number], answer.windows

    async def _ask(self) -> QuotaAnswer:
        async with self._calling:
            events, self._events = self._events, []
            after = self.known.number
            answer = await self._store.count(self._uid, events, after=after)
        self.known.hear(answer.changes, after)
        for (name, uid), window in answer.windows.items():
            quota = self.known.by_id.get(name)
            if window.start_ms >= 0 and quota is not None and quota.uid == uid:
                self.known.note_left(quota, quota.rule.most - window.shown, window.ends_ms)
        return answer
