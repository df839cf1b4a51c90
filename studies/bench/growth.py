"""`shortlist bench growth`: how the time of a decision grows with the number of arms.

Notation
    K               number of arms, from 10,000 to 1,000,000; d = 16, standard normal
    exponent        slope of log(time of a decision) over log K, by least squares over all K

A decision of Sub-TS is a draw and a search of the planner's index, one of Sub-Elim a choice from its lowest
stage before any arm is eliminated. Their baselines scan: one float32 product with all arms, and the rank-one
step that keeps all widths with their maximum. Learning is the same for all, and left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from app.indexes.live import IndexOptions, LiveIndex
from shortlist.linear import elimination, linear_ts, ridge, ridge_sums, sub_elim, sub_ts
from shortlist.linear.most_uncertain_arm import Watched
from shortlist_client.files.progress import progress
from studies.experiments.elimination_policies import WidthScan
from studies.measurement import report

SIZES = (10_000, 31_623, 100_000, 316_228, 1_000_000)
DIM = 16
SEED = 2022
REWARDS = 200
TIMED, QUICK_TIMED = 1_000, 200
POLICIES = ("linear_ts", "sub_ts", "linear_elim", "sub_elim")


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
        index.finish_maintenance(job)
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


def _median_us(decide: Callable[[], object], timed: int) -> float:
    times = []
    for _ in range(timed):
        started = time.process_time()
        decide()
        times.append(time.process_time() - started)
    return float(np.median(times)) * 1e6
