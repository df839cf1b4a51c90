"""k representative arms of a catalogue: greedy k-center over one version of it, in a thread.

Notation
    n, m, k     number of arms of the catalogue, its dimension, number of centres asked for
    layout      the arms in blocks of permuted coordinates (``kcenter.coordinates``), made once for a version

Every method is one row of ``METHODS``.

The permutation is a function of the catalogue's uid, which is random, and of its version. So a seed gives the
same answer after a restart, and clients cannot foresee the permutation. All calls on one version share it:
each is right with probability 1 - delta, but not independently of the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from shortlist.kcenter.center_set import CenterSet, Points
from shortlist.kcenter.coordinates import Coordinates, blocked
from shortlist.kcenter.ds_ts import ds_ts
from shortlist.kcenter.ds_ucb import ds_ucb
from shortlist.kcenter.naive_greedy import naive_greedy
from shortlist.kcenter.random_sampling import random_sampling
from shortlist.kcenter.stages import LEAST_SAMPLED_DIM
from shortlist.types import Rows
from shortlist_service.catalogues import Catalogue, Filter, FilteredSnapshots, Snapshot, no_arms
from shortlist_service.errors import Invalid, TooLarge
from shortlist_service.work import BoundedCache, LongWork

LAYOUT_CACHE_BYTES = 256 << 20
CHUNK = 8_192
THREADS = 1
WAITING = 8

MAX_CENTER_READS = 2_000_000_000
MAX_RANDOM_CENTER_READS = 200_000_000

CenterMethod = Literal["ds_ucb", "ds_ts", "naive", "random"]


@dataclass(frozen=True, slots=True)
class CentersRequest:
    """A caller's request for centres.

    With probability at least 1 - ``delta`` every centre was, when it was chosen, within ``epsilon`` of the
    farthest arm, in units of |u - v|^2 / m. ``ci`` names the confidence interval (``kcenter.intervals``),
    ``c_alpha`` is the constant of "experiment". ``mix`` is z of ds_ts. ``first`` is the id of the first
    centre; a random arm if None.
    """

    k: int
    method: CenterMethod = "ds_ucb"
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
    centers: CenterSet
    method: CenterMethod
    catalogue_version: int
    elapsed_ms: float


class CatalogueCenters:
    """Centres of catalogues, one search at a time."""

    def __init__(self, filtered: FilteredSnapshots) -> None:
        self._filtered = filtered
        self._layouts = Layouts(LAYOUT_CACHE_BYTES)
        self._work = LongWork(threads=THREADS, waiting=WAITING)

    async def find(
        self, catalogue: Catalogue, request: CentersRequest, arm_filter: Filter | None = None
    ) -> Centers:
        """Return k centres of the arms that ``arm_filter`` lets in.

        Raises NoArms, Invalid (k, first), TooLarge (n m k), Unavailable (too busy).
        """
        started = time.perf_counter()
        method = METHODS[request.method]
        catalogue.need_arms("a search for centres")
        version, arms = catalogue.version, await self._filtered.of(catalogue, arm_filter)
        # The layout of a whole catalogue is kept for the next request.
        layouts = self._layouts if arm_filter is None else Layouts(0)
        if arms.size == 0:
            raise no_arms(catalogue, arm_filter)
        first = _check(arms, request, method.most_reads)
        rows = arms.eligible()

        position = None if first is None else int(np.flatnonzero(rows == first)[0])
        job = _Job(
            uid=catalogue.uid,
            version=version,
            arms=arms,
            rows=rows,
            layouts=layouts,
            request=request,
            first=position,
        )
        centers = await self._work.run(lambda: method.find(job))
        ids = [arms.id_of(row) for row in rows[centers.centers].tolist()]
        return Centers(ids, centers, request.method, version, (time.perf_counter() - started) * 1e3)

    def close(self) -> None:
        self._work.close()


class Layouts:
    """The most recently used layouts, one for a catalogue, within ``capacity_bytes``.

    For one thread at a time.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._layouts: BoundedCache[str, tuple[int, Coordinates]] = BoundedCache(capacity_bytes)

    @property
    def bytes(self) -> int:
        return self._layouts.bytes

    def of(self, uid: str, version: int, points: Callable[[], Points]) -> Coordinates:
        """The layout of a version of a catalogue. One that is too large to be kept is made every time."""
        versioned = self._layouts.get(uid)
        if versioned is not None and versioned[0] == version:
            return versioned[1]
        layout = blocked(points(), rng=np.random.default_rng((int(uid, 16), version)))
        self._layouts.drop(uid)
        if layout.blocks.nbytes <= self._capacity:
            self._layouts.put(uid, (version, layout), layout.blocks.nbytes)
        return layout


def _check(arms: Snapshot, request: CentersRequest, most_reads: int) -> int | None:
    """Return the row of the first centre, None if none is given. Raises Invalid, TooLarge."""
    if request.k > arms.size:
        most = "the arms that match the filter" if arms.is_filtered else "the catalogue has arms"
        raise Invalid(f"k must not be more than {most}", path=("k",))
    if arms.size * arms.table.dim * request.k > most_reads:
        raise TooLarge(f"arms x dimension x k must not be more than {most_reads:,}", path=("k",))
    if request.first is None:
        return None
    rows = arms.rows_of([request.first])
    if not len(rows):
        raise Invalid("first must be an arm of the catalogue", path=("first",))
    return int(rows[0])


@dataclass(frozen=True, slots=True)
class _Job:
    """One request over rows of one version of a catalogue. ``first``: where the first centre is in them."""

    uid: str
    version: int
    arms: Snapshot
    rows: Rows
    layouts: Layouts
    request: CentersRequest
    first: int | None

    def points(self) -> Points:
        """The features: in float32 where that changes none of them, without a copy where it can be."""
        arms, rows = self.arms, self.rows
        single = np.empty((len(rows), arms.table.dim), dtype=np.float32)
        for start in range(0, len(rows), CHUNK):
            features = arms.features_of(rows[start : start + CHUNK])
            with np.errstate(over="ignore"):
                single[start : start + CHUNK] = features
            if not np.array_equal(single[start : start + CHUNK], features):
                break
        else:
            return single
        in_place = len(rows) == arms.table.rows and bool((rows == np.arange(len(rows))).all())
        return arms.table.features if in_place else arms.features_of(rows)


@dataclass(frozen=True, slots=True)
class CenterSearch:
    """A row of ``METHODS``: how to find centres, and the largest n m k that is served.

    What is promised comes with the centres, as ``CenterSet.guarantee``.
    """

    find: Callable[[_Job], CenterSet]
    most_reads: int = MAX_CENTER_READS


def _naive(job: _Job) -> CenterSet:
    rng = np.random.default_rng(job.request.seed)
    return naive_greedy(job.points(), k=job.request.k, first=job.first, rng=rng)


def _sampled(search: Callable[..., CenterSet], *options: str) -> Callable[[_Job], CenterSet]:
    """A search over random coordinates. ``options`` are the fields of a request that it alone takes."""

    def find(job: _Job) -> CenterSet:
        request = job.request
        if job.arms.table.dim < LEAST_SAMPLED_DIM:
            return _naive(job)
        return search(
            job.layouts.of(job.uid, job.version, job.points),
            k=request.k,
            delta=request.delta,
            ci=request.ci,
            c_alpha=request.c_alpha,
            epsilon=request.epsilon,
            first=job.first,
            rng=np.random.default_rng(request.seed),
            radius="exact",
            **{name: getattr(request, name) for name in options},
        )

    return find


METHODS: Mapping[CenterMethod, CenterSearch] = {
    "ds_ucb": CenterSearch(_sampled(ds_ucb)),
    "ds_ts": CenterSearch(_sampled(ds_ts, "mix")),
    "naive": CenterSearch(_naive),
    "random": CenterSearch(_sampled(random_sampling), most_reads=MAX_RANDOM_CENTER_READS),
}
