"""One-shot maximum inner product search and nearest neighbours, over a catalogue or over given vectors.

What the methods do, and what they promise, is in ``mips_methods``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from app.errors import DimensionMismatch
from app.filters.filter import Filter
from app.services.bounded.long_work import SEARCHES, LongWork
from app.services.catalogues.adaptive_solver import IndependentSolvers
from app.services.catalogues.blocked_copies import BlockedCopies
from app.services.catalogues.catalogues import Catalogue
from app.services.catalogues.filtered_snapshots import FilteredSnapshots, no_arms
from app.services.queries.mips_methods import METHODS, CatalogueJob, Given, MipsRequest, VectorsJob
from shortlist.mips.answer import Answer
from shortlist.mips.measured_costs import measure
from shortlist.types import Vector

THREADS = 2
WAITING = 32


@dataclass(frozen=True, slots=True)
class MipsResult:
    """The answer, with the ids of its arms if they have some."""

    answer: Answer
    elapsed_ms: float
    ids: Sequence[str] = ()
    catalogue_version: int = 0


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
        """Search the arms of a catalogue that ``arm_filter`` lets in. Raises NoArms, DimensionMismatch,
        Invalid, Unavailable.
        """
        started = time.perf_counter()
        query = _query(request, catalogue.dim)
        version, snapshot = catalogue.version, await self._filtered.of(catalogue, arm_filter)
        if not snapshot.size:
            raise no_arms(catalogue, arm_filter)
        search = METHODS[request.method]
        if not search.proposed:
            catalogue.need_arms(f"the method {request.method}")
        if arm_filter is not None or snapshot.waits:
            work = SEARCHES if snapshot.waits else self._work
            answer = await work.run(lambda: search.among(snapshot, query, request))
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
        return MipsResult(answer, _ms_since(started), ids, version)

    async def search_vectors(self, vectors: Callable[[], Given], request: MipsRequest) -> MipsResult:
        """Search vectors, which are made (and checked) in the thread. Raises as ``search``, and TooLarge."""
        started = time.perf_counter()

        def work() -> Answer:
            given = vectors()
            job = VectorsJob(given, _query(request, given.shape[1]), request)
            return METHODS[request.method].in_vectors(job)

        answer = await self._work.run(work)
        return MipsResult(answer, _ms_since(started))

    def close(self) -> None:
        self._work.close()


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1e3


def _query(request: MipsRequest, dim: int) -> Vector:
    query = np.asarray(request.query, dtype=np.float64)
    if len(query) != dim:
        raise DimensionMismatch(f"query must have {dim} numbers, not {len(query)}", path=("query",))
    return query
