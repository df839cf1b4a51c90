"""Runs the work that filters need (measuring and building strategies) in a thread, one at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from app.catalogues.catalogue import Catalogue
from app.filtering.filter_plan import FilterPlan, PlanOptions, plan_filter, renew
from app.filtering.known_filter import GRAPH_AFTER, KnownFilter, Work
from app.filtering.strategies import SearchStrategy
from app.indexes.eligible_rows import eligible_rows
from app.indexes.snapshot import Snapshot
from shortlist.index.cancellation import Cancellation, Cancelled
from shortlist.index.index import TunableIndex
from shortlist.index.planner import IndexOptions, build_over, bytes_over
from shortlist.index.table import longest_first
from shortlist.types import Rows

log = logging.getLogger("shortlist.filters")

COPY_SHARE, GRAPH_SHARE = 0.25, 0.5  # of the memory for filters, for one of them
_SEED = 0x66696C74


class FilterWorker:
    """For the event loop. ``capacity_bytes``: the memory for all filters."""

    def __init__(self, *, capacity_bytes: int) -> None:
        self._copy_bytes = int(COPY_SHARE * capacity_bytes)
        self._graph_bytes = int(GRAPH_SHARE * capacity_bytes)
        self._one_at_a_time = asyncio.Semaphore(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = Cancellation()

    def begin(
        self, catalogue: Catalogue, known_filter: KnownFilter, work: Work, done: Callable[[], None]
    ) -> None:
        """Do this work some time; the filter takes what comes out, and ``done`` is called."""
        known_filter.is_busy = True
        task = asyncio.create_task(self._run(catalogue, known_filter, work, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        self._stop.cancel()
        for task in self._tasks:
            task.cancel()

    async def _run(
        self, catalogue: Catalogue, known_filter: KnownFilter, work: Work, done: Callable[[], None]
    ) -> None:
        try:
            async with self._one_at_a_time:
                started = time.monotonic()
                outcome = await asyncio.to_thread(self._job(catalogue, known_filter, work))
                known_filter.rest(work, time.monotonic(), time.monotonic() - started)
        except Cancelled:
            return
        except Exception:  # what served goes on serving
            log.exception("planning a filter of %s failed", catalogue.name)
            known_filter.failed(time.monotonic())
            return
        finally:
            known_filter.is_busy = False
        known_filter.take(outcome)
        done()

    def _job(
        self, catalogue: Catalogue, known_filter: KnownFilter, work: Work
    ) -> Callable[[], FilterPlan | SearchStrategy | None]:
        """The work on the filter as it is now, for a thread."""
        snapshot, before = catalogue.index.snapshot(), known_filter.eligible
        plan, fallback, recent = known_filter.plan, known_filter.fallback, tuple(known_filter.recent)
        rng = np.random.default_rng((_SEED, int(catalogue.uid[:8], 16)))
        options = PlanOptions(
            copy_bytes=self._copy_bytes,
            graph_bytes=self._graph_bytes if known_filter.uses >= GRAPH_AFTER else 0,
            make=partial(self._graph, catalogue.index_options),
            target_recall=catalogue.index_options.target_recall,
            limits=known_filter.limits,
        )

        def run() -> FilterPlan | SearchStrategy | None:
            eligible = eligible_rows(known_filter.arm_filter, snapshot.table, snapshot.attributes, before)
            if work == "renew_fallback":
                return fallback.renewed(snapshot, eligible) if fallback is not None else None
            if work == "renew" and plan is not None:
                target = options.target_recall
                return renew(plan, snapshot, eligible, target_recall=target, recent=recent, rng=rng)
            return plan_filter(snapshot, eligible, options, recent=recent, rng=rng)

        return run

    def _graph(self, options: IndexOptions, snapshot: Snapshot, rows: Rows) -> TunableIndex | None:
        """None, before the long work of building it, for a graph that there is no memory for."""
        if bytes_over(len(rows), snapshot.table.dim, options) > self._graph_bytes:
            return None
        rows = longest_first(snapshot.table, rows)
        with self._stop.turn():
            return build_over(snapshot.table, rows, options, seed=_SEED, check=self._stop.give_way)
