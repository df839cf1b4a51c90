"""A buffer of rows for the decision log: choices do not wait for the log.

    added       when a choice is made; in the memory of this process
    written     with others, after ``rest_s`` at most when the store answers
    dropped     when the buffer is full, since the store is slow or away, or when the store has no room;
                choices go on

Rows in memory are lost when the process is killed. A rewarded decision gets its row all the same: its token
holds the fields of the row.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import groupby

from app.platform.background import OUTAGES
from app.platform.errors import Unavailable
from app.platform.metrics import Metrics
from app.platform.pauses import Pauses
from app.storage.memory import Level
from app.storage.store import Store
from app.storage.types import RowWrite

log = logging.getLogger("shortlist.decision_log")

RETRY_S = 0.5
LAST_TRY_S = 2.0
BATCH_SIZE = 200  # rows in one call: the store does nothing else for a millisecond or two
MOST_BYTES = 32 << 20
ROW_BYTES = 500  # that a row takes here besides its record


class RowBuffer:
    """Rows not yet written, at most ``most_bytes`` of them. ``run`` writes, ``stop`` ends."""

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        *,
        most_bytes: int = MOST_BYTES,
        rest_s: float = Pauses().rows_s,
        retry_s: float = RETRY_S,
        last_try_s: float = LAST_TRY_S,
    ) -> None:
        self._store = store
        self._rest_s, self._retry_s, self._last_try_s = rest_s, retry_s, last_try_s
        self._written, self._dropped = map(metrics.log_rows.labels, ("written", "dropped"))
        self._most_bytes = most_bytes
        self._rows: list[RowWrite] = []
        self._bytes = 0
        self._has_rows = asyncio.Event()
        self._writing = asyncio.Lock()

    def add(self, row: RowWrite) -> None:
        """Have the row written soon. Awaits nothing."""
        size = _size(row)
        if self._bytes + size > self._most_bytes or self._store.memory.is_reached(Level.OPTIONAL):
            self._dropped.inc()
            return
        self._bytes += size
        self._rows.append(row)
        if len(self._rows) == 1:
            self._has_rows.set()

    async def run(self) -> None:
        """Write what is added, until cancelled. An unreachable store is waited for."""
        while True:
            await self._has_rows.wait()
            await asyncio.sleep(self._rest_s)
            try:
                await self.flush()
            except Unavailable as error:
                OUTAGES.warn("rows of the decision log wait", error)
                await asyncio.sleep(self._retry_s)

    async def flush(self) -> None:
        """Write all rows added before this call. Raises Unavailable; unwritten rows stay."""
        async with self._writing:  # so that what another call has taken out is written, too
            # By partition: a call costs more than one of its rows.
            rows, self._rows = sorted(self._rows, key=self._partition), []
            self._has_rows.clear()
            written = 0
            try:
                for start in range(0, len(rows), BATCH_SIZE):
                    by_partition = groupby(rows[start : start + BATCH_SIZE], key=self._partition)
                    await asyncio.gather(
                        *(
                            self._store.rows.write(partition, list(rows_of_partition))
                            for partition, rows_of_partition in by_partition
                        )
                    )
                    written = min(len(rows), start + BATCH_SIZE)
            finally:  # to write a row again changes nothing
                self._bytes -= sum(map(_size, rows[:written]))
                # In front of what came meanwhile: rows stay in the order of their decisions.
                self._rows[:0] = rows[written:]
                if self._rows:
                    self._has_rows.set()
                self._written.inc(written)

    async def stop(self) -> None:
        """Write what waits, if the store answers soon."""
        try:
            async with asyncio.timeout(self._last_try_s):
                await self.flush()
        except (TimeoutError, Unavailable):
            log.warning("%d rows of the decision log are dropped: the store does not answer", len(self._rows))
            self._dropped.inc(len(self._rows))

    def _partition(self, row: RowWrite) -> int:
        return row.decision.learner.partition(self._store.partitions)


def _size(row: RowWrite) -> int:
    return len(row.record) + len(row.candidates) + ROW_BYTES
