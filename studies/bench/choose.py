"""`shortlist bench choose`: one decision in process - draw theta~, search, re-rank - by every method.

Notation
    K, d        arms, dimension
    data        gaussian: standard normal arms; lognormal: the same with norms exp(N(0, 0.75^2)); unit: with
                norm 1. All directions are alike in these, which is as hard as it gets for a graph. low_rank:
                as embeddings are, unit vectors of low intrinsic dimension (``make``)
    scan        what an expert would write: the argmax of one float32 BLAS product
    ratio       score of the arm found / score of the best arm
    auto, igw   Sub-TS by the index of the planner, and inverse-gap weighting: it draws from the 30 best
                arms and a cover of 30, so its ratio shows how it explores

Methods take turns, so that all see the machine in one state. A turn is 250 queries long, for a service
answers one request after another: the first few after a turn of the scan find the caches full of its arms.
BLAS has one thread, for a service answers one request a core; ``scan_all_cores`` shows what the scan does
with all of them. Graphs are built with all cores but one, as in the service.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from app.indexes.live import IndexOptions, LiveIndex
from app.policies import igw
from app.selection.covers import center_ids
from shortlist.index.norm_pruned import NormBlocks
from shortlist.linear import linear_ts, ridge
from shortlist.linear.ridge import Posterior
from shortlist.types import Matrix, Vector
from shortlist_client.progress import progress
from studies.measurement import report

Data = Literal["gaussian", "lognormal", "unit", "low_rank"]
Search = Callable[[Vector], int]

CASES: tuple[tuple[int, int, Data], ...] = (
    (10_000, 32, "gaussian"),
    (100_000, 16, "gaussian"),
    (100_000, 64, "lognormal"),
    (100_000, 32, "unit"),
    (100_000, 128, "low_rank"),
    (1_000_000, 32, "gaussian"),
)
SEED = 7
LOGNORMAL_SIGMA = 0.75
CLUSTERS, RANK = 200, 12
CLUSTER_SIGMA, NOISE_SIGMA = 0.5, 0.03  # where the centres of the clusters have 1
EXPLORATION = 1.0
CANDIDATES, GAMMA = 30, 100.0
BLOCK = 250


@dataclass(frozen=True, slots=True)
class Method:
    """One way to find the best row; ``us`` are its times, draw included."""

    name: str
    search: Search
    build_s: float
    memory_mb: float
    threads: int | None = 1


def run(quick: bool) -> dict[str, Any]:
    """Run every case with 300 (quick) or 2,000 decisions; print and return the rows."""
    rows: list[dict[str, Any]] = []
    for arms, dim, data in progress(CASES, "cases"):
        rows += _case(arms, dim, data, 300 if quick else 2_000)
        gc.collect()
    return report("choose", rows, seed=SEED)


def make(arms: int, dim: int, data: Data, rng: np.random.Generator) -> Matrix:
    """Arms (K, d): see the module.

    low_rank: 200 clusters in a random subspace of dimension 12, whose centres are standard normal; an arm
    adds 0.5 N(0, I) to its centre in that subspace, and 0.03 N(0, I) in all dimensions; then it gets norm 1.
    """
    if data == "low_rank":
        return _low_rank(arms, dim, rng)
    features = rng.standard_normal((arms, dim))
    if data == "gaussian":
        return features
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    if data == "lognormal":
        features *= rng.lognormal(sigma=LOGNORMAL_SIGMA, size=(arms, 1))
    return features


def _low_rank(arms: int, dim: int, rng: np.random.Generator) -> Matrix:
    subspace = np.linalg.qr(rng.standard_normal((dim, RANK)))[0]
    inside = rng.standard_normal((CLUSTERS, RANK))[rng.integers(CLUSTERS, size=arms)]
    inside += CLUSTER_SIGMA * rng.standard_normal((arms, RANK))
    features: Matrix = inside @ subspace.T
    features += NOISE_SIGMA * rng.standard_normal((arms, dim))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    return features


def _case(arms: int, dim: int, data: Data, decisions: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng((SEED, arms, dim))
    features = make(arms, dim, data, rng)
    posterior = ridge.prior(dim, ridge=1.0)
    with threadpool_limits(1):
        methods = _methods(features)
    draws = _draws(posterior, decisions, rng)
    best = _best(features, draws)
    us, found = _take_turns(methods, posterior, draws)
    scan_us = float(np.median(us[0]))
    rows = []
    for place, method in enumerate(methods):
        scores = np.einsum("ij,ij->i", features[found[place]], draws)
        ratio = scores / best
        rows.append(
            {
                "K": arms,
                "dim": dim,
                "data": data,
                "method": method.name,
                "p50_us": float(np.median(us[place])),
                "p99_us": float(np.quantile(us[place], 0.99)),
                "recall_at_1": float((ratio > 1.0 - 1e-6).mean()),
                "ratio_mean": float(ratio.mean()),
                "ratio_min": float(ratio.min()),
                "build_s": method.build_s,
                "memory_mb": method.memory_mb,
                "speedup_vs_scan": scan_us / float(np.median(us[place])),
            }
        )
    return rows


def _methods(features: Matrix) -> list[Method]:
    working = features.astype(np.float32)

    def scan(query: Vector) -> int:
        return int((working @ query.astype(np.float32)).argmax())

    scan_mb = working.nbytes / 2**20
    auto = index_of("auto", features, SEED)
    hnsw = auto if auto.status().kind == "hnsw" else index_of("hnsw", features, SEED)
    started = time.perf_counter()
    blocks = NormBlocks(auto.snapshot().table)
    blocks_s = time.perf_counter() - started
    view = auto.snapshot().table

    def pruned(query: Vector) -> int:
        found = blocks.search(view, query, 1)
        return int(found.rows[0]) if found is not None else -1

    return [
        Method("scan", scan, 0.0, scan_mb),
        Method("norm_pruned", pruned, blocks_s, blocks.memory_bytes / 2**20),
        _served("hnsw", hnsw),
        _served("auto", auto),
        _drawn("igw", auto),
        Method("scan_all_cores", scan, 0.0, scan_mb, threads=None),
    ]


def index_of(kind: Literal["auto", "hnsw"], features: Matrix, seed: int) -> LiveIndex:
    """An index over ``features`` (K, d) that is built and has chosen; the ids are the rows."""
    index = LiveIndex(features.shape[1], IndexOptions(kind=kind), seed=seed)
    index.upsert([str(row) for row in range(len(features))], features, range(len(features)))
    while (job := index.begin_maintenance()) is not None:
        job.run()
        index.finish(job)
    return index


def _served(name: str, index: LiveIndex) -> Method:
    status, snapshot = index.status(), index.snapshot()

    def search(query: Vector) -> int:
        return int(snapshot.search(query, 1).rows[0])

    return Method(name, search, status.build_s, status.memory_bytes / 2**20)


def _drawn(name: str, index: LiveIndex) -> Method:
    status, snapshot, rng = index.status(), index.snapshot(), np.random.default_rng(SEED)
    started = time.perf_counter()
    cover = center_ids(snapshot, CANDIDATES)
    cover_s = time.perf_counter() - started

    def search(query: Vector) -> int:
        rows = snapshot.rows_of(cover)
        found = igw.draw(snapshot, query, rows, k=1, count=CANDIDATES, gamma=GAMMA, rng=rng).hits
        return int(found.rows[0])

    return Method(name, search, status.build_s + cover_s, status.memory_bytes / 2**20)


def _draws(posterior: Posterior, count: int, rng: np.random.Generator) -> Matrix:
    return np.array([linear_ts.draw(posterior, exploration=EXPLORATION, rng=rng) for _ in range(count)])


def _best(features: Matrix, draws: Matrix) -> Vector:
    best: Vector = np.full(len(draws), -np.inf)
    for start in range(0, len(features), 20_000):
        np.maximum(best, (features[start : start + 20_000] @ draws.T).max(axis=0), out=best)
    return best


def _take_turns(
    methods: list[Method], posterior: Posterior, draws: Matrix
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Microseconds and rows found, (methods, decisions). Every decision pays for a draw of its own.

    In a turn each method answers another block of queries: none finds in the cache what the last one read.
    """
    us = np.empty((len(methods), len(draws)))
    found = np.empty((len(methods), len(draws)), dtype=np.int64)
    rng = np.random.default_rng(SEED)
    blocks = np.array_split(np.arange(len(draws)), max(len(methods), len(draws) // BLOCK))
    for turn in range(len(blocks)):
        for place, method in enumerate(methods):
            with threadpool_limits(method.threads):
                for decision in blocks[(turn + place) % len(blocks)].tolist():
                    us[place, decision], found[place, decision] = _decide(
                        method, posterior, draws[decision], rng
                    )
    return us, found


def _decide(
    method: Method, posterior: Posterior, query: Vector, rng: np.random.Generator
) -> tuple[float, int]:
    started = time.perf_counter()
    linear_ts.draw(posterior, exploration=EXPLORATION, rng=rng)
    row = method.search(query)
    return (time.perf_counter() - started) * 1e6, row
