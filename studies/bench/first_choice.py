"""Processor time of a choice by the rules of "auto": the first of a key after its reward, and the next.

python -m studies.bench.first_choice

A service over HTTP has 2,000 arms and two bandits that differ in ``auto`` alone. They are asked in turns; the
time is that of the whole process of the service, from before a request to after its answer, the middle of all
turns. Every reward was learned before.

Columns
    D               numbers that a learner estimates
    first, next     of ``auto`` 2 over ``auto`` 1
    first_us, before_us    the first choice, of ``auto`` 2 and 1
    posterior, posterior_us    in this process, of posterior and draw alone: the ratio, and the time of 2
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from threadpoolctl import threadpool_limits

from app.platform.command_line import table
from examples.service import temporary_service
from shortlist.linear import linear_ts, ridge_sums
from shortlist.types import Matrix
from shortlist_client import Client
from studies.bench import auto_rules

SEED = 7_206
ARMS, REWARDS, TURNS = 2_000, 40, 60
DIMS = (16, 32, 64, 128, 256)  # and an intercept
RULES: Sequence[Literal[1, 2]] = (1, 2)
NOISE = 0.1


def rows(dims: Sequence[int] = DIMS, turns: int = TURNS) -> list[dict[str, Any]]:
    found = []
    with temporary_service() as service, service.connect() as client:
        for dim in dims:
            features = np.random.default_rng((SEED, dim)).standard_normal((ARMS, dim)) / np.sqrt(dim)
            first, after = np.median(_over_http(client, service.pid, features, turns), axis=0)
            alone = np.median(_posteriors(features, turns), axis=0)
            found.append(
                {
                    "D": dim + 1,
                    "first": first[1] / first[0],
                    "next": after[1] / after[0],
                    "first_us": first[1] * 1e6,
                    "before_us": first[0] * 1e6,
                    "posterior": alone[1] / alone[0],
                    "posterior_us": alone[1] * 1e6,
                }
            )
    return found


def _over_http(client: Client, pid: int, features: Matrix, turns: int) -> Matrix:
    """Seconds of the service's processor. Shape: (turns, 2 of first and next, rules)."""
    dim = features.shape[1]
    rng = np.random.default_rng((SEED, 1, dim))
    theta = rng.standard_normal(dim)
    client.put_catalogue("arms", dim=dim, index={"kind": "exact"})
    client.upsert_arms("arms", features, ids=[str(arm) for arm in range(ARMS)])
    for rule in RULES:
        client.put_bandit(f"rule{rule}", catalogue="arms", policy="sub_ts", scope="global", auto=rule)
    found = np.empty((turns, 2, len(RULES)))
    for turn in range(-REWARDS, turns):
        for at, rule in enumerate(RULES):
            choose = partial(client.choose, f"rule{rule}")
            choice = choose()
            arm = choice.arms[0].id
            value = float(features[int(arm)] @ theta + NOISE * rng.standard_normal())
            client.reward(choice.decision, value, arm=arm, wait=True)
            if turn >= 0:
                found[turn, :, at] = _seconds(pid, choose), _seconds(pid, choose)
    for rule in RULES:
        client.delete_bandit(f"rule{rule}")
    client.delete_catalogue("arms")
    return found


def _posteriors(features: Matrix, turns: int) -> Matrix:
    """Seconds of posterior and draw, with the rewards of the middle turn. Shape: (turns, rules)."""
    rng, count = np.random.default_rng(SEED), REWARDS + turns // 2
    seen = np.column_stack((features[:count], np.ones(count)))
    rewards = seen @ rng.standard_normal(seen.shape[1]) + NOISE * rng.standard_normal(count)
    sums = ridge_sums.of(seen, rewards, np.ones(count, dtype=np.bool_))

    def choose(rule: int) -> None:
        posterior = auto_rules.posterior(sums, rule)
        exploration = auto_rules.exploration(sums.dim, rule, posterior.ratio)
        linear_ts.draw(posterior, exploration=exploration, rng=rng)

    return np.array([[_seconds(os.getpid(), partial(choose, rule)) for rule in RULES] for _ in range(turns)])


def _seconds(pid: int, work: Callable[[], object]) -> float:
    """Of the processor, of all threads of a process."""
    clock = (~pid << 3) | 2  # Linux: the clock of the processor time of another process
    started = time.clock_gettime(clock)
    work()
    return time.clock_gettime(clock) - started


if __name__ == "__main__":
    with threadpool_limits(1):
        print(table(rows()))
