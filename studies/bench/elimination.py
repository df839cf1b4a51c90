"""`shortlist bench elimination`: the arm of largest uncertainty among those that live, by every method.

Notation
    K, d            arms, dimension
    us              median time of one decision, without the update of the posterior (``update_us``)
    least, mean     width of the arm found / largest width of a living arm, over the probed decisions
    half_*          speed against a baseline while more than half of the arms live
    all_ms          all decisions, interpolated between the probed ones; of sub_elim with its passes
    moves, move_ms  exact passes over a stage, the median time of one; ``pass_us``: their time per decision
                    (processor time, as that of the start and the updates)

Methods
    sub_elim        what serves: the most uncertain arms when placed, a sample of the stage (``Watched``)
    sample          a sample of the lowest stage alone
    alternating     u <- V^-1 x, x <- argmax |u.x| over the catalogue's own index, one start
    quadratic       vec(V^-1) over an index of vec(x x^T), d(d+1)/2 dimensions (the paper's)
    scan            baseline of the paper: the width of every living arm, float32 products
    rank_one        what one would write in numpy: w^2 -= (x.u)^2 / (1 + x.V^-1 x), one float32 product a step

One learner plays Sub-Elim in the paper's environment (theta*, arms Gaussian, unit noise) with the paper's
radius; at probed steps all answer for the same state, and the fastest of three times counts. One BLAS thread.
Exponents in K are slopes of log time over log K.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from app.indexes.live import LiveIndex
from app.indexes.snapshot import Snapshot
from shortlist import confidence
from shortlist.linear import elimination, ridge, sub_elim
from shortlist.linear.most_uncertain_arm import (
    AlternatingSearch,
    Finder,
    QuadraticSearch,
    StageSample,
    Watched,
    packed_squares,
)
from shortlist.types import Matrix, Rows
from shortlist_client.progress import progress
from studies.measurement import report

SIZES = (10_000, 100_000, 1_000_000)
DIMS = (16, 32, 64, 128)
DELTA, HORIZON, ETA, SEED = 0.05, 20_000, 20_000**-0.5, 3
PROBES, FEW_PROBES = 80, 24
MANY_NUMBERS = 32_000_000  # in the features: fewer probes
LONG_US = 20_000.0
MOST_INDEXED = 100_000
MOST_QUADRATIC_DIM = 16
SHORTLIST = 30
BLOCK = 8_192

T = TypeVar("T")
Float32 = NDArray[np.float32]


@dataclass(slots=True)
class Figures:
    us: list[float] = field(default_factory=list)
    found: list[float] = field(default_factory=list)


def run(quick: bool) -> dict[str, Any]:
    cases = [(arms, dim) for dim in DIMS for arms in SIZES]
    if quick:
        cases = [(arms, dim) for arms, dim in cases if arms <= MOST_INDEXED and dim in DIMS[::2]]
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1):
        for arms, dim in progress(cases, "cases"):
            rows += measure(arms, dim, steps=600 if quick else 2_000, indexed=not quick)
    record = report("elimination", rows, seed=SEED)
    record["exponents"] = exponents(rows)
    for name, slopes in record["exponents"].items():
        print(
            f"exponent in K of {name}: " + ", ".join(f"{slope:.2f} (d = {d})" for d, slope in slopes.items())
        )
    return record


def measure(arms: int, dim: int, *, steps: int, indexed: bool) -> list[dict[str, Any]]:
    """One run; a row for each method."""
    rng = np.random.default_rng(SEED)
    features = rng.standard_normal((arms, dim), dtype=np.float32)
    theta = rng.standard_normal(dim)
    count = PROBES if features.size < MANY_NUMBERS else FEW_PROBES
    probes = set(np.unique(np.geomspace(1, steps, count).astype(int)).tolist())
    world = World(features, finders(features, indexed=indexed and arms <= MOST_INDEXED))
    for step in range(1, steps + 1):
        row = world.step(probed=step in probes)
        world.learn(row, float(features[row] @ theta) + rng.standard_normal())
    return world.rows()


def finders(features: Float32, *, indexed: bool) -> dict[str, Finder]:
    found: dict[str, Finder] = {"sub_elim": Watched(), "sample": StageSample()}
    if indexed:
        plain = index_of(features.astype(np.float64))
        found["alternating"] = AlternatingSearch(plain, plain.features_of)
        if features.shape[1] <= MOST_QUADRATIC_DIM:
            squares = packed_squares(features.astype(np.float64))
            found["quadratic"] = QuadraticSearch(index_of(squares), SHORTLIST)
    return found


def index_of(features: Matrix) -> Snapshot:
    """The index that the service would make."""
    index = LiveIndex(features.shape[1], seed=SEED)
    index.upsert([str(row) for row in range(len(features))], features, range(len(features)))
    job = index.begin_maintenance()
    if job is not None:
        job.run()
        index.finish(job)
    return index.snapshot()


class World:
    """A learner, its state, the baselines beside it, and what was measured."""

    def __init__(self, features: Float32, methods: dict[str, Finder]) -> None:
        self.features = features
        self.radius = confidence.beta(DELTA / 2, dim=features.shape[1], horizon=HORIZON)
        self.methods = methods
        self.rng = np.random.default_rng(SEED)
        self.posterior = ridge.prior(features.shape[1], ridge=1.0)
        self.figures: dict[str, Figures] = defaultdict(Figures)
        self.half: dict[str, list[float]] = defaultdict(list)
        self.moves_us: list[float] = []
        self.update_us: list[float] = []
        self.steps = 0
        self.probed: list[int] = []
        limits = elimination.rules(radius=self.radius, eta=ETA)
        began = time.process_time()
        self.state = elimination.start(self.posterior, np.arange(len(features)), self.features_of, limits)
        self.start_ms = 1e3 * (time.process_time() - began)

    def features_of(self, rows: Rows) -> Matrix:
        return self.features[rows].astype(np.float64)

    def step(self, *, probed: bool) -> int:
        """Choose, after the passes that are due; at a probe measure everybody."""
        self.steps += 1
        choice = self._choose(self.methods["sub_elim"])
        if choice.due:
            began = time.process_time()
            find = self.methods["sub_elim"]
            self.state, _ = sub_elim.play(
                self.state, self.posterior, self.features_of, find, k=1, rng=self.rng
            )
            self.moves_us.append(1e6 * (time.process_time() - began))
            choice = self._choose(find)
        if probed and not (self.state.capped or len(self.state.few)):  # there all are compared
            self._probe()
        return int(choice.arms.rows[0])

    def learn(self, row: int, value: float) -> None:
        began = time.process_time()
        x = self.features[row].astype(np.float64)
        self.posterior = ridge.learned(self.posterior, x, value)
        self.update_us.append(1e6 * (time.process_time() - began))

    def rows(self) -> list[dict[str, Any]]:
        return [self._row(name) for name in self.figures]

    def _choose(self, find: Finder) -> sub_elim.EliminationChoice:
        return sub_elim.choose(self.state, self.posterior, self.features_of, find, k=1, rng=self.rng)

    def _probe(self) -> None:
        rows = self.state.living.rows()
        times: dict[str, float] = {}
        widths: dict[str, float] = {}
        times["scan"], squares = _timed(lambda: self._scan(rows))
        widths["scan"] = largest = self.radius * float(np.sqrt(squares.max()))
        living = self.features[rows]
        times["rank_one"], widths["rank_one"] = _timed(lambda: self._updated_widths(living, squares))
        for name, find in self.methods.items():
            times[name], choice = _timed(lambda find=find: self._choose(find))  # type: ignore[misc]
            widths[name] = float(choice.arms.scores[0])
        self.probed.append(self.steps)
        for name, us in times.items():
            self.figures[name].us.append(us)
            self.figures[name].found.append(widths[name] / largest)
            if 2 * len(rows) > len(self.features):
                self.half[name].append(us)

    def _scan(self, rows: Rows) -> Float32:
        """Squared widths, in blocks that stay in the cache: faster than one product for many arms."""
        root = self.posterior.root.astype(np.float32)
        squares = np.empty(len(rows), dtype=np.float32)
        whole = len(rows) == len(self.features)
        for first in range(0, len(rows), BLOCK):
            block = slice(first, first + BLOCK)
            turned = (self.features[block] if whole else self.features[rows[block]]) @ root
            np.einsum("ij,ij->i", turned, turned, out=squares[block])
        return squares

    def _updated_widths(self, living: Float32, squares: Float32) -> float:
        """A step of rank one for the living arms: product, square, subtraction, largest."""
        last, root = living[0].astype(np.float64), self.posterior.root
        direction = root @ (last @ root)
        lost = living @ direction.astype(np.float32)
        np.multiply(lost, lost, out=lost)
        np.multiply(lost, np.float32(0.0 / (1.0 + last @ direction)), out=lost)  # of a step that was made
        np.subtract(squares, lost, out=lost)
        return self.radius * float(np.sqrt(lost[lost.argmax()]))

    def _total_us(self, name: str) -> float:
        """All decisions, between the probed ones by interpolation; of sub_elim the passes as well."""
        every = np.interp(np.arange(1, self.steps + 1), self.probed, self.figures[name].us)
        return float(every.sum()) + (sum(self.moves_us) if name == "sub_elim" else 0.0)

    def _row(self, name: str) -> dict[str, Any]:
        figures, us = self.figures[name], self.figures[name].us
        own = name == "sub_elim"
        row: dict[str, Any] = {
            "K": len(self.features),
            "d": self.features.shape[1],
            "method": name,
            "us": float(np.median(us)),
            "vs_scan": _ratio(self.figures["scan"].us, us),
            "vs_rank_one": _ratio(self.figures["rank_one"].us, us),
            "half_vs_scan": _ratio(self.half["scan"], self.half[name]),
            "half_vs_rank_one": _ratio(self.half["rank_one"], self.half[name]),
            "least": min(figures.found),
            "mean": float(np.mean(figures.found)),
            "all_ms": self._total_us(name) / 1e3,
            "probes": len(us),
            "half_probes": len(self.half[name]),
        }
        moves = self.moves_us
        row |= {
            "moves": len(moves) if own else None,
            "move_ms": float(np.median(moves)) / 1e3 if own and moves else None,
            "pass_us": sum(moves) / self.steps if own else None,
            "start_ms": self.start_ms if own else None,
            "update_us": float(np.median(self.update_us)) if own else None,
            "living": self.state.living.count if own else None,
            "state_kb": self.state.nbytes / 1e3 if own else None,
        }
        return row


def _timed(function: Callable[[], T]) -> tuple[float, T]:
    """The fastest of three calls, in microseconds, so that all have what they need in the cache."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        answer = function()
        times.append(1e6 * (time.perf_counter() - began))
        if times[-1] > LONG_US:
            break
    return min(times), answer


def _ratio(baseline: list[float], us: list[float]) -> float | None:
    return float(np.median(baseline) / np.median(us)) if us else None


def exponents(rows: list[dict[str, Any]]) -> dict[str, dict[int, float]]:
    """Slope of log us over log K for each method and d with at least two K."""
    found: dict[str, dict[int, float]] = {}
    for name in ("sub_elim", "scan", "rank_one"):
        for dim in sorted({row["d"] for row in rows}):
            own = [row for row in rows if row["method"] == name and row["d"] == dim]
            if len(own) > 1:
                slope = np.polyfit(np.log([row["K"] for row in own]), np.log([row["us"] for row in own]), 1)[
                    0
                ]
                found.setdefault(name, {})[dim] = float(slope)
    return found
