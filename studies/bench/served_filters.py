"""Filters of a catalogue as the service keeps them, without its store and HTTP: for benchmarks."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

from app.catalogues.catalogue import Catalogue
from app.filtering.filter_limits import FilterLimits
from app.filtering.filtered_snapshots import FilteredSnapshots
from app.filtering.known_filter import PLAN_AFTER
from app.filters.filter import Filter
from app.indexes.live import IndexOptions, LiveIndex
from app.records.records import CatalogueRecord
from shortlist.types import Matrix

ASKED = PLAN_AFTER  # from here on either way to search may serve a filter
CACHE_BYTES = 512 << 20  # as by default in the service
_UID = "0" * 16


def new_views(limits: FilterLimits = FilterLimits()) -> FilteredSnapshots:
    """Filters of which none was asked before."""
    return FilteredSnapshots(capacity_bytes=CACHE_BYTES, limits=limits)


def served_catalogue(index: LiveIndex, options: IndexOptions) -> Catalogue:
    """The catalogue that the service would serve from this index, made with these options."""
    dim = index.snapshot().table.dim
    return Catalogue("bench", _UID, CatalogueRecord(dim, asdict(options)), index)


async def plan(views: FilteredSnapshots, catalogue: Catalogue, wanted: Filter, queries: Matrix) -> None:
    """Ask these queries of a filter, at least ``ASKED``, and wait for the plan that follows.

    Planning begins when nothing else is to be done: after all of them.
    """
    for query in queries:
        (await views.of(catalogue, wanted)).search(query, 1)
    planning = asyncio.all_tasks() - {asyncio.current_task()}
    if planning:
        await asyncio.wait(planning)
