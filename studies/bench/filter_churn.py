"""Filtered searches while 200 % of the arms are replaced, those of largest norm first: a part of
`shortlist bench filters`.

Notation
    K, d        arms (at all times), their dimension, 32
    share       of the arms that a filter matches; the filters take turns
    answers     searches for the best arm while the arms were replaced
    ineligible  answers that the filter does not match; dead: answers that were deleted or replaced by then.
                Both are told from a list of the living arms that no index has a part in
    recall      of every twentieth answer, against an exact search at the same moment
    p99_ratio   99th percentile of the times of a search / that of the same filter in the quiet catalogue

Of the arms that retire, every second is replaced under its own id, and the others are deleted and new ones
come. What replaces an arm has other features and other attributes. One thread does what the event loop of
the service does, with maintenance and plans in threads beside it; the graph has a fixed ef, as in `churn`.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from app.catalogues.catalogue import Catalogue
from app.filtering.filtered_snapshots import FilteredSnapshots
from app.filters.filter import Filter, parse
from app.indexes.live import LiveIndex
from shortlist.types import Matrix
from shortlist_client.progress import progress
from studies.bench.churn import OPTIONS, SWITCH_INTERVAL_S
from studies.bench.index_loop import IndexLoop
from studies.bench.served_filters import ASKED, new_views, plan, served_catalogue

SEED = 1_516
DIM = 32
LOTS = 10_000
QUIET_SHARE = 0.02  # of the answers, before anything changes
TURNOVER = 2.0
STRETCH = 0.2
BATCH = 100
CHECK_EVERY = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """``answers``: of all filters, one for each of the ``shares``. ``arms_per_s``: that are replaced."""

    arms: int = 100_000
    shares: Sequence[float] = (0.5, 0.1, 0.01, 0.001)
    answers: int = 1_000_000
    arms_per_s: int = 1_000


WHOLE, QUICK = Sizes(), Sizes(answers=40_000, arms_per_s=4_000)


@dataclass(slots=True)
class Tally:
    """What the searches of one filter showed."""

    us: list[float] = field(default_factory=list)
    ineligible: int = 0
    dead: int = 0
    checked: int = 0
    hits: int = 0

    def p(self, quantile: float) -> float:
        return float(np.quantile(self.us, quantile))


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A filter that lets in the arms of a lot below ``bound``."""

    share: float
    bound: int
    arm_filter: Filter


class Shop:
    """Arms that are replaced, and ``living``: lot and revision of every living arm by its id."""

    def __init__(self, index: LiveIndex, arms: int, rng: np.random.Generator) -> None:
        self.index = index
        self.features: Matrix = rng.standard_normal((arms, DIM))
        self.living: dict[str, tuple[int, int]] = {}
        self._rng = rng
        self._ids = [str(place) for place in range(arms)]
        self._revision = 0
        self._write(np.arange(arms))

    def longest(self, count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Slots of the arms of largest norm."""
        return np.argsort(-np.linalg.norm(self.features, axis=1))[:count]

    def replace(self, places: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        """Replace the arms at these places, every second by one of another id."""
        gone = [self._ids[place] for place in places[::2]]
        self.delete(gone)
        for arm in gone:
            del self.living[arm]
        for place in places[::2]:
            self._ids[place] = f"{place}-{self._revision}"
        self.features[places] = self._rng.standard_normal((len(places), DIM))
        self._write(places)

    def delete(self, ids: Sequence[str]) -> None:
        self.index.remove(ids)

    def _write(self, places: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        ids = [self._ids[place] for place in places]
        lots = self._rng.integers(0, LOTS, len(places)).tolist()
        revisions = range(self._revision, self._revision + len(places))
        self._revision += len(places)
        self.index.upsert(ids, self.features[places], revisions)
        self.index.describe(ids, [((), {"lot": lot}) for lot in lots])
        self.living.update(zip(ids, zip(lots, revisions, strict=True), strict=True))


class Searches:
    """Searches of all filters in turn, each counted and checked."""

    def __init__(
        self,
        views: FilteredSnapshots,
        catalogue: Catalogue,
        shop: Shop,
        shares: Sequence[float],
        rng: np.random.Generator,
    ) -> None:
        self.asked = [asked(share) for share in shares]
        self.tallies = [Tally() for _ in shares]
        self.count = 0
        self._views = views
        self._catalogue = catalogue
        self._shop = shop
        self._rng = rng

    async def plan(self) -> None:
        for each in self.asked:
            await plan(self._views, self._catalogue, each.arm_filter, self._rng.standard_normal((ASKED, DIM)))

    async def one(self) -> None:
        turn = self.count % len(self.asked)
        each, tally, query = self.asked[turn], self.tallies[turn], self._rng.standard_normal(DIM)
        self.count += 1
        started = time.perf_counter()
        snapshot = await self._views.of(self._catalogue, each.arm_filter)
        found = snapshot.search(query, 1)
        tally.us.append((time.perf_counter() - started) * 1e6)
        row = int(found.rows[0])
        lot, revision = self._shop.living.get(snapshot.id_of(row), (-1, -1))
        tally.dead += revision != snapshot.revision_of(row)
        tally.ineligible += lot >= each.bound
        if len(tally.us) % CHECK_EVERY == 1:
            tally.checked += 1
            tally.hits += found.rows[0] == snapshot.search_exact(query, 1).rows[0]
        await asyncio.sleep(0)  # plans begin and end here, as between two requests

    def fresh(self) -> list[Tally]:
        """Begin to count again; returns what was counted."""
        before, self.tallies, self.count = self.tallies, [Tally() for _ in self.asked], 0
        return before


def asked(share: float) -> Asked:
    bound = round(LOTS * share)
    return Asked(share, bound, parse({"lot": {"$lt": bound}}))


def rows(sizes: Sizes) -> list[dict[str, Any]]:
    """Replace 200 % of the arms; a row for each filter."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        with tempfile.TemporaryDirectory() as folder:
            return asyncio.run(_watch(Path(folder), sizes))
    finally:
        sys.setswitchinterval(interval)


async def _watch(folder: Path, sizes: Sizes) -> list[dict[str, Any]]:
    rng = np.random.default_rng(SEED)
    index = LiveIndex(DIM, OPTIONS, cache=folder / "churn.index", seed=SEED)
    shop = Shop(index, sizes.arms, rng)
    catalogue, views = served_catalogue(index, OPTIONS), new_views()
    searches, loop = Searches(views, catalogue, shop, sizes.shares, rng), IndexLoop(index, rng)
    try:
        loop.settle()
        await searches.plan()
        while searches.count < QUIET_SHARE * sizes.answers:
            await searches.one()
        quiet = searches.fresh()
        await _replace_all(shop, loop, searches, sizes)
    finally:
        loop.stop()
        views.close()
    ways = {str(status.filter): status for status in views.in_use(catalogue, 2 * len(sizes.shares))}
    return [
        {
            "part": "churn",
            "K": len(index),
            "share": each.share,
            "answers": len(tally.us),
            "ineligible": tally.ineligible,
            "dead": tally.dead,
            "recall_at_1": tally.hits / tally.checked,
            "p50_us": tally.p(0.5),
            "p99_us": tally.p(0.99),
            "quiet_p50_us": calm.p(0.5),
            "quiet_p99_us": calm.p(0.99),
            "p99_ratio": tally.p(0.99) / calm.p(0.99),
            "folds": loop.builds,
            "way_at_end": ways[str(each.arm_filter.document)].strategy,
        }
        for each, tally, calm in zip(searches.asked, searches.tallies, quiet, strict=True)
    ]


async def _replace_all(shop: Shop, loop: IndexLoop, searches: Searches, sizes: Sizes) -> None:
    per_stretch = int(STRETCH * sizes.arms)
    stretches = round(TURNOVER / STRETCH)
    replaced = 0
    for _ in progress(range(stretches), "stretches of churn"):
        retired = shop.longest(per_stretch)
        for start in range(0, per_stretch, BATCH):
            next_batch = time.monotonic() + BATCH / sizes.arms_per_s
            shop.replace(retired[start : start + BATCH])
            replaced += BATCH
            due = sizes.answers * replaced / (stretches * per_stretch)
            while searches.count < due or time.monotonic() < next_batch:
                loop.look()
                await searches.one()
