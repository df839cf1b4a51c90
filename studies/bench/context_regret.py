"""Regret with a context: a part of `shortlist bench context`.

Notation
    K, d, m, p  10,000 arms; their dimension, 16; numbers of a context, 4; directions that interact with it, 8
    x, u        features of an arm, standard normal; the context of a step, uniform on the unit sphere
    P           the first p principal directions of the arms (p, d)
    theta*, W*  the truth: standard normal (d,), normal of variance d / p (p, m). So the context matters as
                much as what all contexts share: P^T W* u is as long as theta*
    reward      x.theta* + (P x)^T W* u, and standard normal noise
    D           numbers that a learner with context estimates, d + p m = 48

Three ways to choose meet the same contexts and noise, from generators of the same seed:

    exact       contextual linear Thompson sampling as one would write it in numpy: phi of every arm
                explicitly, the product with a drawn parameter, its maximum. V^-1 is factored at every step
    sub_ts      one search of the graph over the plain arms, which is forced
    blind       sub_ts without the context

``regret_ratio`` is the regret of all seeds / that of ``exact``, ``least`` and ``most`` of one seed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.linalg import solve_triangular

from app.indexes.snapshot import Snapshot
from shortlist.linear import bilinear, ridge, ridge_sums, sub_ts
from shortlist.types import Matrix, Vector
from shortlist_client.progress import progress
from studies.bench.choose import index_of

SEED = 1_616
DIM, CONTEXT, INTERACTIONS = 16, 4, 8
EXPLORATION, RIDGE = 1.0, 1.0
_FIRST = np.array([True])


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """``steps``: of each of so many ``seeds``."""

    arms: int = 10_000
    steps: int = 3_000
    seeds: int = 10


WHOLE, QUICK = Sizes(), Sizes(seeds=2)


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Shapes: arms (K, d), directions (p, d), theta (d,), weights (p, m), contexts (T, m), noise (T,)."""

    arms: Matrix
    directions: Matrix
    theta: Vector
    weights: Matrix
    contexts: Matrix
    noise: Vector

    def means(self, context: Vector) -> Vector:
        """The mean reward of every arm. Shapes: (m,) -> (K,)."""
        return self.arms @ (self.theta + self.directions.T @ (self.weights @ context))


class Learner(Protocol):
    """One way to choose and to learn."""

    def choose(self, context: Vector, rng: np.random.Generator) -> int: ...

    def learn(self, arm: int, context: Vector, reward: float) -> None: ...


def rows(sizes: Sizes) -> list[dict[str, Any]]:
    """Play every way to choose on paired seeds; a row for each."""
    seeds = range(SEED, SEED + sizes.seeds)
    played = [of_seed(seed, sizes) for seed in progress(seeds, "seeds of contexts")]
    regrets = {name: np.array([each[name][0] for each in played]) for name in WAYS}
    return [
        {
            "part": "regret",
            "K": sizes.arms,
            "D": DIM + INTERACTIONS * CONTEXT,
            "steps": sizes.steps,
            "policy": name,
            "seeds": len(seeds),
            "regret_mean": float(regret.mean()),
            "regret_sd": float(regret.std(ddof=1)),
            "regret_ratio": float(regret.sum() / regrets["exact"].sum()),
            "least": float((regret / regrets["exact"]).min()),
            "most": float((regret / regrets["exact"]).max()),
            "us_per_step": float(np.mean([each[name][1] for each in played])),
        }
        for name, regret in regrets.items()
    ]


def of_seed(seed: int, sizes: Sizes) -> dict[str, tuple[float, float]]:
    """Regret and microseconds of a step, by the name of the way to choose."""
    world = make(seed, sizes)
    snapshot = index_of("hnsw", world.arms, seed).snapshot()
    return {name: play(world, way(world, snapshot), seed) for name, way in WAYS.items()}


def make(seed: int, sizes: Sizes) -> World:
    """Draw a world; all of it is drawn before the first step."""
    rng = np.random.default_rng(seed)
    arms = rng.standard_normal((sizes.arms, DIM))
    directions = bilinear.directions(arms.T @ arms, INTERACTIONS)
    theta = rng.standard_normal(DIM)
    weights = rng.standard_normal((INTERACTIONS, CONTEXT)) * np.sqrt(DIM / INTERACTIONS)
    contexts = rng.standard_normal((sizes.steps, CONTEXT))
    contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
    return World(arms, directions, theta, weights, contexts, rng.standard_normal(sizes.steps))


def play(world: World, learner: Learner, seed: int) -> tuple[float, float]:
    """Return the regret, and the microseconds of a step: draw, search, learn."""
    rng, regret, seconds = np.random.default_rng(seed), 0.0, 0.0
    for context, noise in zip(world.contexts, world.noise.tolist(), strict=True):
        means = world.means(context)
        started = time.perf_counter()
        arm = learner.choose(context, rng)
        learner.learn(arm, context, float(means[arm]) + noise)
        seconds += time.perf_counter() - started
        regret += float(means.max() - means[arm])
    return regret, seconds / len(world.noise) * 1e6


class Explicit:
    """Exact contextual Thompson sampling over explicit phi, in plain numpy. Not of this project's parts."""

    def __init__(self, world: World, _snapshot: Snapshot) -> None:
        self._arms = world.arms
        self._interacting = world.arms @ world.directions.T
        size = world.arms.shape[1] + self._interacting.shape[1] * world.contexts.shape[1]
        self._precision, self._moment = RIDGE * np.eye(size), np.zeros(size)

    def choose(self, context: Vector, rng: np.random.Generator) -> int:
        lower = np.linalg.cholesky(self._precision)
        estimate = np.linalg.solve(self._precision, self._moment)
        noise = solve_triangular(lower, rng.standard_normal(len(estimate)), lower=True, trans="T")
        return int((self._phi(slice(None), context) @ (estimate + EXPLORATION * noise)).argmax())

    def learn(self, arm: int, context: Vector, reward: float) -> None:
        (phi,) = self._phi(slice(arm, arm + 1), context)
        self._precision += np.outer(phi, phi)
        self._moment += reward * phi

    def _phi(self, arms: slice, context: Vector) -> Matrix:
        products = self._interacting[arms, :, None] * context
        return np.hstack((self._arms[arms], products.reshape(len(products), -1)))


class SubTs:
    """Thompson sampling by one search of the index, with the context."""

    def __init__(self, world: World, snapshot: Snapshot) -> None:
        self._world, self._snapshot = world, snapshot
        self._sums = ridge_sums.empty(world.arms.shape[1] + world.weights.size)

    def choose(self, context: Vector, rng: np.random.Generator) -> int:
        whole = ridge.posterior(self._sums, ridge=RIDGE)
        posterior = bilinear.given(whole, self._world.directions, context)
        return _found(self._snapshot, posterior, rng)

    def learn(self, arm: int, context: Vector, reward: float) -> None:
        phi = bilinear.phi(self._world.arms[arm : arm + 1], self._world.directions, context)
        self._sums = ridge_sums.add(self._sums, phi, np.array([reward]), _FIRST)


class Blind:
    """The same without the context."""

    def __init__(self, world: World, snapshot: Snapshot) -> None:
        self._arms, self._snapshot = world.arms, snapshot
        self._sums = ridge_sums.empty(world.arms.shape[1])

    def choose(self, _context: Vector, rng: np.random.Generator) -> int:
        return _found(self._snapshot, ridge.posterior(self._sums, ridge=RIDGE), rng)

    def learn(self, arm: int, _context: Vector, reward: float) -> None:
        self._sums = ridge_sums.add(self._sums, self._arms[arm : arm + 1], np.array([reward]), _FIRST)


def _found(snapshot: Snapshot, posterior: ridge.Posterior, rng: np.random.Generator) -> int:
    found = sub_ts.choose(posterior, snapshot, k=1, exploration=EXPLORATION, rng=rng)
    return int(found.rows[0])


WAYS: dict[str, Callable[[World, Snapshot], Learner]] = {"exact": Explicit, "sub_ts": SubTs, "blind": Blind}
