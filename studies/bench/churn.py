"""`shortlist bench churn`: searches while 200 % of the arms are replaced, those of largest norm first.

Notation
    share       arms replaced so far / arms
    p99_ratio   99th percentile of the times of a search / the same of the quiet index in the same run
    fresh       arms scanned beside the graph at the end of the stretch; dead: tombstones by then
    folds       times that a new graph took over
    told        recall that the index tells of itself at the end of the stretch

One thread does what the service's event loop does: changes, searches, and both ends of the work that it looks
for every 0.2 s and runs in other threads. Arms of largest norm are the hubs of the graph and the answers to
most queries, so their retirement is the worst case. Queries are Gaussian; every fourth is answered again by
the exact scan, outside the times. So are narrow ones, as of users with rewards: each near one of 30
directions (``narrow_recall_at_1``; ``worst_recall_at_1``: mean of the three of least recall). ``ef_search``
is fixed: what is watched is what churn does to a graph, not which graph the planner would choose.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from app.indexes.live import IndexOptions, LiveIndex
from shortlist.types import Matrix
from shortlist_client.progress import progress
from studies.bench.index_loop import CHECK_EVERY, IndexLoop, Stretch
from studies.measurement import report

SEED = 11
OPTIONS = IndexOptions(kind="hnsw", ef_search=192)
TURNOVER = 2.0
STRETCH = 0.2
TASTES, NARROW_QUERIES, NARROW_SIGMA = 30, 8, 0.1
BATCH = 100
SWITCH_INTERVAL_S = 0.0005  # as in the service


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """``quiet_s``: of searches before anything changes. ``check_every``: see ``IndexLoop``."""

    arms: int = 200_000
    dim: int = 32
    quiet_s: float = 5.0
    arms_per_s: int = 2_000
    check_every: int = CHECK_EVERY


WHOLE, QUICK = Sizes(), Sizes(arms=100_000)


def _row(stretch: Stretch, loop: IndexLoop, share: float, quiet_p99: float | None) -> dict[str, Any]:
    p50, p99 = (float(q) for q in np.quantile(stretch.us, (0.5, 0.99)))
    status = loop.index.status()
    return {
        "K": len(loop.index),
        "share": share,
        "p50_us": p50,
        "p99_us": p99,
        "p99_ratio": p99 / quiet_p99 if quiet_p99 else 1.0,
        "recall_at_1": stretch.hits / stretch.checked,
        **_narrow(loop.index),
        "told": status.recall_at_1,
        "queries": len(stretch.us),
        "kind": status.kind,
        "fresh": status.fresh,
        "dead": status.dead,
        "folds": loop.builds,
    }


def _narrow(index: LiveIndex) -> dict[str, float]:
    """The recall of users who each ask near one direction, which no probe was drawn for."""
    rng, snapshot = np.random.default_rng(SEED + 1), index.snapshot()
    recalls = []
    for taste in rng.standard_normal((TASTES, snapshot.table.dim)):
        queries = taste + NARROW_SIGMA * rng.standard_normal((NARROW_QUERIES, len(taste)))
        found = [snapshot.search(query, 1).rows[0] for query in queries]
        best = [snapshot.search_exact(query, 1).rows[0] for query in queries]
        recalls.append(float(np.mean(np.equal(found, best))))
    least = sorted(recalls)[: TASTES // 10]
    return {"narrow_recall_at_1": float(np.mean(recalls)), "worst_recall_at_1": float(np.mean(least))}


def run(quick: bool, sizes: Sizes | None = None) -> dict[str, Any]:
    """Replace 200 % of 100,000 (quick) or 200,000 arms at 2,000 a second; print and return the rows."""
    sizes = sizes or (QUICK if quick else WHOLE)
    arms = sizes.arms
    rng = np.random.default_rng(SEED)
    features = rng.standard_normal((arms, sizes.dim))
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        index = LiveIndex(sizes.dim, OPTIONS, cache=Path(folder) / "churn.index", seed=SEED)
        index.upsert([str(arm) for arm in range(arms)], features, range(arms))
        loop = IndexLoop(index, rng, sizes.check_every)
        try:
            rows = _watch(loop, features, rng, sizes)
        finally:
            loop.stop()
    return report("churn", rows, seed=SEED)


def _watch(loop: IndexLoop, features: Matrix, rng: np.random.Generator, sizes: Sizes) -> list[dict[str, Any]]:
    loop.settle()
    quiet = Stretch()
    loop.search_until(time.monotonic() + sizes.quiet_s, quiet)
    rows = [_row(quiet, loop, 0.0, None)]
    arms, revision = len(features), len(features)
    per_stretch = int(STRETCH * arms)
    for stretch_number in progress(range(1, round(TURNOVER / STRETCH) + 1), "stretches"):
        stretch = Stretch()
        retired = np.argsort(-np.linalg.norm(features, axis=1))[:per_stretch]
        for start in range(0, per_stretch, BATCH):
            next_batch = time.monotonic() + BATCH / sizes.arms_per_s
            batch = retired[start : start + BATCH]
            features[batch] = rng.standard_normal((len(batch), sizes.dim))
            revisions = range(revision, revision + len(batch))
            loop.index.upsert([str(arm) for arm in batch], features[batch], revisions)
            revision += len(batch)
            loop.search_until(next_batch, stretch)
        rows.append(_row(stretch, loop, stretch_number * STRETCH, rows[0]["p99_us"]))
    return rows
