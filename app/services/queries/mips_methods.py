"""The methods of one-shot searches, a row of ``METHODS`` each; over catalogues and over given vectors.

Notation
    n, N        number of arms, of coordinates

Vectors of a request are read in rows, as they came. Nothing is prepared for them, so a sampled coordinate
takes longer than in a blocked copy of a catalogue; the number of reads is that of the algorithm.

The plan of a search depends on what reads cost. Without a seed these costs are measured on this machine. With
a seed they are ``SEEDED``, so that the same seed gives the same answer on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from app.errors import Invalid, TooLarge
from app.indexes.live import IndexOptions, LiveIndex, Snapshot
from app.services.catalogues.blocked_copies import NO_MEMORY, BlockedCopies, BlockedCopy
from app.services.queries.adaptive_search import FINER_THAN_NET, search_adaptively, search_vectors_adaptively
from shortlist.guarantee import Guarantee, exactly
from shortlist.mips import bounded_me, exact, racing
from shortlist.mips import columns as column_values
from shortlist.mips.answer import Answer, Objective
from shortlist.mips.read_costs import ReadCosts
from shortlist.mips.rewards import Rewards, blocked_rewards
from shortlist.mips.row_major import RowMajorRewards
from shortlist.types import Matrix, Vector

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

MethodName = Literal["bounded_me", "racing", "exact", "hnsw", "adaptive"]
Given = NDArray[np.floating[Any]]

UNKNOWN_RANGE = "value_range was not given, and finding it reads everything"
NO_GRAPH = "no graph serves this catalogue"
GRAPH_OF_VECTORS = "a graph was built and searched"
GRAPH = "a graph was searched; GET the catalogue for its measured recall"


@dataclass(frozen=True, slots=True)
class MipsRequest:
    """What a caller asks for: the ``k`` best arms for a query.

    With probability at least 1 - ``delta`` the k-th arm is within ``epsilon`` of the k-th best, in units of
    the mean over coordinates. ``value_range`` bounds every coordinate's term of the objective. ``seed`` fixes
    the order in which coordinates are read.
    """

    query: Sequence[float] | Given
    k: int = 1
    method: MethodName = "bounded_me"
    epsilon: float = 0.1
    delta: float = 0.05
    objective: Objective = "inner_product"
    value_range: tuple[float, float] | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class CatalogueJob:
    """One request over a catalogue as it is now. Shapes: query (N,).

    ``uid`` is the catalogue's, as a number: with it no caller can foresee what a seed draws. ``independent``
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
class Method:
    """A row of ``METHODS``: how a method answers either kind of request, and one with a filter.

    ``among_arms`` None: the features of the arms that the filter lets in are vectors to search.
    """

    in_catalogue: Callable[[CatalogueJob], Answer]
    in_vectors: Callable[[VectorsJob], Answer]
    among_arms: Callable[[Snapshot, Vector, MipsRequest], Answer] | None = None

    def among(self, snapshot: Snapshot, query: Vector, request: MipsRequest) -> Answer:
        """Search the arms of a snapshot that a filter has thinned out. Rows are those of the snapshot."""
        if self.among_arms is not None:
            return self.among_arms(snapshot, query, request)
        rows = snapshot.eligible()
        found = self.in_vectors(VectorsJob(snapshot.features_of(rows), query, request))
        return replace(found, rows=rows[found.rows])


# Sampling -------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Sampler:
    """A search that reads a sample of the coordinates.

    ``search`` finds the arms. ``few_coordinates`` tells that the arms have too few coordinates to sample.
    ``saves_nothing`` tells why a sample would be no quicker than a scan, where that is known beforehand.
    """

    search: Callable[[MipsRequest, Rewards], Answer]
    few_coordinates: Callable[[Rewards], bool]
    saves_nothing: Callable[[MipsRequest, Rewards], str | None]

    def in_catalogue(self, job: CatalogueJob) -> Answer:
        request, view = job.request, job.prepared.view
        known = job.copies.columns(job.prepared)
        options: dict[str, Any] = {
            "objective": request.objective,
            "value_range": request.value_range,
            "costs": _costs(job),
        }
        rng = np.random.default_rng((request.seed or 0, job.uid, job.prepared.version))
        rewards: Rewards = RowMajorRewards(
            view.features, job.query, rng=rng, rows=view.live_rows, columns=known, **options
        )
        few = self.few_coordinates(rewards)
        if not rewards.violated:
            reason = racing.FEW_COORDINATES if few else self.saves_nothing(request, rewards)
            if reason is None and request.seed is None and not job.copies.fits(job.prepared):
                reason = NO_MEMORY
            if reason is not None:
                return _scan(job, reason)
        if request.seed is None and not few and job.copies.fits(job.prepared):
            rewards = blocked_rewards(job.copies.arms(job.prepared), job.query, **options)
        return self.search(request, rewards)

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
        return self.search(request, rewards)


def _bounded_me(request: MipsRequest, rewards: Rewards) -> Answer:
    return bounded_me.bounded_me(rewards, k=request.k, epsilon=request.epsilon, delta=request.delta)


def _bounded_me_saves_nothing(request: MipsRequest, rewards: Rewards) -> str | None:
    if rewards.size <= request.k:
        return racing.FEW_COORDINATES
    steps = bounded_me.rounds(rewards, k=request.k, epsilon=request.epsilon, delta=request.delta)
    return None if bounded_me.saves(steps, rewards) else bounded_me.NOTHING_SAVED


def _racing(request: MipsRequest, rewards: Rewards) -> Answer:
    return racing.racing(rewards, k=request.k, epsilon=request.epsilon, delta=request.delta)


def _racing_saves_nothing(request: MipsRequest, rewards: Rewards) -> str | None:
    return racing.FEW_COORDINATES if rewards.size <= request.k else None


def _costs(job: CatalogueJob) -> ReadCosts:
    """What the plan is made from; nothing is measured where everything is compared anyway."""
    compared = job.prepared.view.dim < bounded_me.LEAST_DIM
    return SEEDED if compared or job.request.seed is not None else job.copies.costs()


# Comparing everything -------------------------------------------------------------------------------
def _scan(job: CatalogueJob, reason: str | None = None) -> Answer:
    request, view = job.request, job.prepared.view
    if request.objective == "nearest":
        squares = view.norms**2
        found = exact.nearest(view.working, view.features, squares, job.query, k=request.k, exclude=view.dead)
    else:
        found = replace(job.snapshot, view=view, structure=None).search_exact(job.query, request.k)
    reads = view.live * view.dim
    return Answer(found.rows, found.scores, reads, reads, exactly(reason))


def _scan_vectors(job: VectorsJob, reason: str | None = None) -> Answer:
    vectors, query, k = job.vectors, job.query, job.request.k
    squares = np.concatenate([np.einsum("ij,ij->i", some, some) for some in _float64_chunks(vectors)])
    if job.request.objective == "nearest":
        found = exact.nearest(vectors, vectors, squares, query, k=k)
    else:
        scaled, norm = exact.unit_scale(query)
        approximate = vectors @ scaled.astype(vectors.dtype, copy=False)
        error = exact.error_bound(len(query), float(np.sqrt(squares.max())), norm, vectors.dtype)
        found = exact.best(approximate, error, k, vectors, query)
    return Answer(found.rows, found.scores, vectors.size, vectors.size, exactly(reason))


def _float64_chunks(vectors: Given) -> Iterator[Matrix]:
    return (some.astype(np.float64, copy=False) for some in column_values.chunks(vectors))


def _scan_among(snapshot: Snapshot, query: Vector, request: MipsRequest) -> Answer:
    if request.objective == "nearest":
        rows = snapshot.eligible()
        found = _scan_vectors(VectorsJob(snapshot.features_of(rows), query, request))
        return replace(found, rows=rows[found.rows])
    best = snapshot.search_exact(query, request.k)
    reads = snapshot.size * snapshot.view.dim
    return Answer(best.rows, best.scores, reads, reads, exactly(None))


# A graph --------------------------------------------------------------------------------------------
def _graph(job: CatalogueJob) -> Answer:
    return _graph_among(job.snapshot, job.query, job.request)


def _graph_among(snapshot: Snapshot, query: Vector, request: MipsRequest) -> Answer:
    _refuse_nearest(request)
    found = snapshot.search(query, request.k)
    total = snapshot.size * snapshot.view.dim
    if found.exact:
        return Answer(found.rows, found.scores, total, total, exactly(NO_GRAPH))
    return Answer(found.rows, found.scores, None, total, Guarantee("none", reason=GRAPH))


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
        index.finish_maintenance(work)
    found = index.snapshot().search(job.query, job.request.k)
    guarantee = exactly(NO_GRAPH) if found.exact else Guarantee("none", reason=GRAPH_OF_VECTORS)
    return Answer(found.rows, found.scores, None, vectors.size, guarantee)


# The ladder -----------------------------------------------------------------------------------------
def _adaptive(job: CatalogueJob) -> Answer:
    _refuse_nearest(job.request)
    request = job.request
    found = search_adaptively(job.snapshot, job.independent, job.query, k=request.k, epsilon=request.epsilon)
    return found or _scan(job, FINER_THAN_NET)


def _adaptive_vectors(job: VectorsJob) -> Answer:
    _refuse_nearest(job.request)
    found = search_vectors_adaptively(job.vectors, job.query, k=job.request.k, epsilon=job.request.epsilon)
    return found or _scan_vectors(job, FINER_THAN_NET)


def _refuse_nearest(request: MipsRequest) -> None:
    if request.objective == "nearest":
        raise Invalid("graphs are of inner products; take another method", path=("objective",))


_BOUNDED_ME = _Sampler(_bounded_me, bounded_me.few_coordinates, _bounded_me_saves_nothing)
_RACING = _Sampler(_racing, racing.few_coordinates, _racing_saves_nothing)

METHODS: Mapping[MethodName, Method] = {
    "bounded_me": Method(_BOUNDED_ME.in_catalogue, _BOUNDED_ME.in_vectors),
    "racing": Method(_RACING.in_catalogue, _RACING.in_vectors),
    "exact": Method(_scan, _scan_vectors, _scan_among),
    "hnsw": Method(_graph, _graph_of_vectors, _graph_among),
    "adaptive": Method(_adaptive, _adaptive_vectors),
}
