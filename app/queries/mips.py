"""One-shot maximum inner product search and nearest neighbours, over catalogues and over given vectors.

A method is a row of ``METHODS``, with its two searches and its promise. Vectors of a request are read
in rows, as they came. Nothing is prepared for them, so a sampled coordinate takes longer than in the blocked
copy of a catalogue; the number of reads is the algorithm's. The plan of a search depends on the costs of
reads. Without a seed these costs are measured on this machine; with a seed they are the constants ``SEEDED``,
and the same seed gives the same answer on every machine.

Notation
    n, N        number of arms, of coordinates
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from app.catalogues.adaptive_solver import IndependentSolvers, ladder
from app.catalogues.blocked_copies import NO_MEMORY, BlockedCopies, BlockedCopy
from app.catalogues.catalogue import Catalogue
from app.engines.engine_index import EngineIndex
from app.engines.proposals import Proposals
from app.filtering.filtered_snapshots import FilteredSnapshots, no_arms
from app.filters.filter import Filter
from app.indexes.live import IndexOptions, LiveIndex
from app.indexes.snapshot import Snapshot
from app.platform.errors import DimensionMismatch, Invalid, TooLarge
from app.platform.long_work import LongWork
from shortlist.guarantee import Guarantee, exactly
from shortlist.index.exact import scan
from shortlist.mips import adaptive, bounded_me, exact, racing
from shortlist.mips.answer import Answer, Objective
from shortlist.mips.measured_costs import measure
from shortlist.mips.read_costs import ReadCosts
from shortlist.mips.rewards import CoordinateRewards, blocked_rewards
from shortlist.mips.row_major import RowMajorRewards
from shortlist.types import Vector

# A graph is built for one request over vectors, and thrown away.
MOST_GRAPH_NUMBERS = 1_000_000
# Never change these: the answer to a seed depends on them. A read is a read, whichever arm it is of; the
# overhead of a query was measured once.
SEEDED = ReadCosts(
    picked=1.0,
    whole=1.0,
    query=950_000.0,
    coordinate=60.0,
    arm=200.0,
    decision=250_000.0,
    check=2_000_000.0,
    large=2.0**24,
)

MipsMethod = Literal["bounded_me", "racing", "exact", "hnsw", "adaptive"]
Given = NDArray[np.floating[Any]]

UNKNOWN_RANGE = "value_range was not given, and finding it reads everything"
NO_GRAPH = "no graph serves this catalogue, or none would be faster for k arms and find enough of them"
NO_GRAPH_OF_VECTORS = "a graph was built, but it would be slower for k vectors or find too few of them"
GRAPH_OF_VECTORS = "a graph was built and searched"
GRAPH = "a graph was searched; GET the catalogue for its measured recall"
FINER_THAN_NET = "epsilon is finer than any net of queries in float64"
LADDER = "of the arms returned; arms of a mean product below epsilon / 8 may be left out"
GRAPHS = "independent graphs were asked about the nearest point of a net; for graphs nothing is proved"
LEAST_ETA = 1e-9
THREADS = 2
WAITING = 32


@dataclass(frozen=True, slots=True)
class MipsRequest:
    """A caller's request: the ``k`` best arms for a query.

    With probability at least 1 - ``delta`` the k-th arm is within ``epsilon`` of the k-th best, in units of
    the mean over coordinates. ``value_range`` bounds every coordinate's term of the objective. ``seed`` fixes
    the order in which coordinates are read.
    """

    query: Sequence[float] | Given
    k: int = 1
    method: MipsMethod = "bounded_me"
    epsilon: float = 0.1
    delta: float = 0.05
    objective: Objective = "inner_product"
    value_range: tuple[float, float] | None = None
    seed: int | None = None

    @property
    def promise(self) -> dict[str, Any]:
        return {"k": self.k, "epsilon": self.epsilon, "delta": self.delta}


@dataclass(frozen=True, slots=True)
class CatalogueJob:
    """One request over a catalogue of this moment. Shapes: query (N,).

    ``uid`` is the catalogue's, as a number: no caller can foresee the draws of a seed. ``independent``
    returns the arms as each of the independent solvers searches them.
    """

    uid: int
    snapshot: Snapshot
    prepared: BlockedCopy
    copies: BlockedCopies
    query: Vector
    request: MipsRequest
    independent: Callable[[], Sequence[Snapshot]]


@dataclass(frozen=True, slots=True)
class VectorsJob:
    """One request over vectors of its own. Shapes: vectors (n, N), query (N,)."""

    vectors: Given
    query: Vector
    request: MipsRequest


@dataclass(frozen=True, slots=True)
class MipsSearch:
    """A row of ``METHODS``: how a method answers either kind of request, and one with a filter.

    ``among_arms`` None: the features of the arms that the filter matches are vectors to search.
    ``proposed``: whether what an index proposes is enough, and no other arm is looked at.
    """

    in_catalogue: Callable[[CatalogueJob], Answer]
    in_vectors: Callable[[VectorsJob], Answer]
    among_arms: Callable[[Snapshot, Vector, MipsRequest], Answer] | None = None
    proposed: bool = False

    def in_snapshot(self, snapshot: Snapshot, query: Vector, request: MipsRequest) -> Answer:
        """Search the arms of a snapshot that a filter has thinned out. Rows are those of the snapshot."""
        if self.among_arms is not None:
            return self.among_arms(snapshot, query, request)
        rows = snapshot.eligible()
        result = self.in_vectors(VectorsJob(snapshot.features_of(rows), query, request))
        return replace(result, rows=rows[result.rows])


# Sampling -------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Sampler:
    """A search that reads a sample of the coordinates.

    ``few_coordinates``: the arms have too few to sample. ``is_quicker``: than a scan, as far as is known
    beforehand.
    """

    search: Callable[..., Answer]
    few_coordinates: Callable[[CoordinateRewards], bool]
    is_quicker: Callable[..., bool]

    def in_catalogue(self, job: CatalogueJob) -> Answer:
        request, table = job.request, job.prepared.table
        columns = job.copies.columns(job.prepared)
        # What the plan is made from; nothing is measured where everything is compared anyway.
        is_seeded = table.dim < bounded_me.LEAST_DIM or request.seed is not None
        options: dict[str, Any] = {
            "objective": request.objective,
            "value_range": request.value_range,
            "costs": SEEDED if is_seeded else job.copies.costs(),
        }
        rng = np.random.default_rng((request.seed or 0, job.uid, job.prepared.version))
        rewards: CoordinateRewards = RowMajorRewards(
            table.features, job.query, rng=rng, rows=table.live_rows, columns=columns, **options
        )
        has_few, fits = self.few_coordinates(rewards), job.copies.fits(job.prepared)
        if not rewards.violated:
            if has_few or rewards.size <= request.k:
                return _scan(job, racing.FEW_COORDINATES)
            if not self.is_quicker(rewards, **request.promise):
                return _scan(job, bounded_me.NOTHING_SAVED)
            if request.seed is None and not fits:
                return _scan(job, NO_MEMORY)
        # The blocked copy reads coordinates in an order of its own: the answer to a seed must not depend on
        # whether it is in memory.
        if request.seed is None and not has_few and fits:
            rewards = blocked_rewards(job.copies.arms(job.prepared), job.query, **options)
        return self.search(rewards, **request.promise)

    def in_vectors(self, job: VectorsJob) -> Answer:
        request = job.request
        if request.value_range is None:
            return _scan_vectors(job, UNKNOWN_RANGE)
        rewards = RowMajorRewards(
            job.vectors,
            job.query,
            rng=np.random.default_rng(request.seed),
            objective=request.objective,
            value_range=request.value_range,
            costs=SEEDED,
        )
        return self.search(rewards, **request.promise)


# Comparing everything -------------------------------------------------------------------------------
def _scan(job: CatalogueJob, reason: str | None = None) -> Answer:
    request, table = job.request, job.prepared.table
    if request.objective == "nearest":
        squares = table.norms**2
        result = exact.nearest(
            table.working, table.features, squares, job.query, k=request.k, exclude=table.dead
        )
    else:
        result = scan(table, job.query, request.k)
    reads = table.live * table.dim
    return Answer(result.rows, result.scores, reads, reads, exactly(reason))


def _scan_vectors(job: VectorsJob, reason: str | None = None) -> Answer:
    result = exact.exact_rows(job.vectors, job.query, k=job.request.k, objective=job.request.objective)
    return Answer(result.rows, result.scores, job.vectors.size, job.vectors.size, exactly(reason))


def _scan_among(snapshot: Snapshot, query: Vector, request: MipsRequest) -> Answer:
    if request.objective == "nearest":
        rows = snapshot.eligible()
        result = _scan_vectors(VectorsJob(snapshot.features_of(rows), query, request))
        return replace(result, rows=rows[result.rows])
    best = snapshot.search_exact(query, request.k)
    reads = snapshot.size * snapshot.table.dim
    return Answer(best.rows, best.scores, reads, reads, exactly(None))


# A graph --------------------------------------------------------------------------------------------
def _graph_among(snapshot: Snapshot, query: Vector, request: MipsRequest) -> Answer:
    _refuse_nearest(request)
    result = snapshot.search(query, request.k)
    total = snapshot.size * len(query)
    if result.exact:
        return Answer(result.rows, result.scores, total, total, exactly(NO_GRAPH))
    return Answer(result.rows, result.scores, None, total, Guarantee("none", reason=GRAPH))


def _graph_of_vectors(job: VectorsJob) -> Answer:
    _refuse_nearest(job.request)
    vectors = job.vectors
    if vectors.size > MOST_GRAPH_NUMBERS:
        limit = f"a graph is built over at most {MOST_GRAPH_NUMBERS:,} numbers; store them in a catalogue"
        raise TooLarge(limit, path=("vectors",))
    index = LiveIndex(vectors.shape[1], IndexOptions(kind="hnsw"))
    index.upsert([str(row) for row in range(len(vectors))], vectors.astype(np.float64), range(len(vectors)))
    while (work := index.begin_maintenance()) is not None:
        work.run()
        index.finish(work)
    result = index.snapshot().search(job.query, job.request.k)
    if result.exact:
        return Answer(result.rows, result.scores, vectors.size, vectors.size, exactly(NO_GRAPH_OF_VECTORS))
    guarantee = Guarantee("none", reason=GRAPH_OF_VECTORS)
    return Answer(result.rows, result.scores, None, vectors.size, guarantee)


# The ladder -----------------------------------------------------------------------------------------
def _adaptive(job: CatalogueJob) -> Answer:
    _refuse_nearest(job.request)
    snapshot, largest = job.snapshot, job.snapshot.table.largest_norm
    eta = adaptive.eta_of(job.query, largest, job.request.epsilon)
    if eta < LEAST_ETA:
        return _scan(job, FINER_THAN_NET)
    solvers, total = job.independent(), snapshot.size * snapshot.table.dim
    rungs = ladder(solvers, snapshot.features_of, largest_norm=largest, eta=eta)
    result = rungs.search(job.query, job.request.k)
    if solvers[0].proposes:
        return Answer(result.rows, result.scores, None, total, Guarantee("none", reason=GRAPHS))
    return Answer(result.rows, result.scores, total, total, _ladder_promise(job.request))


def _adaptive_vectors(job: VectorsJob) -> Answer:
    _refuse_nearest(job.request)
    rows = job.vectors.astype(np.float64, copy=False)
    eta = adaptive.eta_of(job.query, float(np.linalg.norm(rows, axis=1).max()), job.request.epsilon)
    if eta < LEAST_ETA:
        return _scan_vectors(job, FINER_THAN_NET)
    result = adaptive.adaptive(rows, job.query, k=job.request.k, eta=eta)
    return Answer(result.rows, result.scores, rows.size, rows.size, _ladder_promise(job.request))


def _ladder_promise(request: MipsRequest) -> Guarantee:
    return Guarantee("pac", request.epsilon, 0.0, reason=LADDER)


def _refuse_nearest(request: MipsRequest) -> None:
    if request.objective == "nearest":
        raise Invalid("graphs hold inner products only; use another method", path=("objective",))


_BOUNDED_ME = _Sampler(bounded_me.bounded_me, bounded_me.few_coordinates, bounded_me.is_quicker)
_RACING = _Sampler(racing.racing, racing.few_coordinates, lambda *_, **__: True)

METHODS: Mapping[MipsMethod, MipsSearch] = {
    "bounded_me": MipsSearch(_BOUNDED_ME.in_catalogue, _BOUNDED_ME.in_vectors),
    "racing": MipsSearch(_RACING.in_catalogue, _RACING.in_vectors),
    "exact": MipsSearch(_scan, _scan_vectors, _scan_among),
    "hnsw": MipsSearch(
        lambda job: _graph_among(job.snapshot, job.query, job.request),
        _graph_of_vectors,
        _graph_among,
        proposed=True,
    ),
    "adaptive": MipsSearch(_adaptive, _adaptive_vectors),
}


@dataclass(frozen=True, slots=True)
class MipsResult:
    """The answer, with the ids of its arms if they have some."""

    answer: Answer
    elapsed_ms: float
    ids: Sequence[str] = ()
    catalogue_version: int = 0
    eligible: int | None = None


class Mips:
    """Searches, a few at a time."""

    def __init__(
        self, *, cache_bytes: int, independent: IndependentSolvers, filtered: FilteredSnapshots
    ) -> None:
        self._independent = independent
        self._filtered = filtered
        measured = partial(measure, time.thread_time, np.random.default_rng(0))
        self.copies = BlockedCopies(cache_bytes, costs=cache(measured))
        self._work = LongWork(threads=THREADS, waiting=WAITING)

    async def search(
        self, catalogue: Catalogue, request: MipsRequest, arm_filter: Filter | None = None
    ) -> MipsResult:
        """Search the arms of a catalogue matched by ``arm_filter``. Raises NoArms, DimensionMismatch,
        Invalid, Unavailable.
        """
        started = time.perf_counter()
        query = _query(request, catalogue.dim)
        if catalogue.index.resident is None:
            return await _proposed(catalogue, catalogue.index, query, request, arm_filter)
        version, snapshot = catalogue.version, await self._filtered.of(catalogue, arm_filter)
        if not snapshot.size:
            raise no_arms(catalogue, arm_filter)
        search = METHODS[request.method]
        if arm_filter is not None:
            answer = await self._work.run(lambda: search.in_snapshot(snapshot, query, request))
            ids = [snapshot.id_of(row) for row in answer.rows.tolist()]
        else:
            prepared = self.copies.prepare(catalogue)
            version = prepared.version
            job = CatalogueJob(
                uid=int(catalogue.uid, 16),
                snapshot=snapshot,
                prepared=prepared,
                copies=self.copies,
                query=query,
                request=request,
                independent=partial(self._independent.of, catalogue, snapshot),
            )
            answer = await self._work.run(lambda: search.in_catalogue(job))
            ids = [prepared.table.ids[row] for row in answer.rows.tolist()]
        eligible = None if arm_filter is None else snapshot.plain.eligible_count
        return MipsResult(answer, _ms_since(started), ids, version, eligible)

    async def search_vectors(self, vectors: Callable[[], Given], request: MipsRequest) -> MipsResult:
        """Search vectors, which are made (and checked) in the thread. Raises as ``search``, and TooLarge."""
        started = time.perf_counter()

        def work() -> Answer:
            matrix = vectors()
            job = VectorsJob(matrix, _query(request, matrix.shape[1]), request)
            return METHODS[request.method].in_vectors(job)

        answer = await self._work.run(work)
        return MipsResult(answer, _ms_since(started))

    def close(self) -> None:
        self._work.close()


async def _proposed(
    catalogue: Catalogue,
    index: EngineIndex,
    query: Vector,
    request: MipsRequest,
    arm_filter: Filter | None,
) -> MipsResult:
    """The best of the arms that an engine proposes."""
    started, version = time.perf_counter(), catalogue.version
    if not len(index):
        raise no_arms(catalogue, arm_filter)
    if not METHODS[request.method].proposed:
        catalogue.need_arms(f"the method {request.method}")
    _refuse_nearest(request)
    proposals = Proposals(index, [query], request.k, arm_filter=arm_filter)
    while True:
        snapshot = await proposals.more()
        hits = snapshot.search(query, request.k)
        if proposals.is_all or len(hits.rows) == request.k:
            break
    total, guarantee = len(index) * len(query), Guarantee("none", reason=GRAPH)
    answer = Answer(hits.rows, hits.scores, None, total, guarantee)
    ids = [snapshot.id_of(row) for row in hits.rows.tolist()]
    return MipsResult(answer, _ms_since(started), ids, version)


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1e3


def _query(request: MipsRequest, dim: int) -> Vector:
    query = np.asarray(request.query, dtype=np.float64)
    if len(query) != dim:
        raise DimensionMismatch(f"query must have {dim} numbers, not {len(query)}", path=("query",))
    return query
