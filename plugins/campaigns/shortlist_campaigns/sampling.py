"""Draws from discrete distributions, over given factors and over the arms of a catalogue, in a thread.

A method is a row of ``METHODS``, which says how it draws and what it promises. A method that would do no less
work than computing all sums does that instead, and says why. A factor of zero (log -inf) makes its state
impossible: such states are left out before anything is drawn.

Notation
    D, N        number of states, of factors
    K, d        arms of the catalogue, its dimension
    tau         temperature: p(arm) is proportional to exp(q.x / tau)
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from shortlist.guarantee import Guarantee, exactly
from shortlist.index.exact import scores_of
from shortlist.mips.columns import LARGEST
from shortlist.mips.rewards import blocked_rewards
from shortlist.sampling import coordinates
from shortlist.sampling.factors import Draws, Factors
from shortlist.sampling.gumbel_max import from_weights, gumbel_max
from shortlist.sampling.lil_ucb import Setting, lil_ucb
from shortlist.sampling.race import Variance
from shortlist.sampling.racing_ebs import racing_ebs
from shortlist.sampling.racing_normal import racing_normal
from shortlist.types import Matrix, Rows, Vector
from shortlist_service.catalogues import (
    NO_MEMORY,
    BlockedCopies,
    BlockedCopy,
    Catalogue,
    Filter,
    FilteredSnapshots,
    Snapshot,
    no_arms,
)
from shortlist_service.errors import DimensionMismatch, Invalid
from shortlist_service.work import LongWork

# Of lil_ucb: every step is one of Python, a hundred thousand and more for as many states.
MOST_LIL_STATES = 1_000
# Below, a scan of all arms is faster than any race.
LEAST_RACED_DIM = 1_024

ALL_SUMMED = "all sums were computed, which reads no more"
FEW_COORDINATES = "there are too few coordinates to race over"
MANY_DRAWS = "several draws are made from all scores"
SEEDED = "with a seed all arms are scored: the order of a race is not the caller's"
TOO_MANY_STATES = f"lil_ucb searches among at most {MOST_LIL_STATES} states"
TOO_STEEP = "the query over the temperature is too large to race"

SamplingMethod = Literal["racing_normal", "racing_ebs", "lil_ucb", "exact"]
THREADS = 1
WAITING = 32
T = TypeVar("T", int, str)
LogFactor = float | str | None
"""A number, or one of the two ways to write minus infinity: null and "-Infinity"."""


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """The options of a draw; ``variance`` is used by the races, ``setting`` by lil_ucb."""

    method: SamplingMethod = "racing_normal"
    delta: float = 0.05
    draws: int = 1
    variance: Variance = "pairwise"
    setting: Setting = "safe"
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class FactorsJob:
    """One request over given factors. Shapes: ranges (D,), of the logarithms; log_prior (D,), finite."""

    factors: Factors
    ranges: Vector
    log_prior: Vector
    rng: np.random.Generator
    request: SampleRequest

    @classmethod
    def of(
        cls, log_factors: Matrix, log_prior: Vector, rng: np.random.Generator, request: SampleRequest
    ) -> FactorsJob:
        """Shapes: log_factors (D, N), finite."""
        ranges = log_factors.max(axis=1) - log_factors.min(axis=1)
        return cls(Factors.of(log_factors), ranges, log_prior, rng, request)

    @property
    def options(self) -> dict[str, Any]:
        """The common options of all searches."""
        request = self.request
        return {"delta": request.delta, "draws": request.draws, "log_prior": self.log_prior, "rng": self.rng}


@dataclass(frozen=True, slots=True)
class ArmsJob:
    """One request over a catalogue as it is now. Shapes: weights (d,), the query over the temperature."""

    uid: str
    prepared: BlockedCopy
    copies: BlockedCopies
    weights: Vector
    request: SampleRequest

    def generator(self) -> np.random.Generator:
        """With a seed: of the seed, and of what a caller cannot choose."""
        if self.request.seed is None:
            return np.random.default_rng()
        return np.random.default_rng((self.request.seed, int(self.uid, 16), self.prepared.version))


@dataclass(frozen=True, slots=True)
class ArmDraws:
    """``rows`` are those of the catalogue. ``reason``: why all scores were computed, if they were."""

    result: Draws
    rows: Rows
    reason: str | None


@dataclass(frozen=True, slots=True)
class SamplingDraw:
    """One row: how to draw states, how to draw arms, and what is promised of a draw that was raced.

    ``promise`` None: nothing is ever raced, every draw is from p itself.
    """

    of_factors: Callable[[FactorsJob], Draws]
    of_arms: Callable[[ArmsJob], ArmDraws]
    promise: Callable[[SampleRequest], Guarantee] | None


def guarantee(request: SampleRequest, result: Draws, reason: str | None) -> Guarantee:
    """The promise of each draw: exact, but for a probability of delta.

    So its distribution is within delta of p in total variation. ``reason``: why the draws are exact, if
    nobody asked for exact ones.
    """
    promise = METHODS[request.method].promise
    if promise is None:
        return exactly()
    return promise(request) if result.raced else exactly(reason)


# All sums -------------------------------------------------------------------------------------------
def _sum_all(job: FactorsJob) -> Draws:
    return gumbel_max(job.factors, log_prior=job.log_prior, draws=job.request.draws, rng=job.rng)


def _score_all(job: ArmsJob, reason: str | None = None) -> ArmDraws:
    table, draws = job.prepared.table, job.request.draws
    rows, _ = table.by_revision
    most = len(rows) * table.dim
    drawn = from_weights(scores_of(table, rows, job.weights), draws=draws, rng=job.generator())
    return ArmDraws(Draws(drawn, most, most, raced=0), rows[drawn], reason)


def _nothing_saved(job: ArmsJob) -> str | None:
    """Why no method would do less than score all arms; None: one may."""
    if job.prepared.table.dim < LEAST_RACED_DIM:
        return FEW_COORDINATES
    return TOO_STEEP if float(np.abs(job.weights).max()) > LARGEST else None


# Races ----------------------------------------------------------------------------------------------
def _raced(method: coordinates.RaceMethod) -> Callable[[ArmsJob], ArmDraws]:
    """A race over the coordinates of blocked arms, by the widths of ``method``."""

    def draw(job: ArmsJob) -> ArmDraws:
        reason = _nothing_saved(job)
        if reason is None and job.request.draws > 1:
            reason = MANY_DRAWS
        if reason is None and job.request.seed is not None:
            reason = SEEDED
        if reason is None and not job.copies.fits(job.prepared):
            reason = NO_MEMORY
        if reason is not None:
            return _score_all(job, reason)
        arms, request = job.copies.arms(job.prepared), job.request
        result = coordinates.race_coordinates(
            blocked_rewards(arms, job.weights, costs=job.copies.costs()),
            method=method,
            delta=request.delta,
            rng=job.generator(),
            variance=request.variance,
        )
        return ArmDraws(result, arms.rows[result.rows], None)

    return draw


# lil'UCB --------------------------------------------------------------------------------------------
def _lil_ucb(job: FactorsJob) -> Draws:
    if job.factors.arms > MOST_LIL_STATES:
        return _sum_all(job)
    return lil_ucb(job.factors, ranges=job.ranges, setting=job.request.setting, **job.options)


def _lil_ucb_of_arms(job: ArmsJob) -> ArmDraws:
    table = job.prepared.table
    reason = _nothing_saved(job) or (TOO_MANY_STATES if table.live > MOST_LIL_STATES else None)
    if reason is not None:
        return _score_all(job, reason)
    columns = job.copies.columns(job.prepared)
    factors, spread = coordinates.as_factors(table.features, table.live_rows, job.weights, columns)
    ranges, prior = np.full(factors.arms, spread), np.zeros(factors.arms)
    result = _lil_ucb(FactorsJob(factors, ranges, prior, job.generator(), job.request))
    return ArmDraws(result, table.live_rows[result.rows], ALL_SUMMED)


def _lil_promise(request: SampleRequest) -> Guarantee:
    if request.setting == "heuristic":
        return Guarantee("none", delta=request.delta, reason="setting: heuristic")
    return Guarantee("pac", delta=request.delta)


METHODS: Mapping[SamplingMethod, SamplingDraw] = {
    "racing_normal": SamplingDraw(
        lambda job: racing_normal(job.factors, variance=job.request.variance, **job.options),
        _raced("racing_normal"),
        lambda request: Guarantee("pac", delta=request.delta, assumes="normal_means"),
    ),
    "racing_ebs": SamplingDraw(
        lambda job: racing_ebs(job.factors, ranges=job.ranges, variance=job.request.variance, **job.options),
        _raced("racing_ebs"),
        lambda request: Guarantee("pac", delta=request.delta),
    ),
    "lil_ucb": SamplingDraw(_lil_ucb, _lil_ucb_of_arms, _lil_promise),
    "exact": SamplingDraw(_sum_all, _score_all, None),
}


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
        query: Sequence[float] | Vector,
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
        weights = np.array(query) / temperature
        if arm_filter is not None:
            draw = partial(_among, snapshot, weights, request, (int(catalogue.uid, 16), version))
            id_of: Callable[[int], str] = snapshot.id_of
        else:
            prepared = self._copies.prepare(catalogue)
            job = ArmsJob(catalogue.uid, prepared, self._copies, weights, request)
            draw = partial(METHODS[request.method].of_arms, job)
            version, id_of = prepared.version, prepared.table.ids.__getitem__
        drawn = await self._work.run(draw)
        ids = [id_of(row) for row in drawn.rows.tolist()]
        promise = guarantee(request, drawn.result, drawn.reason)
        return SampleResult(ids, drawn.result, promise, (time.perf_counter() - started) * 1e3, version)

    def close(self) -> None:
        self._work.close()


def _among(snapshot: Snapshot, weights: Vector, request: SampleRequest, salt: tuple[int, int]) -> ArmDraws:
    """Draw among the arms of a snapshot that a filter has thinned out: coordinates' products are factors.

    ``salt`` goes into the generator with the seed, so that no caller can foresee what a seed draws.
    """
    rows = snapshot.eligible()
    rng = np.random.default_rng(None if request.seed is None else (request.seed, *salt))
    job = FactorsJob.of(snapshot.features_of(rows) * weights, np.zeros(len(rows)), rng, request)
    draws = METHODS[request.method].of_factors(job)
    return ArmDraws(draws, rows[draws.rows], ALL_SUMMED)


def _numbers(
    log_factors: Sequence[Sequence[LogFactor]] | Matrix, log_prior: Sequence[LogFactor] | Vector | None
) -> tuple[Matrix, Vector]:
    """Return the matrix (D, N) and the prior (D,). Raises Invalid, which names the row of another length."""
    lengths = [len(row) for row in log_factors]
    usual = Counter(lengths).most_common(1)[0][0]
    for number, length in enumerate(lengths):
        if length != usual:
            raise Invalid("all rows must have the same length", path=("log_factors", number))
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
