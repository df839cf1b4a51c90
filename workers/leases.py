"""Who of several workers folds which partition.

    >>> # workers a, b and c hold a lease; partitions 0..15
    >>> # a: 0, 3, 6, ...   b: 1, 4, 7, ...   c: 2, 5, 8, ...

A lease is renewed every quarter of its time. A worker that is killed or paused loses its lease when the time
is over, and the others share its partitions. For a while workers may not agree, and a partition may be folded
by two of them or by none. The watermark keeps that from being wrong, and the next renewals end it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from app.errors import Unavailable
from app.storage.protocol import WorkerLeases

log = logging.getLogger("shortlist.worker")

RENEWALS = 4


class Leases:
    """The lease of the worker ``name``, for ``lease_s`` seconds at a time."""

    def __init__(self, store: WorkerLeases, name: str, *, lease_s: float) -> None:
        self._store = store
        self._name = name
        self._lease_s = lease_s
        self._owned: frozenset[int] = frozenset()

    def owns(self, partition: int) -> bool:
        return partition in self._owned

    async def run(self) -> None:
        """Hold the lease until cancelled. While the store does not answer, the partitions stay the same."""
        while True:
            with contextlib.suppress(Unavailable):
                await self.renew()
            await asyncio.sleep(self._lease_s / RENEWALS)

    async def renew(self) -> None:
        """Begin the lease anew, and find out which partitions are this worker's. Raises Unavailable."""
        names = sorted(await self._store.join_workers(self._name, round(1_000 * self._lease_s)))
        mine = names.index(self._name)
        owned = frozenset(range(mine, self._store.partitions, len(names)))
        if owned != self._owned:
            self._owned = owned
            log.info("%d workers; this one has partitions %s", len(names), sorted(owned))

    async def leave(self) -> None:
        """Leave all partitions to the other workers, at once."""
        self._owned = frozenset()
        with contextlib.suppress(Unavailable):
            await self._store.leave_workers(self._name)
