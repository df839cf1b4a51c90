"""Draws from discrete distributions: given factors, or the softmax of a catalogue's scores; in a thread.

Notation
    D, N        number of states, of factors
    K, d        arms of the catalogue, its dimension
    tau         temperature: p(arm) is proportional to exp(q.x / tau)

A factor of zero (log -inf) makes its state impossible: such states are left out before anything is drawn.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from app.algorithms.mips.columns import LARGEST
from app.algorithms.mips.rewards import blocked_rewards
from app.algorithms.sampling.coordinates import race_coordinates
from app.algorithms.sampling.factors import Draws, Factors
from app.algorithms.sampling.gumbel_max import from_weights, gumbel_max
from app.algorithms.sampling.lil_ucb import Setting, lil_ucb
from app.algorithms.sampling.race import Variance
from app.algorithms.sampling.racing_ebs import racing_ebs
from app.algorithms.sampling.racing_normal import racing_normal
from app.algorithms.types import Matrix, Rows, Vector
from app.errors import DimensionMismatch, Invalid, NoArms
from app.indexes.snapshot import scores_of
from app.services.bounded.long_work import LongWork
from app.services.catalogues.blocked_copies import BlockedCopies, Prepared
from app.services.catalogues.catalogues import Catalogue
from app.services.queries.mips import NO_ROOM

THREADS = 1
WAITING = 32
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

Method = Literal["racing_normal", "racing_ebs", "lil_ucb", "exact"]
T = TypeVar("T", int, str)
LogFactor = float | str | None
"""A number, or one of the two ways to write minus infinity: null and "-Infinity"."""


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """How to draw; ``variance`` is used by the races, ``setting`` by lil_ucb."""

    method: Method = "racing_normal"
    delta: float = 0.05
    draws: int = 1
    variance: Variance = "pairwise"
    setting: Setting = "safe"
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Guarantee:
    """``exact``: drawn from p. ``pac``: every draw is the exact one with probability at least 1 - delta, so
    its distribution is within delta of p in total variation. ``none``: no promise. ``assumes`` names a
    condition, ``reason`` says why it is not what was asked for.
    """

    kind: Literal["exact", "pac", "none"]
    delta: float
    assumes: Literal["normal_means"] | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Sample(Generic[T]):
    """Rows of the request, or ids of arms."""

    draws: list[T]
    found: Draws
    guarantee: Guarantee
    elapsed_ms: float
    catalogue_version: int = 0


@dataclass(frozen=True, slots=True)
class ArmsJob:
    """One request over a catalogue as it is now. Shapes: weights (d,), the query over the temperature."""

    uid: str
    prepared: Prepared
    copies: BlockedCopies
    weights: Vector
    request: SampleRequest


class Sampling:
    """Draws, one call at a time, and a few that wait."""

    def __init__(self, copies: BlockedCopies) -> None:
        self._copies = copies
        self._work = LongWork(threads=THREADS, waiting=WAITING)

    async def sample(
        self,
        log_factors: Sequence[Sequence[LogFactor]],
        log_prior: Sequence[LogFactor] | None,
        request: SampleRequest,
    ) -> Sample[int]:
        """Draw rows. Raises Invalid (a ragged matrix, no state of positive probability), Unavailable."""
        started = time.perf_counter()

        def work() -> tuple[Draws, list[int]]:
            matrix, prior = _numbers(log_factors, log_prior)
            possible = np.flatnonzero(np.isfinite(prior) & np.isfinite(matrix).all(axis=1))
            if not len(possible):
                raise Invalid("every row has probability zero", loc=("body", "log_factors"))
            found = draw_rows(matrix[possible], prior[possible], request)
            return found, possible[found.rows].tolist()

        found, rows = await self._work.run(work)
        promise = guarantee(request, found, ALL_SUMMED)
        return Sample(rows, found, promise, (time.perf_counter() - started) * 1e3)

    async def sample_arms(
        self, catalogue: Catalogue, query: Sequence[float], temperature: float, request: SampleRequest
    ) -> Sample[str]:
        """Draw arms. Raises NoArms, DimensionMismatch, Unavailable."""
        started = time.perf_counter()
        if len(query) != catalogue.dim:
            raise DimensionMismatch(
                f"query must have {catalogue.dim} numbers, not {len(query)}", loc=("body", "query")
            )
        snapshot = catalogue.index.snapshot()
        if not snapshot.size:
            raise NoArms("the catalogue has no arms")
        prepared = self._copies.prepare(catalogue)
        job = ArmsJob(catalogue.uid, prepared, self._copies, np.array(query) / temperature, request)
        found, rows, reason = await self._work.run(lambda: draw_arms(job))
        ids = [prepared.view.ids[row] for row in rows.tolist()]
        promise = guarantee(request, found, reason)
        return Sample(ids, found, promise, (time.perf_counter() - started) * 1e3, prepared.version)

    def close(self) -> None:
        self._work.close()


def guarantee(request: SampleRequest, found: Draws, reason: str | None) -> Guarantee:
    """What the draws promise; ``reason`` is why they are exact, if they are and that was not asked for."""
    if not found.raced:
        return Guarantee("exact", 0.0, reason=None if request.method == "exact" else reason)
    if request.method == "racing_normal":
        return Guarantee("pac", request.delta, "normal_means")
    if request.method == "lil_ucb" and request.setting == "heuristic":
        return Guarantee("none", request.delta, reason="setting: heuristic")
    return Guarantee("pac", request.delta)


def draw_rows(log_factors: Matrix, log_prior: Vector, request: SampleRequest) -> Draws:
    """Draw by the method of the request. Shapes: log_factors (D, N), log_prior (D,), finite."""
    ranges = log_factors.max(axis=1) - log_factors.min(axis=1)
    rng = np.random.default_rng(request.seed)
    return _draw(Factors.of(log_factors), ranges, log_prior, request, rng)


def _draw(
    factors: Factors, ranges: Vector, log_prior: Vector, request: SampleRequest, rng: np.random.Generator
) -> Draws:
    options: dict[str, Any] = {"rng": rng, "log_prior": log_prior, "draws": request.draws}
    too_many = request.method == "lil_ucb" and factors.arms > MOST_LIL_STATES
    if request.method == "exact" or too_many:
        return gumbel_max(factors, **options)
    options["delta"] = request.delta
    if request.method == "racing_normal":
        return racing_normal(factors, variance=request.variance, **options)
    if request.method == "racing_ebs":
        return racing_ebs(factors, ranges=ranges, variance=request.variance, **options)
    return lil_ucb(factors, ranges=ranges, setting=request.setting, **options)


def draw_arms(job: ArmsJob) -> tuple[Draws, Rows, str | None]:
    """Draw arms; return also their rows, and why all scores were computed, if they were."""
    request, view = job.request, job.prepared.view
    reason = _exactly_because(job)
    if reason is not None:
        rows, _ = view.by_revision
        most = len(rows) * view.dim
        drawn = from_weights(scores_of(view, rows, job.weights), draws=request.draws, rng=_generator(job))
        return Draws(drawn, most, most, raced=0), rows[drawn], reason
    if request.method == "lil_ucb":
        factors, spread = _coordinates(job)
        ranges, prior = np.full(factors.arms, spread), np.zeros(factors.arms)
        found = _draw(factors, ranges, prior, request, _generator(job))
        return found, view.live_rows[found.rows], ALL_SUMMED
    arms = job.copies.arms(job.prepared)
    found = race_coordinates(
        blocked_rewards(arms, job.weights),
        method="racing_ebs" if request.method == "racing_ebs" else "racing_normal",
        delta=request.delta,
        rng=_generator(job),
        variance=request.variance,
    )
    return found, arms.rows[found.rows], None


def _exactly_because(job: ArmsJob) -> str | None:
    """Why all scores are computed, where that is known beforehand."""
    request, view = job.request, job.prepared.view
    searched = request.method == "lil_ucb"
    reasons = (
        (request.method == "exact", ALL_SUMMED),
        (view.dim < LEAST_RACED_DIM, FEW_COORDINATES),
        (float(np.abs(job.weights).max()) > LARGEST, TOO_STEEP),
        (searched and view.live > MOST_LIL_STATES, TOO_MANY_STATES),
        (not searched and request.draws > 1, MANY_DRAWS),
        (not searched and request.seed is not None, SEEDED),
        (not searched and not job.copies.fits(job.prepared), NO_ROOM),
    )
    return next((reason for holds, reason in reasons if holds), None)


def _coordinates(job: ArmsJob) -> tuple[Factors, float]:
    """The coordinates of the scores as factors, each less the least of all arms, and the range of all."""
    view, weights, known = job.prepared.view, job.weights, job.copies.columns(job.prepared)
    rows, features = view.live_rows, view.features
    least, top, _ = known.terms(weights, "inner_product")

    def log_factors(arms: Rows, indices: Rows) -> Matrix:
        terms: Matrix = features[rows[arms][:, None], indices] * weights[indices] - least[indices]
        return terms

    return Factors(len(rows), view.dim, log_factors), float((top - least).max())


def _generator(job: ArmsJob) -> np.random.Generator:
    """With a seed: of the seed, and of what a caller cannot choose."""
    if job.request.seed is None:
        return np.random.default_rng()
    return np.random.default_rng((job.request.seed, int(job.uid, 16), job.prepared.version))


def _numbers(
    log_factors: Sequence[Sequence[LogFactor]], log_prior: Sequence[LogFactor] | None
) -> tuple[Matrix, Vector]:
    """Return the matrix (D, N) and the prior (D,). Raises Invalid, which names the row of another length."""
    lengths = [len(row) for row in log_factors]
    usual = Counter(lengths).most_common(1)[0][0]
    for place, length in enumerate(lengths):
        if length != usual:
            raise Invalid("all rows must have as many numbers", loc=("body", "log_factors", place))
    if log_prior is None:
        return _array(log_factors), np.zeros(len(log_factors))
    if len(log_prior) != len(log_factors):
        raise Invalid("log_prior must have a number for every row", loc=("body", "log_prior"))
    return _array(log_factors), _array(log_prior)


def _array(values: Sequence[Sequence[LogFactor]] | Sequence[LogFactor]) -> Matrix:
    """Numpy reads "-Infinity" as such and None as NaN, which nothing else can be here."""
    array = np.array(values, dtype=np.float64)
    array[np.isnan(array)] = -np.inf
    return array
