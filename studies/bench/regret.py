"""`shortlist bench regret`: Sub-TS against exact Thompson sampling, on the same arms, noise and draws.

Both run over the same index; only Sub-TS searches its graph, which is forced, so that the comparison is with
an approximate search at every K. Maintenance runs between steps and is not timed.
"""

from __future__ import annotations

import time
from typing import Any, Literal

import numpy as np

from app.indexes.live import IndexOptions, LiveIndex
from app.indexes.snapshot import Snapshot
from shortlist.linear import ridge, ridge_sums, sub_ts
from shortlist.types import NO_ROWS, MipsSolver, Rows, TopK, Vector
from shortlist_client.progress import progress
from studies.experiments import synthetic
from studies.experiments.synthetic import PERIOD, Environment
from studies.measurement import report

STEPS = 20_000
CATALOGUES = (5_000, 100_000)
EXPLORATION = 1.0
RIDGE = 1.0
SEED = 2022
MAINTAIN_EVERY = 500
ALWAYS: Any = np.array([True])


class Exactly:
    """The exact search of a snapshot, as a solver."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        return self._snapshot.search_exact(query, k, exclude)


def run(quick: bool) -> dict[str, Any]:
    """Compare on 2 (quick) or 10 paired seeds; print and return the rows."""
    rows = []
    for arms in CATALOGUES:
        pairs = []
        for seed in progress(range(SEED, SEED + (2 if quick else 10)), f"seeds, K = {arms:,}"):
            environment = synthetic.make(arms, STEPS, seed=seed)
            pairs.append([play(environment, policy, seed) for policy in ("linear_ts", "sub_ts")])
        exact, sub = (np.array([pair[place] for pair in pairs]) for place in (0, 1))
        for policy, results in (("linear_ts", exact), ("sub_ts", sub)):
            rows.append(
                {
                    "K": arms,
                    "policy": policy,
                    "seeds": len(pairs),
                    "regret_mean": float(results[:, 0].mean()),
                    "regret_sd": float(results[:, 0].std(ddof=1)),
                    "us_per_step": float(results[:, 1].mean()),
                    "approximate_share": float(results[:, 2].mean()),
                    "regret_ratio": float(results[:, 0].sum() / exact[:, 0].sum()),
                    "speedup": float(exact[:, 1].sum() / results[:, 1].sum()),
                }
            )
    return report("regret", rows, seed=SEED)


def play(
    environment: Environment, policy: Literal["sub_ts", "linear_ts"], seed: int
) -> tuple[float, float, float]:
    """Return the regret, the microseconds of a step (draw, search, learn), the share of graph searches."""
    rng = np.random.default_rng(seed)
    index = LiveIndex(environment.arms.shape[1], IndexOptions(kind="hnsw"), seed=seed)
    sums = ridge_sums.empty(environment.arms.shape[1])
    there, regret, seconds, approximate = 0, 0.0, 0.0, 0
    for step in range(environment.steps):
        if step % PERIOD == 0:
            there = _arrive(environment, index, there, environment.available(step))
        if step % MAINTAIN_EVERY == 0 and policy == "sub_ts":
            _maintain(index)
        snapshot = index.snapshot()
        solver: MipsSolver = snapshot if policy == "sub_ts" else Exactly(snapshot)
        started = time.perf_counter()
        posterior = ridge.posterior(sums, ridge=RIDGE)
        found = sub_ts.choose(posterior, solver, k=1, exploration=EXPLORATION, rng=rng)
        arm = int(snapshot.id_of(int(found.rows[0])))
        reward = np.array([environment.reward(step, arm)])
        sums = ridge_sums.add(sums, environment.arms[arm : arm + 1], reward, ALWAYS)
        seconds += time.perf_counter() - started
        regret += environment.regret(step, arm)
        approximate += not found.exact
    return regret, seconds / environment.steps * 1e6, approximate / environment.steps


def _arrive(environment: Environment, index: LiveIndex, there: int, wanted: int) -> int:
    new = range(there, wanted)
    index.upsert([str(arm) for arm in new], environment.arms[there:wanted], new)
    return wanted


def _maintain(index: LiveIndex) -> None:
    while (job := index.begin_maintenance()) is not None:
        job.run()
        index.finish(job)
