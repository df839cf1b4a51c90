"""`shortlist bench planner`: what the planner chooses, build after build, alone and next to a busy process.

Notation
    K, d        100,000 Gaussian arms of dimension 32
    seed        of the arms, the probes and the graph of one build; `--seed` repeats a build
    neighbour   whether another process kept one core and the memory busy, from before the build to the end
    recall      as the planner reports it
    checked     recall on 2,000 other queries
    scan_us     typical time of a scan, timed in turn with
    us          that of a search of what was chosen

BLAS and the build have one thread: a build of the same seed then makes the same graph. Which ef serves also
depends on the measured ratio of times.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from app.indexes.exact import scan
from app.indexes.live import LiveIndex
from app.indexes.probes import compare, solve
from app.measurement import report
from app.progress import progress

ARMS, DIM = 100_000, 32
BUILDS, QUICK_BUILDS = 20, 3
SEED = 2_022
CHECKED = 2_000
NEIGHBOUR_NUMBERS = 1 << 25  # 256 MB, beyond every cache
_CHECK_SALT = 0x63686563


def run(quick: bool, seed: int | None = None) -> dict[str, Any]:
    """Build 20 times (quick: 3) in each setting, or once with ``seed``; print and return the rows."""
    count = QUICK_BUILDS if quick else BUILDS
    seeds = range(SEED, SEED + count) if seed is None else range(seed, seed + 1)
    with threadpool_limits(1):
        rows = [build(each, neighbour=False) for each in progress(seeds, "builds alone")]
        with busy_neighbour():
            rows += [build(each, neighbour=True) for each in progress(seeds, "builds next to a busy process")]
    result = report("planner", rows, seed=seeds[0])
    for neighbour in (False, True):
        kinds = [row["kind"] for row in rows if row["neighbour"] == neighbour]
        setting = "next to a busy process" if neighbour else "alone"
        print(f"{setting}: {kinds.count('hnsw')} of {len(kinds)} builds are served by a graph")
    return result


def build(seed: int, *, neighbour: bool) -> dict[str, Any]:
    """Fill an index, let it choose, and check what it says."""
    features = np.random.default_rng(seed).standard_normal((ARMS, DIM))
    index = LiveIndex(DIM, seed=seed, threads=1)
    index.upsert([str(row) for row in range(ARMS)], features, range(ARMS))
    while (job := index.begin_maintenance()) is not None:
        job.run()
        index.finish_maintenance(job)
    status, snapshot = index.status(), index.snapshot()
    queries = np.random.default_rng((seed, _CHECK_SALT)).standard_normal((CHECKED, DIM))
    checked = compare(
        lambda query: snapshot.search(query, 1),
        lambda query: scan(snapshot.view, query, 1),
        solve(snapshot.view, queries),
    )
    return {
        "seed": status.seed,
        "neighbour": neighbour,
        "kind": status.kind,
        "ef": status.ef_search,
        "recall": status.recall_at_1,
        "checked": checked.quality.recall_at_1,
        "ratio_mean": checked.quality.ratio_mean,
        "scan_us": checked.exact_us,
        "us": checked.us,
        "speedup": checked.speedup,
        "build_s": status.build_s,
    }


@contextmanager
def busy_neighbour() -> Iterator[None]:
    """Another process that copies a large array all the time: one core and the memory are busy."""
    context = multiprocessing.get_context("spawn")
    begun = context.Event()
    process = context.Process(target=_keep_busy, args=(begun,), daemon=True)
    process.start()
    try:
        begun.wait()
        yield
    finally:
        process.kill()
        process.join()


def _keep_busy(begun: Event) -> None:
    source, target = np.ones(NEIGHBOUR_NUMBERS), np.zeros(NEIGHBOUR_NUMBERS)
    begun.set()
    while True:
        np.copyto(target, source)
