"""The cache of filters, for all catalogues: the matches of each, found once and then kept up to date.

A cached filter costs nothing until its catalogue changes, and then in proportion to the change.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from app.catalogues.catalogue import Catalogue
from app.filtering.filter_limits import FilterLimits
from app.filtering.filter_plan import FilterPlan, PlanOptions, plan_filter
from app.filtering.filtered_snapshot import matched, without_rows
from app.filtering.known_filter import FilterStatus, KnownFilter
from app.filters.filter import Filter
from app.filters.overview import FieldOverview
from app.indexes.eligible_rows import eligible_rows, work
from app.indexes.snapshot import Snapshot
from app.platform.cache import BoundedCache
from app.platform.errors import NoArms, shown
from app.platform.long_work import LongWork
from shortlist.index.cancellation import Cancellation, Cancelled

log = logging.getLogger("shortlist.filters")

LONG_EVALUATION = 2_500_000  # values: two milliseconds at most; a thread would take a tenth of one to begin
EVALUATIONS = 2
WAITING = 256
LOOK_EVERY = 4  # uses: after these, whether it is to be planned
SHOWN_CHARS = 4_096  # of a filter's key
COPY_SHARE = 0.25  # of the memory for filters, for the copy of one of them
_SEED = 0x66696C74


def among(base: Snapshot, arm_filter: Filter) -> Snapshot:
    """The arms of ``base`` matched by a filter of one use: nothing is kept.

    Cost: one evaluation of the filter, and O(rows of the table).
    """
    return without_rows(base, ~matched(base, arm_filter))


def no_arms(catalogue: Catalogue, arm_filter: Filter | None, detail: str = "") -> NoArms:
    """The refusal where nothing is eligible. It names the filter's fields whose conditions no arm can meet.

    ``detail``: a further sentence; by default about a filter without matches.
    """
    is_empty = arm_filter is None or not len(catalogue.index)
    if not detail:
        detail = "the catalogue has no arms" if is_empty else "no arm of the catalogue matches the filter"
    if arm_filter is None or is_empty or catalogue.resident is None:
        return NoArms(detail)
    snapshot = catalogue.resident.snapshot()
    unmet = FieldOverview(snapshot.attributes, snapshot.table.live_rows).unmet(arm_filter)
    if unmet:
        detail += ": " + "; ".join(why for _, why in unmet)
    error = NoArms(detail)
    error.errors = [(("filter", shown(name)), why) for name, why in unmet]
    return error


class FilteredSnapshots:
    """The filters of all catalogues, within ``capacity_bytes``. For the event loop.

    ``limits``: of filters used for the first time.
    """

    def __init__(self, *, capacity_bytes: int, limits: FilterLimits = FilterLimits()) -> None:
        self.limits = limits
        self._filters: BoundedCache[tuple[str, str], KnownFilter] = BoundedCache(capacity_bytes)
        self._evaluations = LongWork(threads=EVALUATIONS, waiting=WAITING)
        self._copy_bytes = int(COPY_SHARE * capacity_bytes)
        self._one_plan_at_a_time = asyncio.Semaphore(1)
        self._plans: set[asyncio.Task[None]] = set()
        self._stop = Cancellation()

    @property
    def bytes(self) -> int:
        """Memory of the cache."""
        return self._filters.bytes

    async def of(self, catalogue: Catalogue, arm_filter: Filter | None) -> Snapshot:
        """The present arms of the catalogue matched by ``arm_filter``; all of them without a filter.

        Awaits nothing unless a long evaluation is needed, which is done in a thread.
        """
        snapshot = catalogue.index.snapshot()
        if arm_filter is None:
            return snapshot
        known_filter = self._filters.get((catalogue.uid, arm_filter.key))
        if known_filter is None or not known_filter.is_of(snapshot):
            known_filter = await self._followed(catalogue, arm_filter)
        filtered = known_filter.snapshot
        assert filtered is not None  # noqa: S101 - for the type checker: it was made just now
        known_filter.uses += 1
        # Not at each use: looking whether a plan is due would be a good part of a quick search.
        if not known_filter.uses % LOOK_EVERY and known_filter.is_due(filtered.all_arms, time.monotonic()):
            known_filter.is_busy = True
            task = asyncio.create_task(self._plan(catalogue, known_filter))
            self._plans.add(task)
            task.add_done_callback(self._plans.discard)
        return filtered

    def in_use(self, catalogue: Catalogue, most: int) -> Sequence[FilterStatus]:
        """The most often used filters of a catalogue; those too long to be read are left out."""
        short = (key for key in self._filters if key[0] == catalogue.uid and len(key[1]) <= SHOWN_CHARS)
        filters_in_use = [
            known_filter for known_filter in map(self._filters.peek, short) if known_filter is not None
        ]
        filters_in_use.sort(key=lambda known_filter: -known_filter.uses)
        return [known_filter.status(catalogue.index.snapshot()) for known_filter in filters_in_use[:most]]

    def close(self) -> None:
        self._stop.cancel()
        for task in self._plans:
            task.cancel()
        self._evaluations.close()

    async def _followed(self, catalogue: Catalogue, arm_filter: Filter) -> KnownFilter:
        """The cached record of a filter, brought up to the snapshot of this moment."""
        key = catalogue.uid, arm_filter.key
        snapshot, known_filter = catalogue.index.snapshot(), self._filters.peek(key)
        before = known_filter.eligible if known_filter is not None else None
        # Only arms still to be evaluated count: after the first turn of the loop, those which came meanwhile.
        while work(arm_filter, snapshot.table, snapshot.attributes, before) > LONG_EVALUATION:
            before = await self._evaluations.run(
                partial(eligible_rows, arm_filter, snapshot.table, snapshot.attributes, before)
            )
            # Arms may have come meanwhile, and others may have used the filter.
            snapshot, known_filter = catalogue.index.snapshot(), self._filters.peek(key)
        eligible = eligible_rows(arm_filter, snapshot.table, snapshot.attributes, before)
        if known_filter is None:
            known_filter = KnownFilter(arm_filter, eligible, self.limits)
        known_filter.follow(snapshot, eligible)
        self._filters.put(key, known_filter, known_filter.memory_bytes)
        return known_filter

    async def _plan(self, catalogue: Catalogue, known_filter: KnownFilter) -> None:
        """Plan a filter in a thread; the filter takes the plan."""
        try:
            async with self._one_plan_at_a_time:
                started = time.monotonic()
                plan = await asyncio.to_thread(self._planning(catalogue, known_filter))
                now = time.monotonic()
                known_filter.plan_from = now + self.limits.cooldown * (now - started)
        except Cancelled:
            return
        except Exception:  # what served goes on serving
            log.exception("planning a filter of %s failed", catalogue.name)
            known_filter.plan_from = time.monotonic() + self.limits.after_failure_s
            return
        finally:
            known_filter.is_busy = False
        known_filter.take(plan)
        key = catalogue.uid, known_filter.arm_filter.key
        # Unless dropped from the cache. ``peek``: to count memory is no use of the filter.
        if self._filters.peek(key) is known_filter:
            self._filters.put(key, known_filter, known_filter.memory_bytes)

    def _planning(self, catalogue: Catalogue, known_filter: KnownFilter) -> Callable[[], FilterPlan]:
        """Make the function that plans a filter of this moment, in a thread."""
        snapshot, before, recent = catalogue.index.snapshot(), known_filter.eligible, (*known_filter.recent,)
        target, limits = catalogue.index_options.target_recall, known_filter.limits
        options = PlanOptions(self._copy_bytes, target, limits, self._stop.check)
        rng = np.random.default_rng((_SEED, int(catalogue.uid[:8], 16)))

        def plan() -> FilterPlan:
            eligible = eligible_rows(known_filter.arm_filter, snapshot.table, snapshot.attributes, before)
            return plan_filter(snapshot, eligible, options, recent=recent, rng=rng)

        return plan
