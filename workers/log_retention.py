"""Retention of the decision log: rows go when their time is over, and the oldest when there are too many.

All logs share the space: the share of a bandit is the space divided by the bandits that log, and what others
leave free. A bandit that takes more loses its oldest rows, rewarded or not, in all partitions up to one time:
which rows are left never depends on what came of them, and no bandit pushes out the rows of another one.

Any number of processes may do it at the same time: every step is one script that drops a few hundred rows.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from app.bandits.versions import StoredVersions
from app.platform.background import repeat
from app.platform.metrics import Metrics
from app.storage.store import Store

EVERY_S = 10.0
STEP = 500
# Pieces that the rows of a bandit in a partition are looked at in; a hundred take the store a millisecond.
ROUGH, PIECES = 8, 100
SPARE = 64  # one of this many parts of the space is made free, so that it need not be done at every sweep

Sizes = Sequence[tuple[int, float]]  # pieces of a log in the order of time: when, in ms, and how many bytes


class LogRetention:
    """Drops rows, again and again. ``most_bytes``: that all rows may take together."""

    def __init__(self, store: Store, metrics: Metrics, *, most_bytes: int) -> None:
        self._store = store
        self._versions = StoredVersions(store)
        self._most_bytes = most_bytes
        self._bytes = metrics.log_bytes
        self._dropped = metrics.housekeeping.labels("rows_dropped")

    async def run(self) -> None:
        """Until it is cancelled. An unreachable store is waited for."""
        await repeat(
            lambda: self.sweep(time.time_ns() // 1_000_000), every_s=EVERY_S, waits="rows stay for now"
        )

    async def sweep(self, now_ms: int) -> None:
        """Drop all rows whose time is over by ``now_ms``; then, while there are too many, the oldest of those
        bandits that take more than their share.
        """
        logs = await self._logs()
        for (partition, uid), keep_ms in logs.items():
            await self._trim(partition, uid, now_ms - keep_ms, keep_ms)
        while (held := sum(_totals(await self._sizes(logs, ROUGH)).values())) > (most := self._most()):
            # somewhat below the limit, so that not every round has to drop rows
            cuts = cuts_of(await self._sizes(logs, PIECES), most - most // SPARE)
            if not cuts:
                return
            for partition, uid in logs:
                if uid in cuts:
                    await self._trim(partition, uid, cuts[uid])
        self._bytes.set(held)

    def _most(self) -> int:
        """Logs alone never fill the store to the level at which rows are left out."""
        of_store = self._store.memory.use.most
        return min(self._most_bytes, of_store // 2) if of_store else self._most_bytes

    async def _sizes(self, logs: Collection[tuple[int, str]], pieces: int) -> Mapping[str, Sizes]:
        """The pieces of each bandit that has rows, of all partitions."""
        result = defaultdict[str, list[tuple[int, float]]](list)
        for partition, uid in logs:
            result[uid] += await self._store.rows.sizes(partition, uid, pieces=pieces)
        return {uid: sorted(sizes) for uid, sizes in result.items() if sizes}

    async def _logs(self) -> Mapping[tuple[int, str], int]:
        """How long rows are kept, by partition and bandit; of one that no longer logs, as long as before."""
        versions = await self._versions.all()
        result = {}
        for partition in range(self._store.partitions):
            for uid, keep_ms in (await self._store.rows.logs(partition)).items():
                version = versions.get(uid)
                rule = None if version is None else version.record.log
                result[partition, uid] = keep_ms if rule is None else rule.keep_ms
        return result

    async def _trim(self, partition: int, uid: str, before_ms: int, keep_ms: int | None = None) -> None:
        dropped = STEP
        while dropped == STEP:
            dropped = await self._store.rows.trim(
                partition, uid, before_ms=before_ms, count=STEP, keep_ms=keep_ms
            )
            self._dropped.inc(dropped)


def cuts_of(logs: Mapping[str, Sizes], most_bytes: float) -> Mapping[str, int]:
    """Before when rows go, in ms, of those bandits that take more than their share of ``most_bytes``.

    Half of what is too much goes, and then one looks again.
    """
    totals = _totals(logs)
    share = share_of(totals.values(), most_bytes)
    return {uid: _cut(logs[uid], (total - share) / 2) for uid, total in totals.items() if total > share}


def _totals(logs: Mapping[str, Sizes]) -> Mapping[str, float]:
    return {uid: sum(size for _, size in sizes) for uid, sizes in logs.items()}


def share_of(totals: Collection[float], most: float) -> float:
    """What each may take, so that all take ``most`` together: some take less. Infinite where all fit."""
    left = most
    # Water filling: from the smallest on, each takes what it needs or an equal part of what is left.
    for number, total in enumerate(sorted(totals)):
        share = left / (len(totals) - number)
        if total > share:
            return share
        left -= total
    return math.inf


def _cut(sizes: Sizes, bytes_over: float) -> int:
    """The end of the first pieces that take so many bytes."""
    for ms, size in sizes:
        bytes_over -= size
        if bytes_over <= 0.0:
            return ms + 1
    return sizes[-1][0] + 1  # by rounding
