"""`shortlist bench churn`: searches while 200 % of the arms are replaced, those of largest norm first.

Notation
    share       arms replaced so far / arms
    p99_ratio   99th percentile of the times of a search / the same of the quiet index in the same run
    fresh       arms scanned beside the graph, at the end of the stretch; dead: tombstones by then
    folds       times that a new graph took over

One thread does what the service's event loop does: changes, searches, and both ends of maintenance, which it
looks for every 0.2 s and runs in a second thread. Arms of largest norm are the hubs of the graph and the
answers to most queries, so their retirement is the worst case. Queries are Gaussian; every fourth is answered
again by the exact scan, outside the times. ``ef_search`` is fixed: what is watched is what churn does to a
graph, not which graph the planner would choose.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from app.indexes.live import IndexOptions, LiveIndex, Maintenance
from shortlist.types import Matrix
from shortlist_client.files.progress import progress
from studies.measurement import report

SEED = 11
DIM = 32
ARMS = 200_000
QUICK_ARMS = 100_000
QUIET_S = 5.0
OPTIONS = IndexOptions(kind="hnsw", ef_search=192)
TURNOVER = 2.0
STRETCH = 0.2
BATCH = 100
ARMS_PER_S = 2_000
LOOK_EVERY_S = 0.2
CHECK_EVERY = 4
SWITCH_INTERVAL_S = 0.0005  # as in the service


@dataclass(slots=True)
class Stretch:
    """What the searches of one stretch of time showed."""

    us: list[float] = field(default_factory=list)
    hits: int = 0
    checked: int = 0

    def row(self, index: LiveIndex, share: float, folds: int, quiet_p99: float | None) -> dict[str, Any]:
        p50, p99 = (float(q) for q in np.quantile(self.us, (0.5, 0.99)))
        status = index.status()
        return {
            "K": len(index),
            "share": share,
            "p50_us": p50,
            "p99_us": p99,
            "p99_ratio": p99 / quiet_p99 if quiet_p99 else 1.0,
            "recall_at_1": self.hits / self.checked,
            "queries": len(self.us),
            "kind": status.kind,
            "fresh": status.fresh,
            "dead": status.dead,
            "folds": folds,
        }


class Loop:
    """The part of the service's event loop that belongs to one index."""

    def __init__(self, index: LiveIndex, rng: np.random.Generator) -> None:
        self.index = index
        self.folds = 0
        self._rng = rng
        self._job: Maintenance | None = None
        self._thread: threading.Thread | None = None
        self._look_at = 0.0

    def look(self) -> None:
        """Begin maintenance that is due, finish what is done."""
        if self._job is not None and self._thread is not None and not self._thread.is_alive():
            self.folds += self._job.structure is not None
            self.index.finish_maintenance(self._job)
            self._job = None
        if self._job is None and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_EVERY_S
            self._job = self.index.begin_maintenance()
            if self._job is not None:
                self._thread = threading.Thread(target=self._job.run, daemon=True)
                self._thread.start()

    def search_until(self, deadline: float, stretch: Stretch) -> None:
        """Search without a pause until ``deadline``, at least once."""
        while True:
            self.look()
            query = self._rng.standard_normal(DIM)
            snapshot = self.index.snapshot()
            started = time.perf_counter()
            found = snapshot.search(query, 1)
            stretch.us.append((time.perf_counter() - started) * 1e6)
            if len(stretch.us) % CHECK_EVERY == 0:
                stretch.checked += 1
                stretch.hits += found.rows[0] == snapshot.search_exact(query, 1).rows[0]
            if time.monotonic() >= deadline:
                return

    def settle(self) -> None:
        """Wait for the work that is due and that is going on."""
        while self._job is not None or self.folds == 0:
            self.look()
            time.sleep(0.01)

    def stop(self) -> None:
        if self._job is not None and self._thread is not None:
            self._job.cancel()
            self._thread.join()
            self.index.finish_maintenance(self._job)


def run(quick: bool) -> dict[str, Any]:
    """Replace 200 % of 100,000 (quick) or 200,000 arms at 2,000 a second; print and return the rows."""
    arms = QUICK_ARMS if quick else ARMS
    rng = np.random.default_rng(SEED)
    features = rng.standard_normal((arms, DIM))
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        index = LiveIndex(DIM, OPTIONS, cache=Path(folder) / "churn.index", seed=SEED)
        index.upsert([str(arm) for arm in range(arms)], features, range(arms))
        loop = Loop(index, rng)
        try:
            rows = _watch(loop, features, rng)
        finally:
            loop.stop()
    return report("churn", rows, seed=SEED)


def _watch(loop: Loop, features: Matrix, rng: np.random.Generator) -> list[dict[str, Any]]:
    loop.settle()
    quiet = Stretch()
    loop.search_until(time.monotonic() + QUIET_S, quiet)
    rows = [quiet.row(loop.index, 0.0, loop.folds, None)]
    arms, revision = len(features), len(features)
    per_stretch = int(STRETCH * arms)
    for stretch_number in progress(range(1, round(TURNOVER / STRETCH) + 1), "stretches"):
        stretch = Stretch()
        retired = np.argsort(-np.linalg.norm(features, axis=1))[:per_stretch]
        for start in range(0, per_stretch, BATCH):
            next_batch = time.monotonic() + BATCH / ARMS_PER_S
            batch = retired[start : start + BATCH]
            features[batch] = rng.standard_normal((len(batch), DIM))
            revisions = range(revision, revision + len(batch))
            loop.index.upsert([str(arm) for arm in batch], features[batch], revisions)
            revision += len(batch)
            loop.search_until(next_batch, stretch)
        rows.append(stretch.row(loop.index, stretch_number * STRETCH, loop.folds, rows[0]["p99_us"]))
    return rows
