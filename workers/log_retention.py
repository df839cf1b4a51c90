"""Retention of the decision log: rows go when their time is over, and the oldest when there are too many.

All logs share the space: the share of a bandit is the space divided by the bandits with a log, and space left
free by others. A bandit beyond its share loses its oldest rows, rewarded or not, in all partitions up to one
time: the remaining rows never depend on their rewards, and no bandit pushes out the rows of another one.

Any number of processes may do so at the same time: every step is one script, which drops a few hundred rows.
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
# Number of pieces in which a bandit's rows in a partition are looked at; a hundred take the store a
# millisecond.
ROUGH, PIECES = 8, 100
SPARE = 64  # one of this many parts of the space is made free, so that it need not be done at every sweep

Sizes = Sequence[tuple[int, float]]  # pieces of a log in the order of time: when, in ms, and how many bytes


class LogRetention:
    """Drops rows, again and again. ``most_bytes``: bound of all rows together."""

    def __init__(self, store: Store, metrics: Metrics, *, most_bytes: int) -> None:
        self._store = store
        self._versions = StoredVersions(store)
        self._most_bytes = most_bytes
        self._bytes = metrics.log_bytes
        self._dropped = metrics.housekeeping.labels("rows_dropped")

    async def run(self) -> None:
        """Sweep until cancelled. An unreachable store is waited for."""
        await repeat(
            lambda: self.sweep(time.time_ns() // 1_000_000), every_s=EVERY_S, waits="rows stay for now"
        )

    async def sweep(self, now_ms: int) -> None:
        """Drop all rows whose time is over by ``now_ms``; then, while there are too many, the oldest of
        bandits beyond their share.
        """
        logs = await self._logs()
        for (partition, uid), keep_ms in logs.items():
            await self._trim(partition, uid, now_ms - keep_ms, keep_ms)
        while (held_bytes := sum(_totals(await self._sizes(logs, ROUGH)).values())) > (most := self._most()):
            # somewhat below the limit, else every round has to drop rows
            cuts = cuts_of(await self._sizes(logs, PIECES), most - most // SPARE)
            if not cuts:
                return
            for partition, uid in logs:
                if uid in cuts:
                    await self._trim(partition, uid, cuts[uid])
        self._bytes.set(held_bytes)

    def _most(self) -> int:
        """Logs alone never fill the store to the level at which rows are left out."""
        of_store = self._store.memory.use.most
        return min(self._most_bytes, of_store // 2) if of_store else self._most_bytes

    async def _sizes(self, logs: Collection[tuple[int, str]], pieces: int) -> Mapping[str, Sizes]:
        """The pieces of each bandit with rows, of all partitions."""
        result = defaultdict[str, list[tuple[int, float]]](list)
        for partition, uid in logs:
            result[uid] += await self._store.rows.sizes(partition, uid, pieces=pieces)
        return {uid: sorted(sizes) for uid, sizes in result.items() if sizes}

    async def _logs(self) -> Mapping[tuple[int, str], int]:
        """The time to keep rows, by partition and bandit; a bandit without a log by now keeps its last
        one.
        """
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
    """The times before which rows go, in ms, of bandits beyond their share of ``most_bytes``.

    Half of the excess goes, and then one looks again.
    """
    totals = _totals(logs)
    share = share_of(totals.values(), most_bytes)
    return {uid: _cut(logs[uid], (total - share) / 2) for uid, total in totals.items() if total > share}


def _totals(logs: Mapping[str, Sizes]) -> Mapping[str, float]:
    return {uid: sum(size for _, size in sizes) for uid, sizes in logs.items()}


def share_of(totals: Collection[float], most: float) -> float:
    """The share of each, with ``most`` for all together: some take less. Infinite where all fit."""
    left = most
    # Water filling: from the smallest on, each takes its need or an equal part of the remainder.
    for number, total in enumerate(sorted(totals)):
        share = left / (len(totals) - number)
        if total > share:
            return share
        left -= total
    return math.inf


def _cut(sizes: Sizes, bytes_over: float) -> int:
    """The end of the first pieces of so many bytes."""
    for ms, size in sizes:
        bytes_over -= size
        if bytes_over <= 0.0:
            return ms + 1
    return sizes[-1][0] + 1  # by rounding
