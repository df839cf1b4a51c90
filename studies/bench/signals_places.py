"""What it is worth to know which places are looked at: a part of `shortlist bench signals`.

Notation
    P           examination of the places; the arm at place k is clicked with probability p_k x.theta
    K, d        arms, their dimension: rows of a Dirichlet distribution, so that x.theta is a probability
    regret      of all decisions together: what the best list earns in the mean, less what the list shown does
    with, without       Thompson sampling that regresses clicks on p_k x, and on x; on the same seeds
    ratio       with / without
    error       the largest |estimate / p_k - 1| after so many random lists
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from shortlist.evaluation import examination
from shortlist.linear import ridge_sums
from shortlist.linear.exploration import exploration_of_dimension
from shortlist.linear.linear_ts import draw
from shortlist.linear.scales import Scales
from shortlist.types import Matrix, Vector
from shortlist_client.progress import progress

SEED = 62
EXAMINATIONS = ((1.0, 0.62, 0.41), (1.0, 0.62, 0.41, 0.3, 0.2))
SHAPES = ((50, 5), (200, 8), (1_000, 16))  # K, d
DECISIONS, TOGETHER = 4_000, 10
RUNS, QUICK_RUNS = 10, 2
RANDOM_LISTS = 20_000


class World(NamedTuple):
    """Shapes: p (k,), features (K, d), means (K,), of clicks on an arm that is looked at."""

    p: Vector
    features: Matrix
    means: Vector


def rows(quick: bool) -> list[dict[str, Any]]:
    """Regrets with and without, and the error of the estimated examination."""
    runs = QUICK_RUNS if quick else RUNS
    cases = [(np.array(p), *shape) for p in EXAMINATIONS for shape in SHAPES]
    return [row(p, arms, dim, runs) for p, arms, dim in progress(cases, "worlds with places")]


def row(p: Vector, arms: int, dim: int, runs: int, *, decisions: int = DECISIONS) -> dict[str, Any]:
    """A world, drawn again in each run."""
    worlds = [world(p, arms, dim, run) for run in range(runs)]
    regrets = np.array(
        [
            [regret(made, known, decisions, run) for known in (p, np.ones(len(p)))]
            for run, made in enumerate(worlds)
        ]
    )
    knows, not_so = regrets.mean(axis=0).tolist()
    return {
        "places": len(p), "K": arms, "d": dim, "decisions": decisions,
        "with": knows, "without": not_so, "ratio": knows / not_so,
        "error": max(error(made, run) for run, made in enumerate(worlds)),
    }  # fmt: skip


def world(p: Vector, arms: int, dim: int, run: int) -> World:
    """Draw one."""
    rng = np.random.default_rng((SEED, run))
    features = rng.dirichlet(np.full(dim, 0.5), arms)
    return World(p, features, features @ rng.uniform(0.0, 0.6, dim))


def regret(world: World, known: Vector, decisions: int, run: int) -> float:
    """Of Thompson sampling that takes ``known`` for the examination. Shape: known (k,)."""
    rng, scales = np.random.default_rng((SEED, run, 1)), Scales(None, learns_noise=True)
    p, features, means = world
    count, dim = len(p), features.shape[1]
    sums, lost = ridge_sums.empty(dim), 0.0
    best = float(p @ np.sort(means)[::-1][:count])
    for _ in range(decisions // TOGETHER):
        posterior, seen, clicks = scales.posterior(sums), list[Matrix](), list[Vector]()
        for _ in range(TOGETHER):
            query = draw(posterior, exploration=exploration_of_dimension(dim), rng=rng)
            shown = np.argsort(-(features @ query))[:count]
            lost += best - float(p @ means[shown])
            seen.append(known[:, None] * features[shown])
            clicks.append((rng.random(count) < p * means[shown]).astype(np.float64))
        first = np.ones(TOGETHER * count, dtype=np.bool_)
        sums = ridge_sums.add(sums, np.concatenate(seen), np.concatenate(clicks), first)
    return lost


def error(world: World, run: int, *, lists: int = RANDOM_LISTS) -> float:
    """Of the examination that follows from clicks on random lists."""
    rng, p = np.random.default_rng((SEED, run, 2)), world.p
    shown = rng.integers(len(world.means), size=(lists, len(p)))
    clicks = (rng.random(shown.shape) < p * world.means[shown]).astype(np.float64)
    found = examination.estimates(examination.add(examination.start(), clicks))
    return max(
        abs((each.value or 0.0) / float(true) - 1.0) for each, true in zip(found, p.tolist(), strict=True)
    )
