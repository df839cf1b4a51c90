"""`shortlist bench planner`: what the planner chooses, build after build, alone and next to busy neighbours.

Notation
    K, d        100,000 Gaussian arms of dimension 32
    seed        of the arms, the probes and the graph of one build; `--seed` repeats a build
    neighbour   what was busy while the planner measured: nothing; another process, which keeps one core and
                the memory busy; a thread, which holds the interpreter lock as the event loop does
    recall      as the planner reports it
    checked     recall on 2,000 other queries
    scan_us     typical processor time of a scan, timed in turn with
    us          that of a search of what was chosen

A graph is built once for a seed and kept in a file. Next to every neighbour a new index loads it, measures
and decides again. BLAS and the build have one thread: a build of the same seed then makes the same graph.
Which ef serves also depends on the measured ratio of times.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from app.indexes.index_limits import IndexLimits
from app.indexes.live import LiveIndex
from shortlist.index.exact import scan
from shortlist.index.probes import compare, solve
from shortlist.types import Matrix
from shortlist_client.progress import progress
from studies.measurement import report

BUILDS, QUICK_BUILDS = 20, 3
SEED = 2_022
NEIGHBOUR_NUMBERS = 1 << 25  # 256 MB, beyond every cache
SWITCH_INTERVAL_S = 0.0005  # as in the service
_CHECK_SALT = 0x63686563


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Of a build. ``checked``: other queries. ``limits``: from which sizes on an index is planned."""

    arms: int = 100_000
    dim: int = 32
    checked: int = 2_000
    limits: IndexLimits = IndexLimits()


SIZES = Sizes()


def run(quick: bool, seed: int | None = None, sizes: Sizes = SIZES) -> dict[str, Any]:
    """Build 20 graphs (quick: 3), or that of ``seed``; print and return a row for each and each neighbour."""
    count = QUICK_BUILDS if quick else BUILDS
    seeds = range(SEED, SEED + count) if seed is None else range(seed, seed + 1)
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1):
        for each in progress(seeds, "builds"):
            rows += decisions(each, sizes)
    result = report("planner", rows, seed=seeds[0])
    for name in NEIGHBOURS:
        kinds = [row["kind"] for row in rows if row["neighbour"] == name]
        print(f"busy: {name}: {kinds.count('hnsw')} of {len(kinds)} builds are served by a graph")
    return result


def decisions(seed: int, sizes: Sizes) -> list[dict[str, Any]]:
    """What the planner decides for one graph next to each neighbour; each is shown as soon as it is known."""
    features = np.random.default_rng(seed).standard_normal((sizes.arms, sizes.dim))
    rows = []
    with TemporaryDirectory() as folder:
        for name, neighbour in NEIGHBOURS.items():
            with neighbour():
                index = decided(features, seed, Path(folder, "graph"), sizes.limits)
                row = {"seed": seed, "neighbour": name, **checked(index, seed, sizes.checked)}
            short = {key: round(value, 4) for key, value in row.items() if isinstance(value, float)}
            print(json.dumps(row | short), file=sys.stderr, flush=True)
            rows.append(row)
    return rows


def decided(features: Matrix, seed: int, cache: Path, limits: IndexLimits) -> LiveIndex:
    """An index over ``features`` (K, d) that has measured and chosen; its graph is read from ``cache``."""
    index = LiveIndex(features.shape[1], seed=seed, threads=1, cache=cache, limits=limits)
    index.upsert([str(row) for row in range(len(features))], features, range(len(features)))
    while (job := index.begin_maintenance()) is not None:
        job.run()
        index.finish(job)
    return index


def checked(index: LiveIndex, seed: int, count: int) -> dict[str, Any]:
    """What the index says of itself, and what a search of it is like on other queries."""
    status, snapshot = index.status(), index.snapshot()
    queries = np.random.default_rng((seed, _CHECK_SALT)).standard_normal((count, snapshot.table.dim))
    trial = compare(
        lambda query: snapshot.search(query, 1),
        lambda query: scan(snapshot.table, query, 1),
        solve(snapshot.table, queries),
    )
    return {
        "kind": status.kind,
        "ef": status.ef_search,
        "recall": status.recall_at_1,
        "checked": trial.quality.recall_at_1,
        "ratio_mean": trial.quality.ratio_mean,
        "scan_us": trial.exact_us,
        "us": trial.us,
        "speedup": trial.speedup,
    }


@contextmanager
def busy_process() -> Iterator[None]:
    """Another process that copies a large array all the time."""
    context = multiprocessing.get_context("spawn")
    begun = context.Event()
    process = context.Process(target=_copy_forever, args=(begun,), daemon=True)
    process.start()
    try:
        begun.wait()
        yield
    finally:
        process.kill()
        process.join()


def _copy_forever(begun: Event) -> None:
    source, target = np.ones(NEIGHBOUR_NUMBERS), np.zeros(NEIGHBOUR_NUMBERS)
    begun.set()
    while True:
        np.copyto(target, source)


@contextmanager
def busy_thread() -> Iterator[None]:
    """Another thread that reads JSON all the time, with the switch interval of the service."""
    text = json.dumps(
        [{"id": f"arm-{number}", "features": [number / 7] * SIZES.dim} for number in range(200)]
    )
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            json.loads(text)

    thread = threading.Thread(target=read, daemon=True)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)


NEIGHBOURS: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    "nothing": nullcontext,
    "process": busy_process,
    "thread": busy_thread,
}
