"""One run of one policy in one environment, with a clock that knows what a decision has to wait for.

Times are processor seconds of this process, so a busy machine disturbs them less; BLAS and graph builds are
held to one core by the caller.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from shortlist.linear import ridge
from shortlist.linear.ridge import Posterior
from shortlist.types import Rows
from studies.experiments.synthetic import PERIOD, Environment

RIDGE = 1.0
SCANS_EVERY = 20
CURVE = 200


class Policy(Protocol):
    """A bandit algorithm with its arms; see ``ts_policies`` and ``elimination_policies``."""

    def start(self, rows: Rows, posterior: Posterior, /) -> None: ...
    def change(self, came: Rows, left: Rows, posterior: Posterior, /) -> None: ...
    def upkeep(self) -> None: ...
    def choose(self, posterior: Posterior, rng: np.random.Generator, /) -> int: ...
    def learned(self, arm: int, before: Posterior, /) -> None: ...
    def scans(self, posterior: Posterior, /) -> dict[str, Callable[[], object]]: ...


@dataclass(frozen=True, slots=True)
class Run:
    """Regret over all steps, and seconds.

    ``preparing``: all arms, before the first step. ``online``: everything that a decision waits for.
    ``upkeep``: what a service does meanwhile in another thread. ``scans``: what scans of all arms
    alone would take over all steps, measured at every ``SCANS_EVERY``-th; baselines only. ``curve``: regret
    after each of ``CURVE`` equal parts.
    """

    regret: float
    preparing: float
    online: float
    upkeep: float
    scans: dict[str, float]
    curve: list[float]


def play(environment: Environment, policy: Policy, *, ridge_strength: float = RIDGE, seed: int) -> Run:
    """Play all steps. Rewards arrive at once, and the posterior is the exact one at every step."""
    rng = np.random.default_rng(seed)
    clock = time.process_time
    posterior = ridge.prior(environment.arms.shape[1], ridge=ridge_strength)
    present = environment.available(0)
    started = clock()
    policy.start(np.arange(present), posterior)
    preparing, online, upkeep = clock() - started, 0.0, 0.0
    scans: dict[str, float] = defaultdict(float)
    losses = np.empty(environment.steps)
    for step in range(environment.steps):
        started = clock()
        if step and step % PERIOD == 0:
            came = np.arange(present, environment.available(step))
            policy.change(came, environment.leaving(step), posterior)
            present += len(came)
        arm = policy.choose(posterior, rng)
        policy.learned(arm, posterior)
        posterior = ridge.learned(posterior, environment.arms[arm], environment.reward(step, arm))
        stopped = clock()
        online += stopped - started
        losses[step] = environment.regret(step, arm)
        if step % SCANS_EVERY == PERIOD // 2:
            for kind, scan in policy.scans(posterior).items():
                scan()  # not timed: whatever ran before has used the caches
                started = clock()
                scan()
                scans[kind] += (clock() - started) * SCANS_EVERY
        if step % PERIOD == 0:
            started = clock()
            policy.upkeep()
            upkeep += clock() - started
    regret = np.cumsum(losses)
    ends = np.linspace(0, environment.steps, CURVE + 1).astype(int)[1:] - 1
    curve = [round(float(value), 1) for value in regret[ends]]
    return Run(float(regret[-1]), preparing, online, upkeep, dict(scans), curve)
