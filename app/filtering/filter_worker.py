"""Plans filters in a thread, one at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import numpy as np

from app.catalogues.catalogue import Catalogue
from app.filtering.filter_plan import FilterPlan, PlanOptions, plan_filter
from app.filtering.known_filter import KnownFilter
from app.indexes.eligible_rows import eligible_rows
from shortlist.index.cancellation import Cancellation, Cancelled

log = logging.getLogger("shortlist.filters")

COPY_SHARE = 0.25  # of the memory for filters, for the copy of one of them
_SEED = 0x66696C74


class FilterWorker:
    """For the event loop. ``capacity_bytes``: the memory for all filters."""

    def __init__(self, *, capacity_bytes: int) -> None:
        self._copy_bytes = int(COPY_SHARE * capacity_bytes)
        self._one_at_a_time = asyncio.Semaphore(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = Cancellation()

    def begin(self, catalogue: Catalogue, known_filter: KnownFilter, done: Callable[[], None]) -> None:
        """Plan a filter some time; the filter takes the plan, and ``done`` is called."""
        known_filter.is_busy = True
        task = asyncio.create_task(self._run(catalogue, known_filter, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        self._stop.cancel()
        for task in self._tasks:
            task.cancel()

    async def _run(self, catalogue: Catalogue, known_filter: KnownFilter, done: Callable[[], None]) -> None:
        try:
            async with self._one_at_a_time:
                started = time.monotonic()
                plan = await asyncio.to_thread(self._job(catalogue, known_filter))
                known_filter.rest(time.monotonic(), time.monotonic() - started)
        except Cancelled:
            return
        except Exception:  # what served goes on serving
            log.exception("planning a filter of %s failed", catalogue.name)
            known_filter.failed(time.monotonic())
            return
        finally:
            known_filter.is_busy = False
        known_filter.take(plan)
        done()

    def _job(self, catalogue: Catalogue, known_filter: KnownFilter) -> Callable[[], FilterPlan]:
        """The plan of the filter as it is now, for a thread."""
        snapshot, before = catalogue.index.snapshot(), known_filter.eligible
        recent = tuple(known_filter.recent)
        rng = np.random.default_rng((_SEED, int(catalogue.uid[:8], 16)))
        options = PlanOptions(
            self._copy_bytes, catalogue.index_options.target_recall, known_filter.limits, self._stop.check
        )

        def run() -> FilterPlan:
            eligible = eligible_rows(known_filter.arm_filter, snapshot.table, snapshot.attributes, before)
            return plan_filter(snapshot, eligible, options, recent=recent, rng=rng)

        return run
