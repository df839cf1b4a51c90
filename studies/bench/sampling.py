"""`shortlist bench sampling`: the samplers over the paper's grid, against exact vectorised sampling.

The alternative is one pass over all factors, summed by BLAS, and one draw of Gumbel noise. The factors lie in
memory, factor after factor, so a read costs next to nothing: where factors are likelihoods to be computed,
time follows ``reads``. Times are processor seconds of the one thread, so that others on the machine do not
count. Every draw is compared with the exact one of the same noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from shortlist.sampling.factors import Draws, Factors
from shortlist.sampling.lil_ucb import lil_ucb
from shortlist.sampling.racing_ebs import racing_ebs
from shortlist.sampling.racing_normal import racing_normal
from shortlist.types import Matrix, Rows, Vector
from shortlist_client.progress import progress
from studies.experiments.sampling_figure import REWARDS, SIGMAS, population, probabilities
from studies.measurement import report

SIZE = 100_000
QUICK_SIZE = 20_000
STATES = (2, 10, 100)
DELTAS = (0.01, 0.1)
MOST_DRAWS = 400
SEED = 5

Sampler = Callable[[Factors, np.random.Generator, float], Draws]


def run(quick: bool) -> dict[str, Any]:
    """Measure one draw of each method at each point; print and return the rows."""
    rows: list[dict[str, Any]] = []
    points = [(rewards, states) for states in STATES for rewards in REWARDS]
    for rewards, states in progress(points, "populations"):
        noise = population(rewards, states, QUICK_SIZE if quick else SIZE)
        most_s = 0.3 if quick else 0.5
        for sigma in SIGMAS:
            logs = sigma * noise + np.log(probabilities(states)) / len(noise)
            rows += [
                {"rewards": rewards, "D": states, "sigma": sigma, **row} for row in measure(logs, most_s)
            ]
    return report("sampling", rows, seed=SEED)


def measure(logs: Matrix, most_s: float) -> list[dict[str, Any]]:
    """The rows of one population, each after at most so many seconds. Shapes: logs (N, D)."""
    size, states = logs.shape
    factors, ranges = Factors(states, size, _reader(logs)), np.ptp(logs, axis=0)
    samplers: dict[str, Sampler] = {
        "racing_normal": lambda f, rng, delta: racing_normal(f, delta=delta, rng=rng),
        "racing_normal marginal": lambda f, rng, delta: racing_normal(
            f, delta=delta, rng=rng, variance="marginal"
        ),
        "racing_ebs": lambda f, rng, delta: racing_ebs(f, ranges=ranges, delta=delta, rng=rng),
        "lil_ucb": lambda f, rng, delta: lil_ucb(f, ranges=ranges, delta=delta, rng=rng),
        "lil_ucb heuristic": lambda f, rng, delta: lil_ucb(
            f, ranges=ranges, delta=delta, rng=rng, setting="heuristic"
        ),
    }
    ones = np.ones(size)
    exact_s = _median([_timed(partial(_exactly, logs, ones, seed)) for seed in range(5)])
    sums, rows = ones @ logs, []
    for delta in DELTAS:
        for name, sampler in samplers.items():
            sampler(factors, np.random.default_rng(SEED), delta)  # B_Normal is made once for a delta
            wrong, reads, seconds = 0, 0, list[float]()
            while sum(seconds) < most_s and len(seconds) < MOST_DRAWS:
                seed = len(seconds)
                started = time.thread_time()
                drawn = sampler(factors, np.random.default_rng(seed), delta)
                seconds.append(time.thread_time() - started)
                wrong += int(drawn.rows[0]) != _exact(sums, seed)
                reads += drawn.reads
            rows.append(
                {
                    "method": name,
                    "delta": delta,
                    "draws": len(seconds),
                    "error": wrong / len(seconds),
                    "reads": reads / (len(seconds) * logs.size),
                    "time_ratio": _median(seconds) / exact_s,
                }
            )
    return rows


def _reader(logs: Matrix) -> Callable[[Rows, Rows], Matrix]:
    """Factor after factor: those of one index are next to each other, so few of them are read quickly."""
    states = logs.shape[1]

    def read(arms: Rows, indices: Rows) -> Matrix:
        picked = logs[indices]
        found: Matrix = (picked if len(arms) == states else picked[:, arms]).T
        return found

    return read


def _exactly(logs: Matrix, ones: Vector, seed: int) -> int:
    return _exact(ones @ logs, seed)


def _exact(sums: Vector, seed: int) -> int:
    return int((sums + np.random.default_rng(seed).gumbel(size=len(sums))).argmax())


def _timed(work: Callable[[], object]) -> float:
    started = time.thread_time()
    work()
    return time.thread_time() - started


def _median(seconds: list[float]) -> float:
    return float(np.median(seconds))
