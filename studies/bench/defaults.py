"""`shortlist bench defaults`: Thompson sampling without a setting, beside the best of a grid of settings.

Every world is drawn four times, arms and keys. Keys have a learner each and play in turns, a round of all
keys after the other. None knows the others, but for "ours" and "pooled".

Notation
    K, d, T     arms, their dimension, rounds of a key
    theta       taste of a key: normal, one tenth of its variance is common to all keys
    reward      x.theta and standard normal noise, unless a world says otherwise
    D           numbers that a learner estimates

Worlds
    gauss4, gauss16, gauss64    arms are N(0, I / d)
    gauss16 x 0.1, x 10         the same arms, all features multiplied
    lognormal                   d = 16, lengths are exp(0.7 N(0, 1))
    clicks                      d = 16, reward 1 with a probability of 0.01 on average; 100 decisions a round
    context                     d = 16, a context of 4 numbers, 8 directions interact with it: D = 48
    films, films again          users of MovieLens (--data), reward 1 for films that they liked; none twice,
                                or any

Worlds of many keys, which learn from one another by the learned prior, are those of ``many_keys``.

Columns: mean rewards (expected ones) of a decision, after so many ``rounds``
    random, popular     any arm; the arm of most success with others: x.(common taste), ratings of all other
                        users, or clicks in a log of 2 K random decisions
    ones                exploration 1, ridge 1
    best, exploration, ridge    the setting of the grid that earned most in these very rounds
    before              without a setting, each key for itself (``shortlist.linear.scales``)
    ours, ratio         without a setting: with an intercept, and where there are five keys or more with the
                        learned prior; ours / best, both played again with four other draws, which did not
                        choose the best
    pooled              before, with a pooled prior of strength 1
    ahead, best_ahead   from which round on ours, and the best, earns more than popular in every ten rounds

Columns of the worlds of many keys
    before, plain   each key for itself, without an intercept and with one
    global          one learner for all keys, with an intercept
    ours            with an intercept and the learned prior, as by default. gain: ours / before - 1, and
                    error: its standard error over draws
    simulated       the gain that was simulated when the prior was designed (``many_keys.SIMULATED``)
    best, best_way  of a grid over the strength of the prior and exploration, with and without the prior
    ratio           ours / best, both played again with other draws, which did not choose the best
    first5, from6   ours / popular in the first five rounds, and in those after
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any, Literal

import numpy as np
from threadpoolctl import threadpool_limits

from app.platform.command_line import table
from app.platform.errors import ShortlistError
from shortlist.linear import bilinear, learned_prior, linear_ts, ridge, ridge_sums, scales
from shortlist.linear.pooled_prior import with_pooled_prior
from shortlist.linear.ridge_sums import RidgeSums
from shortlist.linear.sum_algebra import minus, plus
from shortlist.types import Matrix, Vector
from shortlist_client.files.progress import progress
from studies.bench import many_keys
from studies.experiments import movielens
from studies.measurement import record

SEED = 2018
ARMS, KEYS, ROUNDS = 1_000, 5, 300
CLICK_KEYS, CLICK_ROUNDS, CLICK_BATCH = 2, 40, 100
USERS, FILM_ROUNDS = 25, 60
DRAWS, PEOPLE_DRAWS = 4, 3
EARLY, WINDOW = 60, 10
EXPLORATIONS, RIDGES = (0.03, 0.1, 0.2, 0.5, 1.0), (0.1, 0.3, 1.0, 3.0)
COMMON = 0.1
POOLED_STRENGTH = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Keys, arms and rewards.

    ``means``       of all arms, for a key in a decision: (key, decision) -> (K,)
    ``batch``       decisions of a round
    ``contexts``    of each key and decision, with the directions of the arms that interact with them
    Shapes: features (K, d), popularity (K,), contexts (L, decisions, m), directions (p, d).
    """

    name: str
    features: Matrix
    means: Callable[[int, int], Vector]
    popularity: Vector
    keys: int
    rounds: int
    rewards: Literal["normal", "click", "certain"] = "normal"
    repeats: bool = True
    batch: int = 1
    contexts: Matrix | None = None
    directions: Matrix | None = None

    @property
    def decisions(self) -> int:
        """Of a key."""
        return self.rounds * self.batch

    @property
    def dim(self) -> int:
        """D."""
        dim: int = self.features.shape[1]
        if self.contexts is None or self.directions is None:
            return dim
        numbers: int = self.contexts.shape[2]
        return dim + len(self.directions) * numbers


@dataclass(frozen=True, slots=True)
class Setting:
    """Numbers, or None: what follows from the sums. ``strength``: of a pooled prior. ``learned``: with an
    intercept, and the learned prior.
    """

    exploration: float | None = None
    ridge: float | None = None
    strength: float | None = None
    learned: bool = False


GRID = [Setting(exploration, strength) for exploration in EXPLORATIONS for strength in RIDGES]
QUICK_GRID = [Setting(exploration, strength) for exploration in (0.1, 0.5) for strength in (0.3, 3.0)]
ONES = Setting(1.0, 1.0)
BEFORE, POOLED, OURS = Setting(), Setting(strength=POOLED_STRENGTH), Setting(learned=True)


def run(quick: bool, data: Path | None = None) -> dict[str, Any]:
    """Play all worlds, those of films only with ``data``; print and return their rows.

    ``quick``: each once, and a grid of 2 by 2. Raises ShortlistError: no MovieLens data in ``data``.
    """
    makes: list[Callable[[int], World]] = [
        partial(gauss, "gauss4", 4),
        partial(gauss, "gauss16", 16),
        partial(gauss, "gauss16 x 0.1", 16, scale=0.1),
        partial(gauss, "gauss16 x 10", 16, scale=10.0),
        partial(gauss, "gauss64", 64),
        partial(gauss, "lognormal", 16, lognormal=0.7),
        clicks,
        context,
    ]
    crowds = many_keys.worlds()
    if data is None:
        print("films are left out: --data names no MovieLens directory")
    else:
        try:
            ratings = movielens.read(data)
            makes += [
                partial(films, "films", ratings, repeats=False),
                partial(films, "films again", ratings, repeats=True),
            ]
            crowds += many_keys.film_worlds(ratings, movielens.described(data, ratings))
            makes[-1](0)
        except (OSError, ValueError) as error:
            raise ShortlistError(f"--data: {error}") from None
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1):
        for make in progress(makes, "worlds"):
            rows += rows_of(make, 1 if quick else DRAWS, QUICK_GRID if quick else GRID)
        print(table(rows))
        shared = [
            many_keys.rows_of(
                make, 1 if quick else PEOPLE_DRAWS, many_keys.GRID[-1:] if quick else many_keys.GRID
            )
            for make in progress(crowds, "worlds of many keys")
        ]
    print(table(shared))
    return record("defaults", [*rows, *shared], seed=SEED)


def rows_of(make: Callable[[int], World], draws: int, grid: Sequence[Setting]) -> list[dict[str, Any]]:
    """Play all ways in all draws of a world; a row for the first rounds, and one for all if they are more."""
    worlds, fresh = [make(draw) for draw in range(draws)], [make(draws + draw) for draw in range(draws)]
    world = worlds[0]
    random = np.concatenate([ranked(draw, None) for draw in worlds])
    popular = np.concatenate([ranked(draw, draw.popularity) for draw in worlds])
    settings = dict.fromkeys([*grid, ONES, BEFORE, OURS, *([POOLED] if world.batch == 1 else [])])
    played = {
        setting: np.concatenate([play(draw, setting) for draw in worlds])
        for setting in progress(settings, f"settings in {world.name}", leave=False)
    }
    # The best of a grid is best by chance too: it is compared in draws that did not choose it.
    again: dict[Setting, Matrix] = {}
    rows = []
    for rounds in sorted({min(EARLY, world.rounds), world.rounds}):

        def earned(of: Matrix, rounds: int = rounds) -> float:
            return float(of[:, : rounds * world.batch].mean())

        best = max(grid, key=lambda setting: earned(played[setting]))
        for setting in {OURS, best} - again.keys():
            again[setting] = np.concatenate([play(draw, setting) for draw in fresh])
        rows.append(
            {
                "world": world.name,
                "D": world.dim,
                "keys": len(popular),
                "rounds": rounds,
                "random": earned(random),
                "popular": earned(popular),
                "ones": earned(played[ONES]),
                "best": earned(played[best]),
                "exploration": best.exploration,
                "ridge": best.ridge,
                "before": earned(played[BEFORE]),
                "ours": earned(played[OURS]),
                "ratio": earned(again[OURS]) / earned(again[best]),
                "pooled": earned(played[POOLED]) if POOLED in played else None,
                "ahead": ahead_from(world, played[OURS], popular),
                "best_ahead": ahead_from(world, played[best], popular),
            }
        )
    return rows


def ahead_from(world: World, rewards: Matrix, others: Matrix) -> int | None:
    """The first round such that every ten rounds from it on earn more; None: not even the last ten do."""
    more = (rewards - others).reshape(-1, world.rounds, world.batch).mean(axis=(0, 2))
    windows = np.convolve(more, np.ones(min(WINDOW, world.rounds)), "valid")
    behind = np.flatnonzero(windows <= 0.0)
    if not len(behind):
        return 1
    return None if behind[-1] == len(windows) - 1 else int(behind[-1]) + 2


def play(world: World, setting: Setting) -> Matrix:
    """The expected rewards of linear Thompson sampling. Shape: (keys, decisions)."""
    rng = np.random.default_rng((SEED, 1))
    features, constant = world.features, np.empty((1, 0))
    if setting.learned:
        constant = np.full((1, 1), np.sqrt((world.features**2).mean()))
        features = np.column_stack((features, np.repeat(constant, len(features), axis=0)))
    sums = [ridge_sums.empty(world.dim + constant.size) for _ in range(world.keys)]
    keys, firsts = np.arange(world.keys), np.ones(world.keys, dtype=np.bool_)
    excluded = np.zeros((world.keys, len(world.features)), dtype=np.bool_)
    expected, values = np.empty((world.keys, world.decisions)), np.empty(world.keys)
    taught = np.empty((world.keys, world.dim + constant.size))
    prior, fitted = None, 0
    for at in range(world.decisions):
        pooled = reduce(plus, sums) if setting.strength else None
        if setting.learned and at >= many_keys.GROWTH * fitted:
            prior, fitted = many_keys.fitted(sums), at
        for key, own in enumerate(sums):
            posterior, exploration = posterior_of(own, pooled, setting, world)
            if prior is not None:
                posterior = prior.posterior(own)
                exploration = (
                    learned_prior.exploration(own.dim, keys=prior.keys, variation=prior.variation)
                    if world.contexts is None
                    else scales.exploration(own.dim)
                )
            if world.contexts is not None:
                posterior = bilinear.given(posterior, world.directions, world.contexts[key, at])
            scores = features @ linear_ts.draw(posterior, exploration=exploration, rng=rng)
            scores[excluded[key]] = -np.inf
            arm = int(scores.argmax())
            excluded[key, arm] = not world.repeats
            expected[key, at] = mean = world.means(key, at)[arm]
            values[key] = _reward(world, mean, rng)
            chosen = world.features[[arm]]
            if world.contexts is not None:
                chosen = bilinear.phi(chosen, world.directions, world.contexts[key, at])
            taught[key] = np.concatenate((chosen, constant), axis=1)[0]
        sums = ridge_sums.add_each(sums, keys, taught, values, firsts)
    return expected


def posterior_of(
    own: RidgeSums, pooled: RidgeSums | None, setting: Setting, world: World
) -> tuple[ridge.Posterior, float]:
    """The posterior of a key, and what multiplies its draws."""
    sums = own
    if pooled is not None and setting.strength is not None:
        sums = with_pooled_prior(own, minus(pooled, own), strength=setting.strength)
    strength = scales.ridge(sums, otherwise=1.0) if setting.ridge is None else setting.ridge
    posterior = ridge.posterior(sums, ridge=strength)
    if setting.exploration is not None:
        return posterior, setting.exploration
    spread = 0.5 if world.rewards == "click" else None
    return posterior, scales.exploration(own.dim) * scales.noise(sums, posterior.theta, spread=spread)


def _reward(world: World, mean: float, rng: np.random.Generator) -> float:
    if world.rewards == "normal":
        return float(mean + rng.standard_normal())
    return float(rng.random() < mean) if world.rewards == "click" else float(mean)


def ranked(world: World, scores: Vector | None) -> Matrix:
    """The expected rewards of the arms of largest score, the largest first; None: of random scores."""
    rng = np.random.default_rng((SEED, 2))
    rewards = np.empty((world.keys, world.decisions))
    for key in range(world.keys):
        taken = np.zeros(len(world.features), dtype=bool)
        for at in range(world.decisions):
            found = rng.random(len(taken)) if scores is None else scores
            arm = np.where(taken, -np.inf, found).argmax()
            rewards[key, at] = world.means(key, at)[arm]
            taken[arm] = not world.repeats
    return rewards


def _tastes(rng: np.random.Generator, keys: int, dim: int) -> tuple[Vector, Matrix]:
    """What is common to all keys, and the taste of each."""
    common = rng.standard_normal(dim)
    return common, np.sqrt(COMMON) * common + np.sqrt(1 - COMMON) * rng.standard_normal((keys, dim))


def gauss(name: str, dim: int, draw: int, *, scale: float = 1.0, lognormal: float = 0.0) -> World:
    """Gaussian arms; with ``lognormal`` their directions, and lengths of their own."""
    rng = np.random.default_rng((SEED, dim, draw))
    features = rng.standard_normal((ARMS, dim)) / np.sqrt(dim)
    if lognormal:
        features /= np.linalg.norm(features, axis=1, keepdims=True)
        features *= np.exp(lognormal * rng.standard_normal((ARMS, 1)))
    common, tastes = _tastes(rng, KEYS, dim)
    means = tastes @ features.T
    return World(name, scale * features, lambda key, _at: means[key], features @ common, KEYS, ROUNDS)


def clicks(draw: int, dim: int = 16) -> World:
    """Clicks with probability 0.01 exp(x.theta - 1 / 2), at most one half."""
    rng = np.random.default_rng((SEED, 3, draw))
    features = rng.standard_normal((ARMS, dim)) / np.sqrt(dim)
    common, tastes = _tastes(rng, CLICK_KEYS, dim)

    def chances(taste: Matrix) -> Matrix:
        found: Matrix = np.minimum(0.01 * np.exp(taste @ features.T - 0.5), 0.5)
        return found

    others = chances(np.sqrt(COMMON) * common + np.sqrt(1 - COMMON) * rng.standard_normal((2 * ARMS, dim)))
    shown = np.tile(np.arange(ARMS), 2)  # each arm to two others
    clicked = rng.random(2 * ARMS) < others[np.arange(2 * ARMS), shown]
    popularity = np.bincount(shown, clicked, minlength=ARMS).astype(np.float64)
    means = chances(tastes)
    return World(
        "clicks",
        features,
        lambda key, _at: means[key],
        popularity,
        CLICK_KEYS,
        CLICK_ROUNDS,
        rewards="click",
        batch=CLICK_BATCH,
    )


def context(draw: int, dim: int = 16, m: int = 4, p: int = 8) -> World:
    """Rewards x.theta + (P x)^T W u; the context moves them as much as the taste does."""
    rng = np.random.default_rng((SEED, 4, draw))
    features = rng.standard_normal((ARMS, dim)) / np.sqrt(dim)
    directions = bilinear.directions(features.T @ features, p)
    common, tastes = _tastes(rng, KEYS, dim)
    weights = rng.standard_normal((KEYS, p, m)) * np.sqrt(dim / p)
    contexts = rng.standard_normal((KEYS, ROUNDS, m))
    contexts /= np.linalg.norm(contexts, axis=2, keepdims=True)

    def means(key: int, at: int) -> Vector:
        found: Vector = features @ (tastes[key] + directions.T @ (weights[key] @ contexts[key, at]))
        return found

    return World(
        "context", features, means, features @ common, KEYS, ROUNDS, contexts=contexts, directions=directions
    )


def films(name: str, ratings: movielens.Ratings, draw: int, *, repeats: bool) -> World:
    """Users who are held back; features and popularity are from the ratings of all others."""
    held, _, known = movielens.split(ratings, USERS, seed=draw)
    good = ratings.good
    liked = good[held].toarray()
    popularity = np.asarray(good[known].sum(axis=0), dtype=np.float64).ravel()
    return World(
        name,
        movielens.movie_features(good, known),
        lambda key, _at: liked[key],
        popularity,
        USERS,
        FILM_ROUNDS,
        rewards="certain",
        repeats=repeats,
    )
