"""`shortlist bench graphs`: the graph of the index beside one of faiss over 8-bit codes, on the same arms.

Notation
    K, d        arms, dimension; the data are those of `shortlist bench choose`
    hnswlib     the graph that serves: float32 features, M = 16, ef_construction = 100
    faiss_sq8   HNSW16 over one byte for each coordinate, ef_construction = 100; its 30 best are scored again
    core, head  as the planner chooses them, and the same for both: the arms in the graph, the longest first,
                and the longest of them, which every search scans
    scan        the exact search of the index
    us, speedup processor time of a search; time of a scan / that time, timed by turns
    build_s     processor time of a build on one core; memory_mb: what the graph holds, its codes or features

For every ef both are measured, one after the other. BLAS and faiss have one thread. ``at_target``: the row of
each graph that reaches the usual target (``quality``) soonest. Needs the extra `peers`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from app.platform.errors import ShortlistError
from shortlist.index.exact import ExactOverlay, scan
from shortlist.index.hnsw import HEAD_NUMBERS, HnswGraph
from shortlist.index.planner import core, reserve_of
from shortlist.index.probes import Trial, compare, make_queries, solve
from shortlist.index.quality import LADDER, TARGET_RECALL, reaches
from shortlist.index.table import ArmTable, TableSnapshot
from shortlist.mips.exact import ranked, unit_scale
from shortlist.types import Rows, TopK, Vector
from shortlist_client.progress import progress
from studies.bench import choose
from studies.measurement import report

CASES: tuple[tuple[int, int, choose.Data], ...] = (
    (100_000, 32, "gaussian"),
    (100_000, 32, "unit"),
    (100_000, 128, "low_rank"),
    (100_000, 128, "gaussian"),
    (1_000_000, 32, "gaussian"),
)
QUICK_CASES = CASES[:2]
PROBES = 1_000
SEED = 7
M, EF_CONSTRUCTION, PROPOSED = 16, 100, 30
_CHUNK = 20_000

Search = Callable[[Vector], TopK]
Graph = tuple[Search, Callable[[int], None], float, float]
"""Its search, what sets its ef, the processor time of its build in seconds, and its memory in MB."""


def run(quick: bool) -> dict[str, Any]:
    """Measure both graphs at every ef (quick: on 100,000 x 32 alone); print and return a row for each."""
    if find_spec("faiss") is None:
        raise ShortlistError("faiss is not installed: .venv/bin/pip install -e '.[peers]'")
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1):
        for arms, dim, data in progress(QUICK_CASES if quick else CASES, "cases"):
            rows += case(arms, dim, data)
            gc.collect()
    return report("graphs", rows, seed=SEED)


def case(arms: int, dim: int, data: choose.Data, most_ef: int = 256) -> list[dict[str, Any]]:
    """The rows of one catalogue."""
    rng = np.random.default_rng((SEED, arms, dim))
    table = table_of(choose.make(arms, dim, data, rng))
    probes = solve(table, make_queries(dim, PROBES, (), rng)[0])
    rows = core(table, solve(table, make_queries(dim, PROBES, (), rng)[0], reserve=reserve_of(table))).rows
    graphs = {"hnswlib": hnswlib_graph(table, rows), "faiss_sq8": faiss_graph(table, rows)}
    found = []
    trials: dict[str, dict[int, Trial]] = {name: {} for name in graphs}
    for ef in (each for each in LADDER[::2] if each <= most_ef):
        for name, (search, tune, build_s, memory_mb) in graphs.items():
            tune(ef)
            trial = trials[name][ef] = compare(search, lambda query: scan(table, query, 1), probes)
            is_first = sum(reaches(each.quality, TARGET_RECALL) for each in trials[name].values()) == 1
            found.append(
                {
                    "K": arms,
                    "dim": dim,
                    "data": data,
                    "graph": name,
                    "ef": ef,
                    "us": trial.us,
                    "speedup": trial.speedup,
                    "recall_at_1": trial.quality.recall_at_1,
                    "ratio_mean": trial.quality.ratio_mean,
                    "at_target": is_first and reaches(trial.quality, TARGET_RECALL),
                    "build_s": build_s,
                    "memory_mb": memory_mb,
                }
            )
    return found


def table_of(features: Any) -> TableSnapshot:
    """The arms (K, d) as the index holds them; the ids are the rows."""
    table = ArmTable(features.shape[1])
    for start in range(0, len(features), _CHUNK):
        block = features[start : start + _CHUNK]
        revisions = np.arange(start, start + len(block))
        table.append([str(row) for row in revisions], block, revisions)
    return table.snapshot()


def hnswlib_graph(table: TableSnapshot, rows: Rows) -> Graph:
    """The graph of the index over ``rows``."""
    started = time.thread_time()
    graph = HnswGraph.build(
        table, rows, m=M, ef_construction=EF_CONSTRUCTION, seed=SEED, threads=1, check=lambda: None
    )
    build_s = time.thread_time() - started
    graph.with_head(table)

    def search(query: Vector) -> TopK:
        return graph.search(table, query, 1) or scan(table, query, 1)

    def tune(ef: int) -> None:
        graph.tuned(ef, shortlist=PROPOSED, most=graph.arms)

    return search, tune, build_s, graph.memory_bytes / 2**20


def faiss_graph(table: TableSnapshot, rows: Rows) -> Graph:
    """One of faiss over one byte a coordinate, with the same head and scoring as the graph of the index."""
    faiss: Any = import_module("faiss")  # a peer that need not be installed
    faiss.omp_set_num_threads(1)
    kind, metric = faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
    index = faiss.IndexHNSWSQ(table.dim, kind, M, metric)
    index.hnsw.efConstruction = EF_CONSTRUCTION
    started = time.thread_time()
    index.train(np.ascontiguousarray(table.working[rows]))
    for start in range(0, len(rows), _CHUNK):
        index.add(np.ascontiguousarray(table.working[rows[start : start + _CHUNK]]))
    build_s = time.thread_time() - started
    head = ExactOverlay.copied(table, rows[: HEAD_NUMBERS // table.dim])
    none_gone = np.zeros(len(head), dtype=np.bool_)

    def search(query: Vector) -> TopK:
        scaled, query_norm = unit_scale(query)
        _, labels = index.search(scaled.astype(np.float32)[None], PROPOSED)
        slope, offset = table.error_line
        best = head.best(scaled, slope * query_norm + offset, 1, none_gone, any_gone=False)
        found = labels[0][labels[0] >= 0]
        return ranked(np.concatenate((rows[found], best)), 1, table.features, query, exact=False)

    def tune(ef: int) -> None:
        index.hnsw.efSearch = ef

    memory = faiss.serialize_index(index).nbytes + rows.nbytes
    return search, tune, build_s, memory / 2**20
