"""Draws from discrete distributions: given factors, or the softmax of a catalogue's scores; in a thread.

Notation
    D, N        number of states, of factors

A factor of zero (log -inf) makes its state impossible: such states are left out before anything is drawn.
How the methods draw, and what they promise, is in ``sampling_methods``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import numpy as np

from app.errors import DimensionMismatch, Invalid
from app.filters.filter import Filter
from app.indexes.snapshot import Snapshot
from app.services.bounded.long_work import LongWork
from app.services.catalogues.blocked_copies import BlockedCopies
from app.services.catalogues.catalogues import Catalogue
from app.services.catalogues.filtered_snapshots import FilteredSnapshots, no_arms
from app.services.queries.sampling_methods import (
    ALL_SUMMED,
    METHODS,
    ArmsJob,
    FactorsJob,
    SampleRequest,
    guarantee,
)
from shortlist.guarantee import Guarantee
from shortlist.sampling.factors import Draws
from shortlist.types import Matrix, Rows, Vector

THREADS = 1
WAITING = 32

T = TypeVar("T", int, str)
LogFactor = float | str | None
"""A number, or one of the two ways to write minus infinity: null and "-Infinity"."""


@dataclass(frozen=True, slots=True)
class SampleResult(Generic[T]):
    """Rows of the request, or ids of arms."""

    draws: list[T]
    result: Draws
    guarantee: Guarantee
    elapsed_ms: float
    catalogue_version: int = 0


class Sampling:
    """Draws, one call at a time, and a few that wait."""

    def __init__(self, copies: BlockedCopies, filtered: FilteredSnapshots) -> None:
        self._copies = copies
        self._filtered = filtered
        self._work = LongWork(threads=THREADS, waiting=WAITING)

    async def sample(
        self,
        log_factors: Sequence[Sequence[LogFactor]] | Matrix,
        log_prior: Sequence[LogFactor] | Vector | None,
        request: SampleRequest,
    ) -> SampleResult[int]:
        """Draw rows. Raises Invalid (a ragged matrix, no state of positive probability), Unavailable."""
        started = time.perf_counter()

        def work() -> tuple[Draws, list[int]]:
            matrix, prior = _numbers(log_factors, log_prior)
            possible = np.flatnonzero(np.isfinite(prior) & np.isfinite(matrix).all(axis=1))
            if not len(possible):
                raise Invalid("every row has probability zero", path=("log_factors",))
            rng = np.random.default_rng(request.seed)
            job = FactorsJob.of(matrix[possible], prior[possible], rng, request)
            draws = METHODS[request.method].of_factors(job)
            return draws, possible[draws.rows].tolist()

        result, rows = await self._work.run(work)
        promise = guarantee(request, result, ALL_SUMMED)
        return SampleResult(rows, result, promise, (time.perf_counter() - started) * 1e3)

    async def sample_arms(
        self,
        catalogue: Catalogue,
        query: Sequence[float],
        temperature: float,
        request: SampleRequest,
        arm_filter: Filter | None = None,
    ) -> SampleResult[str]:
        """Draw arms that ``arm_filter`` lets in. Raises NoArms, DimensionMismatch, Unavailable."""
        started = time.perf_counter()
        if len(query) != catalogue.dim:
            raise DimensionMismatch(
                f"query must have {catalogue.dim} numbers, not {len(query)}", path=("query",)
            )
        catalogue.need_arms("a draw of arms")
        version, snapshot = catalogue.version, await self._filtered.of(catalogue, arm_filter)
        if not snapshot.size:
            raise no_arms(catalogue, arm_filter)
        if arm_filter is not None:
            weights = np.array(query) / temperature
            drawn_among = partial(_among, snapshot, weights, request, (int(catalogue.uid, 16), version))
            result, rows = await self._work.run(drawn_among)
            promise = guarantee(request, result, ALL_SUMMED)
            ids = [snapshot.id_of(row) for row in rows.tolist()]
            return SampleResult(ids, result, promise, (time.perf_counter() - started) * 1e3, version)
        prepared = self._copies.prepare(catalogue)
        job = ArmsJob(catalogue.uid, prepared, self._copies, np.array(query) / temperature, request)
        drawn = await self._work.run(lambda: METHODS[request.method].of_arms(job))
        ids = [prepared.table.ids[row] for row in drawn.rows.tolist()]
        promise = guarantee(request, drawn.result, drawn.reason)
        return SampleResult(
            ids, drawn.result, promise, (time.perf_counter() - started) * 1e3, prepared.version
        )

    def close(self) -> None:
        self._work.close()


def _among(
    snapshot: Snapshot, weights: Vector, request: SampleRequest, salt: tuple[int, int]
) -> tuple[Draws, Rows]:
    """Draw among the arms of a snapshot that a filter has thinned out: coordinates' products are factors.

    ``salt`` goes into the generator with the seed, so that no caller can foresee what a seed draws.
    """
    rows = snapshot.eligible()
    rng = np.random.default_rng(None if request.seed is None else (request.seed, *salt))
    job = FactorsJob.of(snapshot.features_of(rows) * weights, np.zeros(len(rows)), rng, request)
    draws = METHODS[request.method].of_factors(job)
    return draws, rows[draws.rows]


def _numbers(
    log_factors: Sequence[Sequence[LogFactor]] | Matrix, log_prior: Sequence[LogFactor] | Vector | None
) -> tuple[Matrix, Vector]:
    """Return the matrix (D, N) and the prior (D,). Raises Invalid, which names the row of another length."""
    lengths = [len(row) for row in log_factors]
    usual = Counter(lengths).most_common(1)[0][0]
    for place, length in enumerate(lengths):
        if length != usual:
            raise Invalid("all rows must have as many numbers", path=("log_factors", place))
    if log_prior is None:
        return _array(log_factors), np.zeros(len(log_factors))
    if len(log_prior) != len(log_factors):
        raise Invalid("log_prior must have a number for every row", path=("log_prior",))
    return _array(log_factors), _array(log_prior)


def _array(values: Sequence[Sequence[LogFactor]] | Sequence[LogFactor] | Matrix | Vector) -> Matrix:
    """Numpy reads "-Infinity" as such and None as NaN, which nothing else can be here."""
    array = np.array(values, dtype=np.float64)
    array[np.isnan(array)] = -np.inf
    return array
