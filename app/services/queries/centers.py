"""k representative arms of a catalogue: greedy k-center over one version of it, in a thread.

Notation
    n, m, k     arms of the catalogue, its dimension, centres asked for
    layout      the arms in blocks of permuted coordinates: made once for a version, kept while there is room

The permutation follows from the catalogue's random uid and its version. So a seed gives the same answer after
a restart, clients cannot foresee it, and calls on one version share it: each is right with probability
1 - delta, but not independently of the others.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from app.algorithms.kcenter.center_set import CenterSet, Points
from app.algorithms.kcenter.coordinates import Coordinates, blocked
from app.algorithms.kcenter.ds_ts import ds_ts
from app.algorithms.kcenter.ds_ucb import ds_ucb
from app.algorithms.kcenter.naive_greedy import naive_greedy
from app.algorithms.kcenter.random_sampling import random_sampling
from app.algorithms.kcenter.stages import LEAST_SAMPLED_DIM
from app.algorithms.types import Rows
from app.errors import Invalid, NoArms, TooLarge
from app.indexes.live import Snapshot
from app.services.bounded.long_work import LongWork
from app.services.catalogues.catalogues import Catalogue

LAYOUT_CACHE_BYTES = 256 << 20
CHUNK = 8_192
THREADS = 1
WAITING = 8

Method = Literal["ds_ucb", "ds_ts", "naive", "random"]


@dataclass(frozen=True, slots=True)
class CentersRequest:
    """What a caller asks of a catalogue; ``first`` is the id of the first centre, a random arm if None."""

    k: int
    method: Method = "ds_ucb"
    delta: float = 0.1
    ci: Literal["kl", "lil", "experiment"] = "kl"
    c_alpha: float = 0.1
    mix: float = 0.99
    epsilon: float = 0.0
    first: str | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Centers:
    """The answer: ids in the order they were chosen, and the version of the catalogue it holds for."""

    ids: Sequence[str]
    found: CenterSet
    method: Method
    catalogue_version: int
    elapsed_ms: float


class CatalogueCenters:
    """Centres of catalogues, one search at a time; ``most_reads`` bounds n m k."""

    def __init__(self) -> None:
        self._layouts = Layouts(LAYOUT_CACHE_BYTES)
        self._work = LongWork(threads=THREADS, waiting=WAITING)

    async def find(self, catalogue: Catalogue, request: CentersRequest, *, most_reads: int) -> Centers:
        """Return k centres. Raises NoArms, Invalid (k, first), TooLarge (n m k), Unavailable (too busy)."""
        started = time.perf_counter()
        version, view = catalogue.version, catalogue.index.snapshot()
        first = _check(view, request, most_reads)
        rows = view.page(-1, view.size)

        def work() -> CenterSet:
            start = None if first is None else int(np.flatnonzero(rows == first)[0])
            return self._centers(catalogue, version, _Arms(view, rows), request, start)

        found = await self._work.run(work)
        ids = [view.id_of(row) for row in rows[found.centers].tolist()]
        return Centers(ids, found, request.method, version, (time.perf_counter() - started) * 1e3)

    def close(self) -> None:
        self._work.close()

    def _centers(
        self, catalogue: Catalogue, version: int, arms: _Arms, request: CentersRequest, first: int | None
    ) -> CenterSet:
        rng = np.random.default_rng(request.seed)
        if request.method == "naive" or catalogue.dim < LEAST_SAMPLED_DIM:
            return naive_greedy(arms.points(), k=request.k, first=first, rng=rng)
        layout = self._layouts.get(catalogue.uid, version)
        if layout is None:
            order = np.random.default_rng((int(catalogue.uid, 16), version))
            layout = blocked(arms.points(), rng=order)
            self._layouts.keep(catalogue.uid, version, layout)
        options: dict[str, Any] = {
            "k": request.k,
            "delta": request.delta,
            "ci": request.ci,
            "c_alpha": request.c_alpha,
            "epsilon": request.epsilon,
            "first": first,
            "rng": rng,
            "radius": "exact",
        }
        if request.method == "ds_ts":
            return ds_ts(layout, mix=request.mix, **options)
        return (random_sampling if request.method == "random" else ds_ucb)(layout, **options)


class Layouts:
    """The most recently used layouts, one a catalogue, up to ``capacity_bytes``; for one thread at a time."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._kept: OrderedDict[str, tuple[int, Coordinates]] = OrderedDict()

    @property
    def bytes(self) -> int:
        return sum(layout.blocks.nbytes for _, layout in self._kept.values())

    def get(self, uid: str, version: int) -> Coordinates | None:
        kept = self._kept.get(uid)
        if kept is None or kept[0] != version:
            return None
        self._kept.move_to_end(uid)
        return kept[1]

    def keep(self, uid: str, version: int, layout: Coordinates) -> None:
        """Keep a layout in place of any other of its catalogue, unless it is too large by itself."""
        self._kept.pop(uid, None)
        if layout.blocks.nbytes > self._capacity:
            return
        self._kept[uid] = version, layout
        while self.bytes > self._capacity:
            self._kept.popitem(last=False)


def _check(view: Snapshot, request: CentersRequest, most_reads: int) -> int | None:
    """Return the row of the first centre, if one is given."""
    if view.size == 0:
        raise NoArms("the catalogue has no arms")
    if request.k > view.size:
        raise Invalid("k must not be more than the catalogue has arms", loc=("body", "k"))
    if view.size * view.view.dim * request.k > most_reads:
        raise TooLarge(f"arms x dimension x k must not be more than {most_reads:,}", loc=("body", "k"))
    if request.first is None:
        return None
    found = view.rows_of([request.first])
    if not len(found):
        raise Invalid("first must be an arm of the catalogue", loc=("body", "first"))
    return int(found[0])


@dataclass(frozen=True, slots=True)
class _Arms:
    """Some rows of a snapshot."""

    view: Snapshot
    rows: Rows

    def points(self) -> Points:
        """Their features: in float32 where that changes none of them, without a copy where it can be."""
        view, rows = self.view, self.rows
        single = np.empty((len(rows), view.view.dim), dtype=np.float32)
        for start in range(0, len(rows), CHUNK):
            features = view.features_of(rows[start : start + CHUNK])
            with np.errstate(over="ignore"):
                single[start : start + CHUNK] = features
            if not np.array_equal(single[start : start + CHUNK], features):
                break
        else:
            return single
        in_place = len(rows) == view.view.rows and bool((rows == np.arange(len(rows))).all())
        return view.view.features if in_place else view.features_of(rows)
