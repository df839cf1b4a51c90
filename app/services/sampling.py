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
from typing import Generic, Literal, TypeVar

import numpy as np

from app.algorithms.sampling.factors import Draws, Factors
from app.algorithms.sampling.gumbel_max import from_weights, gumbel_max
from app.algorithms.sampling.lil_ucb import Setting, lil_ucb
from app.algorithms.sampling.race import Variance
from app.algorithms.sampling.racing_ebs import racing_ebs
from app.algorithms.sampling.racing_normal import racing_normal
from app.algorithms.types import Matrix, Vector
from app.errors import DimensionMismatch, Invalid, NoArms
from app.indexes.live import Snapshot
from app.services.catalogues import Catalogue
from app.services.long_work import LongWork

THREADS = 1
WAITING = 32
# Of lil_ucb: every step is one of Python, a hundred thousand and more for as many states.
MOST_LIL_STATES = 1_000

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
    condition.
    """

    kind: Literal["exact", "pac", "none"]
    delta: float
    assumes: Literal["normal_means"] | None = None


@dataclass(frozen=True, slots=True)
class Sample(Generic[T]):
    """Rows of the request, or ids of arms."""

    draws: list[T]
    found: Draws
    guarantee: Guarantee
    elapsed_ms: float
    catalogue_version: int = 0


class Sampling:
    """Draws, one call at a time, and a few that wait."""

    def __init__(self) -> None:
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
        return Sample(rows, found, guarantee(request, found), (time.perf_counter() - started) * 1e3)

    async def sample_arms(
        self, catalogue: Catalogue, query: Sequence[float], temperature: float, request: SampleRequest
    ) -> Sample[str]:
        """Draw arms. Raises NoArms, DimensionMismatch, Unavailable."""
        started = time.perf_counter()
        if len(query) != catalogue.dim:
            raise DimensionMismatch(
                f"query must have {catalogue.dim} numbers, not {len(query)}", loc=("body", "query")
            )
        version, view = catalogue.version, catalogue.index.snapshot()
        if not view.size:
            raise NoArms("the catalogue has no arms")
        weights = np.array(query, dtype=np.float64) / temperature
        found = await self._work.run(lambda: draw_arms(view, weights, request))
        ids = [view.id_of(row) for row in view.eligible()[found.rows].tolist()]
        elapsed_ms = (time.perf_counter() - started) * 1e3
        return Sample(ids, found, guarantee(request, found), elapsed_ms, version)

    def close(self) -> None:
        self._work.close()


def guarantee(request: SampleRequest, found: Draws) -> Guarantee:
    if not found.raced:
        return Guarantee("exact", 0.0)
    if request.method == "racing_normal":
        return Guarantee("pac", request.delta, "normal_means")
    if request.method == "lil_ucb" and request.setting == "heuristic":
        return Guarantee("none", request.delta)
    return Guarantee("pac", request.delta)


def draw_rows(log_factors: Matrix, log_prior: Vector, request: SampleRequest) -> Draws:
    """Draw by the method of the request. Shapes: log_factors (D, N), log_prior (D,), finite."""
    factors, rng = Factors.of(log_factors), np.random.default_rng(request.seed)
    too_many = request.method == "lil_ucb" and factors.arms > MOST_LIL_STATES
    if request.method == "exact" or too_many:
        return gumbel_max(factors, rng=rng, log_prior=log_prior, draws=request.draws)
    if request.method == "racing_normal":
        return racing_normal(
            factors,
            delta=request.delta,
            rng=rng,
            log_prior=log_prior,
            draws=request.draws,
            variance=request.variance,
        )
    ranges = log_factors.max(axis=1) - log_factors.min(axis=1)
    if request.method == "racing_ebs":
        return racing_ebs(
            factors,
            ranges=ranges,
            delta=request.delta,
            rng=rng,
            log_prior=log_prior,
            draws=request.draws,
            variance=request.variance,
        )
    return lil_ucb(
        factors,
        ranges=ranges,
        delta=request.delta,
        rng=rng,
        log_prior=log_prior,
        draws=request.draws,
        setting=request.setting,
    )


def draw_arms(view: Snapshot, weights: Vector, request: SampleRequest) -> Draws:
    """Draw places among the rows of the snapshot. Shapes: weights (d,), the query over the temperature."""
    rows = view.eligible()
    rng = np.random.default_rng(request.seed)
    most = len(rows) * len(weights)
    return Draws(from_weights(view.scores_of(rows, weights), draws=request.draws, rng=rng), most, most, 0)


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
