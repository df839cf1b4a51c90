"""The arms that filters let in, of all catalogues: found once, kept up to date, searched the best way.

A filter that was asked before costs nothing until its catalogue changes, and then as much as the change is
large. After a few questions the ways to search are measured in a thread (``indexes.filter_plan``), and the
best one serves from then on. Until then every arm that is let in is compared.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from app.algorithms.types import Rows, Vector
from app.filters.filter import Filter
from app.indexes.eligible_rows import EligibleRows, eligible_rows, work
from app.indexes.filter_plan import FilterPlan, PlanOptions, plan_filter
from app.indexes.filtered_search import exact_reads
from app.indexes.filtered_snapshot import FilteredSnapshot
from app.indexes.hnsw import HnswGraph, arm_bytes
from app.indexes.live import IndexOptions, Snapshot
from app.indexes.scan_cost import measured_scan_cost
from app.services.bounded.cache import BoundedCache
from app.services.catalogues.catalogues import Catalogue

log = logging.getLogger("shortlist.filters")

LONG_EVALUATION = 300_000  # values: about a millisecond
EVALUATIONS = 2
PLAN_AFTER = 4  # questions
GRAPH_AFTER = 64
LEAST_PLANNED = 20_000  # numbers: what is scanned in so little time needs no plan
RECENT = 128
GROWTH = 1.2
REST = 20.0  # times what planning took
KNOWN_BYTES = 2_000
SHOWN_CHARS = 4_096  # of a filter's key
TEXT_COPIES = 3  # of what a filter says: as given, read, and as its key
COPY_SHARE, GRAPH_SHARE = 0.25, 0.5  # of the memory for filters, for one of them
_SEED = 0x66696C74
NONE_ELIGIBLE = "the filter lets in no arm of the catalogue"


class Stopped(Exception):
    """The service stops: what is being built will not be used."""


@dataclass(slots=True, eq=False)
class _Known:
    """What is known of one filter over one catalogue. ``uses``: how often it was asked."""

    wanted: Filter
    eligible: EligibleRows
    plan: FilterPlan | None = None
    uses: int = 0
    is_planning: bool = False
    rest_until: float = 0.0
    recent: deque[Vector] = field(default_factory=lambda: deque(maxlen=RECENT))

    @property
    def memory_bytes(self) -> int:
        way = self.plan.way if self.plan is not None else None
        said = KNOWN_BYTES + TEXT_COPIES * len(self.wanted.key)
        return said + self.eligible.memory_bytes + (way.memory_bytes if way is not None else 0)


@dataclass(frozen=True, slots=True)
class FilterStatus:
    """A filter in use: how many arms it lets in, how it is searched, and how good that was measured to be."""

    filter: object
    eligible: int
    way: str
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
        self._evaluations = asyncio.Semaphore(EVALUATIONS)
        self._planning = asyncio.Semaphore(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = threading.Event()

    @property
    def bytes(self) -> int:
        """Memory of all that is kept of filters."""
        return self._known.bytes

    async def of(self, catalogue: Catalogue, wanted: Filter | None) -> Snapshot:
        """The arms of the catalogue that ``wanted`` lets in, as it is now; all of them without a filter.

        Awaits nothing unless a long evaluation is needed, which is done in a thread.
        """
        snapshot = catalogue.index.snapshot()
        if wanted is None:
            return snapshot
        known = self._known.get((catalogue.uid, wanted.key))
        if known is None or not known.eligible.is_of(snapshot.view, snapshot.attributes):
            known = await self._followed(catalogue.uid, wanted, snapshot, known)
        known.uses += 1
        self._plan_if_due(catalogue, snapshot, known)
        return _filtered(snapshot, known)

    async def _followed(self, uid: str, wanted: Filter, snapshot: Snapshot, known: _Known | None) -> _Known:
        """What is known of a filter at this snapshot."""
        before = known.eligible if known is not None else None
        find = partial(eligible_rows, wanted, snapshot.view, snapshot.attributes, before)
        if work(wanted, snapshot.view, snapshot.attributes, before) <= LONG_EVALUATION:
            eligible = find()
        else:
            async with self._evaluations:
                eligible = await asyncio.to_thread(find)
            known = self._known.peek((uid, wanted.key))  # somebody else may have asked meanwhile
        if known is None:
            known = _Known(wanted, eligible)
        known.eligible = eligible
        self._known.put((uid, wanted.key), known, known.memory_bytes)
        return known

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

    def _plan_if_due(self, catalogue: Catalogue, snapshot: Snapshot, known: _Known) -> None:
        if known.is_planning or known.uses < PLAN_AFTER or time.monotonic() < known.rest_until:
            return
        if known.plan is not None and not _is_stale(known.plan, snapshot, known):
            return
        if exact_reads(snapshot.view, known.eligible) < LEAST_PLANNED:
            return
        known.is_planning = True
        task = asyncio.create_task(self._plan(catalogue, known))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _plan(self, catalogue: Catalogue, known: _Known) -> None:
        try:
            async with self._planning:
                started = time.monotonic()
                wants_graph = known.uses >= GRAPH_AFTER
                options = PlanOptions(
                    copy_bytes=int(COPY_SHARE * self._capacity),
                    graph_bytes=self._graph_bytes if wants_graph else 0,
                    make=partial(self._graph, IndexOptions(**catalogue.record.index)),  # type: ignore[arg-type]  # checked when made
                )
                rng = np.random.default_rng((_SEED, int(catalogue.uid[:8], 16)))
                make = partial(
                    _planned,
                    known.wanted,
                    catalogue.index.snapshot(),
                    known.eligible,
                    options,
                    recent=tuple(known.recent),
                    rng=rng,
                )
                known.plan = await asyncio.to_thread(make)
                known.rest_until = time.monotonic() + REST * (time.monotonic() - started)
        except Stopped:
            return
        except Exception:  # exact searches go on serving
            log.exception("planning a filter of %s failed", catalogue.name)
            known.rest_until = time.monotonic() + 60.0
        finally:
            known.is_planning = False
        key = catalogue.uid, known.wanted.key
        if self._known.peek(key) is known:
            self._known.put(key, known, known.memory_bytes)

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


def _planned(
    wanted: Filter,
    snapshot: Snapshot,
    before: EligibleRows,
    options: PlanOptions,
    *,
    recent: Sequence[Vector],
    rng: np.random.Generator,
) -> FilterPlan:
    """A plan for the arms that are let in at this snapshot. ``before``: those of an earlier moment."""
    eligible = eligible_rows(wanted, snapshot.view, snapshot.attributes, before)
    return plan_filter(snapshot, eligible, options, recent=recent, rng=rng)


def _is_stale(plan: FilterPlan, snapshot: Snapshot, known: _Known) -> bool:
    """Whether what was measured is no longer so, or a graph of its own is worth trying by now."""
    if plan.wants_graph and known.uses >= GRAPH_AFTER:
        return True
    if plan.whole.view.table != snapshot.view.table or plan.whole.structure is not snapshot.structure:
        return True
    count = known.eligible.count
    return not plan.count / GROWTH <= count <= plan.count * GROWTH


def _filtered(snapshot: Snapshot, known: _Known) -> FilteredSnapshot:
    plan, eligible = known.plan, known.eligible
    way = plan.way if plan is not None and plan.way is not None and plan.way.serves(snapshot) else None
    if way is not None and plan is not None:
        us = plan.us
    else:
        us = measured_scan_cost().us(exact_reads(snapshot.view, eligible))
    return FilteredSnapshot(
        snapshot.view, None, us, known.recent, snapshot.attributes, snapshot, eligible, way
    )


def _status(snapshot: Snapshot, known: _Known) -> FilterStatus:
    view, plan = _filtered(snapshot, known), known.plan
    served = plan if plan is not None and view.way is not None else None
    return FilterStatus(
        filter=known.wanted.document,
        eligible=known.eligible.count,
        way=view.way.name if view.way is not None else "exact",
        uses=known.uses,
        recall_at_1=served.recall_at_1 if served else 1.0,
        ratio_mean=served.ratio_mean if served else 1.0,
        expected_us=view.expected_us,
        reason=plan.reason if plan is not None else "not measured yet",
    )
