"""The arms that filters let in, of all catalogues: found once, kept up to date, searched the best strategy.

A filter that was asked before costs nothing until its catalogue changes, and then as much as the change is
large. A few arms are copied side by side when a filter is asked the second time. For more, the strategies to
search are measured in a thread after a few questions (``indexes.filter_plan``), and the best one serves from
then on. Until then every arm that is let in is compared.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import numpy as np

from app.filters.filter import Filter
from app.indexes.eligible_rows import EligibleRows, eligible_rows, work
from app.indexes.filter_plan import FilterPlan, PlanOptions, graph_number, plan_filter, renew
from app.indexes.filtered_search import exact_reads, is_gathered
from app.indexes.filtered_snapshot import FilteredSnapshot
from app.indexes.hnsw import HnswGraph, arm_bytes
from app.indexes.live import IndexOptions, Snapshot
from app.indexes.scan_cost import measured_scan_cost
from app.indexes.search_strategies import CatalogueGraph, MakeGraph, OwnCopy, SearchStrategy
from app.services.bounded.cache import BoundedCache
from app.services.bounded.long_work import LongWork
from app.services.catalogues.catalogues import Catalogue
from shortlist.types import Rows, Vector

log = logging.getLogger("shortlist.filters")

LONG_EVALUATION = 2_500_000  # values: two milliseconds at most; a thread would take a tenth of one to begin
EVALUATIONS = 2
WAITING = 256
PLAN_AFTER = 4  # questions
GRAPH_AFTER = 64
LOOK_EVERY = 4  # questions: after these, whether anything is to be measured or made anew
SMALL_NUMBERS = (
    65_536  # so few are scanned in some microseconds: a copy is made at once, and nothing measured
)
RECENT = 128
GROWTH = 1.2
REST = 20.0  # times what planning took
STALE = 0.25  # share of what was built that came or went since: it is made anew
RENEWAL_REST = 2.0  # times what making it anew took
KNOWN_BYTES = 2_000
SHOWN_CHARS = 4_096  # of a filter's key
TEXT_COPIES = 3  # of what a filter says: as given, read, and as its key
COPY_SHARE, GRAPH_SHARE = 0.25, 0.5  # of the memory for filters, for one of them
_SEED = 0x66696C74
AFTER_FAILURE_S = 60.0
SMALL = "few arms are let in: they were copied side by side"
NONE_ELIGIBLE = "the filter lets in no arm of the catalogue"


class Work(Protocol):
    """Makes a plan for the arms that are let in, or another fallback strategy; ``recent`` are the last
    queries.

    For any thread.
    """

    def __call__(
        self,
        snapshot: Snapshot,
        eligible: EligibleRows,
        *,
        recent: Sequence[Vector],
        rng: np.random.Generator,
    ) -> FilterPlan | SearchStrategy | None: ...


class Stopped(Exception):
    """The service stops: what is being built will not be used."""


@dataclass(slots=True, eq=False)
class _Known:
    """What is known of one filter over one catalogue. ``uses``: how often it was asked.

    ``strategy`` is of ``view``, the arms as they were when it was asked last; None: to be made. ``strategy``
    may be there without a ``plan``, and may have been lost since the plan was made. ``fallback``: an exact
    strategy, which serves while ``strategy`` is a graph that changes have degraded, or is lost.
    """

    arm_filter: Filter
    eligible: EligibleRows
    plan: FilterPlan | None = None
    strategy: SearchStrategy | None = None
    fallback: SearchStrategy | None = None
    view: FilteredSnapshot | None = None
    uses: int = 0
    is_busy: bool = False
    plan_from: float = 0.0
    renew_from: float = 0.0
    recent: deque[Vector] = field(default_factory=lambda: deque(maxlen=RECENT))

    @property
    def memory_bytes(self) -> int:
        said = KNOWN_BYTES + TEXT_COPIES * len(self.arm_filter.key)
        is_listed = self.view is None or is_gathered(self.view.view, self.eligible)
        held = self.eligible.memory_bytes(listed=is_listed)
        return (
            said
            + held
            + sum(
                strategy.memory_bytes for strategy in (self.strategy, self.fallback) if strategy is not None
            )
        )

    @property
    def serving(self) -> SearchStrategy | None:
        """What serves: ``strategy`` unless it is lost or a graph that is degraded; None: nothing that was
        made.
        """
        strategy, plan = self.strategy, self.plan
        if strategy is None or (
            plan is not None and strategy.kind == "hnsw" and _is_degraded(strategy, plan)
        ):
            return self.fallback
        return strategy

    def take(self, made: FilterPlan | SearchStrategy | None) -> None:
        """Serve by this plan, or with this fallback strategy, from now on."""
        self.view = None
        if not isinstance(made, FilterPlan):
            self.fallback = made
            return
        plan = made
        if plan.fallback is not None:
            self.fallback = plan.fallback
        strategy = plan.strategy
        if plan.is_refuted:
            strategy = self.fallback
        if strategy is None or strategy.kind != "hnsw":
            self.fallback = None  # there is no graph that it could stand in for
        self.plan, self.strategy = replace(plan, strategy=strategy, fallback=None), strategy


@dataclass(frozen=True, slots=True)
class FilterStatus:
    """A filter in use: how many arms it lets in, how it is searched, and how good that was measured to be."""

    filter: object
    eligible: int
    strategy: str
    uses: int
    recall_at_1: float
    ratio_mean: float
    expected_us: float
    reason: str


class FilteredViews:
    """The filters of all catalogues, within ``capacity_bytes``. For the event loop."""

    def __init__(self, *, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._known: BoundedCache[tuple[str, str], _Known] = BoundedCache(capacity_bytes)
        self._evaluations = LongWork(threads=EVALUATIONS, waiting=WAITING)
        self._planning = asyncio.Semaphore(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = threading.Event()

    @property
    def bytes(self) -> int:
        """Memory of all that is kept of filters."""
        return self._known.bytes

    async def of(self, catalogue: Catalogue, arm_filter: Filter | None) -> Snapshot:
        """The arms of the catalogue that ``arm_filter`` lets in, as it is now; all of them without a filter.

        Awaits nothing unless a long evaluation is needed, which is done in a thread.
        """
        snapshot = catalogue.index.snapshot()
        if arm_filter is None:
            return snapshot
        known = self._known.get((catalogue.uid, arm_filter.key))
        view = known.view if known is not None else None
        if known is None or view is None or view.all_arms is not snapshot or known.uses == 1:
            known, view = await self._followed(catalogue.uid, arm_filter, snapshot, known)
        known.uses += 1
        if not known.uses % LOOK_EVERY:
            self._look(catalogue, snapshot, known)
        return view

    async def _followed(
        self, uid: str, arm_filter: Filter, snapshot: Snapshot, known: _Known | None
    ) -> tuple[_Known, FilteredSnapshot]:
        """What is known of a filter at this snapshot, and the view of it."""
        before = known.eligible if known is not None else None
        find = partial(eligible_rows, arm_filter, snapshot.view, snapshot.attributes, before)
        if work(arm_filter, snapshot.view, snapshot.attributes, before) <= LONG_EVALUATION:
            eligible = find()
        else:
            eligible = await self._evaluations.run(find)
            known = self._known.peek((uid, arm_filter.key))  # somebody else may have asked meanwhile
        if known is None:
            known = _Known(arm_filter, eligible)
        view = known.view = _followed(known, snapshot, eligible)
        self._known.put((uid, arm_filter.key), known, known.memory_bytes)
        return known, view

    def in_use(self, catalogue: Catalogue, most: int) -> Sequence[FilterStatus]:
        """The filters of a catalogue that were asked most often; those too long to be read are left out."""
        short = (key for key in self._known if key[0] == catalogue.uid and len(key[1]) <= SHOWN_CHARS)
        held = [self._known.peek(key) for key in short]
        found = sorted((known for known in held if known is not None), key=lambda known: -known.uses)
        return [_status(catalogue.index.snapshot(), known) for known in found[:most]]

    def close(self) -> None:
        self._stopped.set()
        for task in self._tasks:
            task.cancel()
        self._evaluations.close()

    def _look(self, catalogue: Catalogue, snapshot: Snapshot, known: _Known) -> None:
        """Begin to measure, or to make anew, what needs it."""
        if known.is_busy or known.uses < PLAN_AFTER or _is_small(snapshot, known.eligible):
            return
        now = time.monotonic()
        work: Work
        if now >= known.plan_from and (known.plan is None or _is_stale(known.plan, snapshot, known)):
            work = partial(self._planned, known, self._maker(catalogue))
        elif known.fallback is not None and known.fallback.staleness > STALE:
            work = partial(_fallback_renewed, known.fallback)
        elif (
            known.plan is not None
            and now >= known.renew_from
            and _is_worth_renewing(known.plan, snapshot, known)
        ):
            work = partial(_renewed, known, known.plan)
        else:
            return
        known.is_busy = True
        task = asyncio.create_task(self._work(catalogue, known, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, catalogue: Catalogue, known: _Known, work: Work) -> None:
        """Do it in a thread, one such work at a time, and serve by the plan that comes out."""
        try:
            async with self._planning:
                snapshot, before = catalogue.index.snapshot(), known.eligible
                recent = tuple(known.recent)
                rng = np.random.default_rng((_SEED, int(catalogue.uid[:8], 16)))

                def run() -> FilterPlan | SearchStrategy | None:
                    eligible = eligible_rows(known.arm_filter, snapshot.view, snapshot.attributes, before)
                    return work(snapshot, eligible, recent=recent, rng=rng)

                made = await asyncio.to_thread(run)
        except Stopped:
            return
        except Exception:  # what served goes on serving
            log.exception("planning a filter of %s failed", catalogue.name)
            known.plan_from = known.renew_from = time.monotonic() + AFTER_FAILURE_S
            return
        finally:
            known.is_busy = False
        known.take(made)
        key = catalogue.uid, known.arm_filter.key
        if self._known.peek(key) is known:
            self._known.put(key, known, known.memory_bytes)

    def _planned(
        self,
        known: _Known,
        make: MakeGraph,
        snapshot: Snapshot,
        eligible: EligibleRows,
        *,
        recent: Sequence[Vector],
        rng: np.random.Generator,
    ) -> FilterPlan:
        started = time.monotonic()
        options = PlanOptions(
            copy_bytes=int(COPY_SHARE * self._capacity),
            graph_bytes=self._graph_bytes if known.uses >= GRAPH_AFTER else 0,
            make=make,
        )
        plan = plan_filter(snapshot, eligible, options, recent=recent, rng=rng)
        known.plan_from = time.monotonic() + REST * (time.monotonic() - started)
        return plan

    def _maker(self, catalogue: Catalogue) -> MakeGraph:
        return partial(self._graph, IndexOptions(**catalogue.record.index))  # type: ignore[arg-type]  # checked when made

    @property
    def _graph_bytes(self) -> int:
        return int(GRAPH_SHARE * self._capacity)

    def _graph(self, options: IndexOptions, snapshot: Snapshot, rows: Rows) -> HnswGraph | None:
        """None, before the long work of building it, for a graph that there is no memory for."""
        if len(rows) * arm_bytes(snapshot.view.dim, options.m) > self._graph_bytes:
            return None
        return HnswGraph.build(
            snapshot.view,
            rows,
            m=options.m,
            ef_construction=options.ef_construction,
            seed=_SEED,
            threads=1,
            check=self._check,
        )

    def _check(self) -> None:
        if self._stopped.is_set():
            raise Stopped


def _followed(known: _Known, snapshot: Snapshot, eligible: EligibleRows) -> FilteredSnapshot:
    """The view of this snapshot; ``known`` follows."""
    strategy = known.strategy.followed(snapshot, eligible) if known.strategy is not None else None
    if _is_small(snapshot, eligible) and (strategy is None or strategy.staleness > STALE):
        strategy = (
            OwnCopy(snapshot.view, eligible) if known.uses else None
        )  # asked once, it may be asked no more
    if known.plan is not None and strategy is not None:
        known.plan = replace(known.plan, strategy=strategy)  # lets go of the earlier one
    known.eligible, known.strategy = eligible, strategy
    known.fallback = known.fallback.followed(snapshot, eligible) if known.fallback is not None else None
    return FilteredSnapshot(
        snapshot.view,
        None,
        _expected_us(known, snapshot),
        known.recent,
        snapshot.attributes,
        snapshot,
        eligible,
        known.serving,
    )


def _renewed(
    known: _Known,
    plan: FilterPlan,
    snapshot: Snapshot,
    eligible: EligibleRows,
    *,
    recent: Sequence[Vector],
    rng: np.random.Generator,
) -> FilterPlan:
    started = time.monotonic()
    plan = renew(plan, snapshot, eligible, recent=recent, rng=rng)
    known.renew_from = time.monotonic() + RENEWAL_REST * (time.monotonic() - started)
    return plan


def _fallback_renewed(
    fallback: SearchStrategy, snapshot: Snapshot, eligible: EligibleRows, **_: object
) -> SearchStrategy | None:
    return fallback.renewed(snapshot, eligible)


def _expected_us(known: _Known, snapshot: Snapshot) -> float:
    serving = known.serving
    if known.plan is not None and serving is not None:
        return known.plan.us if serving is known.strategy else known.plan.exact_us
    if serving is not None:
        return measured_scan_cost().us(known.eligible.count * snapshot.view.dim)
    return measured_scan_cost().us(exact_reads(snapshot.view, known.eligible))


def _is_small(snapshot: Snapshot, eligible: EligibleRows) -> bool:
    return eligible.count * snapshot.view.dim <= SMALL_NUMBERS


def _is_stale(plan: FilterPlan, snapshot: Snapshot, known: _Known) -> bool:
    """Whether another strategy may be better by now: all of them are to be measured."""
    if plan.is_refuted or (plan.wants_graph and known.uses >= GRAPH_AFTER):
        return True
    if (plan.graph is None) != (graph_number(snapshot) is None):
        return True
    count = known.eligible.count
    return not plan.count / GROWTH <= count <= plan.count * GROWTH


def _is_worth_renewing(plan: FilterPlan, snapshot: Snapshot, known: _Known) -> bool:
    """Whether what serves is to be made anew, or its recall to be measured again."""
    if plan.strategy is None:
        return False
    if isinstance(known.strategy, CatalogueGraph):  # made anew it would have the same fresh arms
        return plan.graph != graph_number(snapshot)
    return known.strategy is None or known.strategy.staleness > STALE


def _is_degraded(strategy: SearchStrategy, plan: FilterPlan) -> bool:
    """Whether a search of a graph, with a scan of what came and went, takes as long as an exact search."""
    return strategy.staleness > max(0.0, 1.0 - plan.us / plan.exact_us)


def _status(snapshot: Snapshot, known: _Known) -> FilterStatus:
    plan, strategy = known.plan, known.serving
    served = plan if plan is not None and strategy is not None and strategy is known.strategy else None
    reason = SMALL if strategy is not None else "not measured yet"
    return FilterStatus(
        filter=known.arm_filter.document,
        eligible=known.eligible.count,
        strategy=strategy.name if strategy is not None else "exact",
        uses=known.uses,
        recall_at_1=served.recall_at_1 if served else 1.0,
        ratio_mean=served.ratio_mean if served else 1.0,
        expected_us=_expected_us(known, snapshot),
        reason=plan.reason if plan is not None else reason,
    )
