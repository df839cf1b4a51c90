"""`shortlist bench growth`: how the time of a decision grows with the number of arms.

Notation
    K               number of arms, from 10,000 to 1,000,000; d = 16, standard normal
    exponent        slope of log(time of a decision) over log K, by least squares over all K

A decision of Sub-TS is a draw and a search of the planner's index, one of Sub-Elim a choice from its lowest
stage before any arm is eliminated. Their baselines scan: one float32 product with all arms, and the rank-one
step that keeps all widths with their maximum. Learning is the same for all, and left out.

Then arms of d = 32 are imported, 13,000 a second in batches of 1,000, while searches go on without a pause;
and they go on until the index is at rest. Policy ``import`` of the rows: p50 of a search in ten parts of the
import and after it (``rest``), its ratio to that at rest, and the processor time of all builds / that of the
last one (``builds``). Without ``--quick``: 2,000,000 arms.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from app.indexes.live import IndexOptions, LiveIndex
from shortlist.linear import elimination, linear_ts, ridge, ridge_sums, sub_elim, sub_ts
from shortlist.linear.most_uncertain_arm import Watched
from shortlist_client.progress import progress
from studies.bench.index_loop import IndexLoop, Stretch
from studies.experiments.elimination_policies import WidthScan
from studies.measurement import report

SIZES = (10_000, 31_623, 100_000, 316_228, 1_000_000)
DIM = 16
SEED = 2022
REWARDS = 200
TIMED, QUICK_TIMED = 1_000, 200
IMPORTED_PER_S = 13_000
POLICIES = ("linear_ts", "sub_ts", "linear_elim", "sub_elim")


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """``check_every``: one search of so many is compared with a scan, outside the times. ``rest_s``: at rest
    after so long without work; then searches are timed for ``quiet_s``.
    """

    arms: int = 2_000_000
    dim: int = 32
    batch: int = 1_000
    check_every: int = 200
    rest_s: float = 10.0
    quiet_s: float = 5.0


WHOLE, QUICK = Import(), Import(arms=200_000)


def run(quick: bool) -> dict[str, Any]:
    """Time decisions at every K; print and return a row for each, with the exponent of its policy."""
    timed = QUICK_TIMED if quick else TIMED
    with threadpool_limits(1):
        found = [decisions(arms, timed) for arms in progress(SIZES, "values of K")]
    rows = []
    for policy in POLICIES:
        us = [times[policy] for times in found]
        exponent = float(np.polyfit(np.log(SIZES), np.log(us), 1)[0])
        for place, arms in enumerate(SIZES):
            scan = found[place][policy.replace("sub", "linear")]
            row = {"policy": policy, "K": arms, "us_per_decision": us[place], "times_scan": scan / us[place]}
            rows.append({**row, "exponent": exponent})
    rows += imported(QUICK if quick else WHOLE)
    return report("growth", rows, seed=SEED)


def decisions(arms: int, timed: int) -> dict[str, float]:
    """Median processor time of a decision, in microseconds, for each policy."""
    rng = np.random.default_rng(SEED)
    features = rng.standard_normal((arms, DIM))
    few = features[rng.integers(0, arms, REWARDS)]
    values = few @ rng.standard_normal(DIM) + rng.standard_normal(REWARDS)
    sums = ridge_sums.add(ridge_sums.empty(DIM), few, values, np.ones(REWARDS, dtype=np.bool_))
    posterior = ridge.posterior(sums, ridge=1.0)
    index = LiveIndex(DIM, IndexOptions(), seed=SEED)
    index.upsert([str(row) for row in range(arms)], features, range(arms))
    while (job := index.begin_maintenance()) is not None:
        job.run()
        index.finish(job)
    snapshot, working = index.snapshot(), features.astype(np.float32)
    rules = elimination.rules(radius=100.0, eta=1e-3)
    state = elimination.start(posterior, np.arange(arms), lambda rows: features[rows], rules)
    scan = WidthScan(features)
    scan.add(np.arange(arms), posterior)

    def scanned() -> None:
        query = linear_ts.draw(posterior, exploration=1.0, rng=rng).astype(np.float32)
        (working @ query).argmax()

    def widest() -> None:
        scan.learned(0, posterior)
        scan(posterior, state, rng)

    def living() -> None:
        sub_elim.choose(state, posterior, lambda rows: features[rows], Watched(), k=1, rng=rng)

    return {
        "linear_ts": _median_us(scanned, timed),
        "sub_ts": _median_us(
            lambda: sub_ts.choose(posterior, snapshot, k=1, exploration=1.0, rng=rng), timed
        ),
        "linear_elim": _median_us(widest, timed),
        "sub_elim": _median_us(living, timed),
    }


def imported(sizes: Import) -> list[dict[str, Any]]:
    """Search while arms are imported, and after it; a row for each tenth of them and one at rest."""
    rng, arms = np.random.default_rng(SEED), sizes.arms
    features = rng.standard_normal((arms, sizes.dim))
    index = LiveIndex(sizes.dim, IndexOptions(), seed=SEED)
    loop, stretch, began = IndexLoop(index, rng, sizes.check_every), Stretch(), time.monotonic()
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1):
        try:
            for first in progress(range(0, arms, sizes.batch), "batches"):
                last = first + sizes.batch
                index.upsert(
                    [str(row) for row in range(first, last)], features[first:last], range(first, last)
                )
                loop.search_until(began + last / IMPORTED_PER_S, stretch)
                if last * 10 // arms > len(rows):
                    rows.append(_import_row(loop, stretch))
                    stretch = Stretch()
            builds, rest_from = loop.builds, time.monotonic() + sizes.rest_s + loop.last_s
            while time.monotonic() < rest_from:
                loop.search_until(time.monotonic() + 1.0, Stretch())
                if loop.is_busy or loop.builds > builds:
                    # The planner rests as long as its last build took.
                    builds, rest_from = loop.builds, time.monotonic() + sizes.rest_s + loop.last_s
            quiet = Stretch()
            loop.search_until(time.monotonic() + sizes.quiet_s, quiet)
        finally:
            loop.stop()
    rows.append(_import_row(loop, quiet) | {"phase": "rest"})
    least = rows[-1]["us_per_decision"]
    return [{**row, "times_rest": row["us_per_decision"] / least} for row in rows]


def _import_row(loop: IndexLoop, stretch: Stretch) -> dict[str, Any]:
    status = loop.index.status()
    return {
        "policy": "import",
        "phase": "import",
        "K": status.size,
        "us_per_decision": float(np.median(stretch.us)),
        "recall_at_1": stretch.hits / max(stretch.checked, 1),
        "kind": status.kind,
        "fresh": status.fresh,
        "builds": loop.cpu_s / loop.last_cpu_s if loop.last_cpu_s else 0.0,
    }


def _median_us(decide: Callable[[], object], timed: int) -> float:
    times = []
    for _ in range(timed):
        started = time.process_time()
        decide()
        times.append(time.process_time() - started)
    return float(np.median(times)) * 1e6
