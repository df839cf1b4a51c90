"""Worlds of few keys, played by linear Thompson sampling with and without settings.

Every world is drawn by a number, arms and keys. Keys have a learner each and play in turns, a round of all
keys after the other.

Notation
    K, d        arms, their dimension
    theta       taste of a key: normal, one tenth of its variance is common to all keys
    reward      x.theta and standard normal noise, unless a world says otherwise
    D           numbers that a learner estimates
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from shortlist.linear import bilinear, igw, linear_ts, ridge, ridge_sums, scales, softmax
from shortlist.linear.exploration import exploration_with_prior
from shortlist.linear.ridge_sums import RidgeSums
from shortlist.types import Matrix, Vector
from studies.bench import auto_rules, many_keys
from studies.experiments import movielens

SEED = 2018
CLICK_KEYS, CLICK_BATCH = 2, 100
COMMON = 0.1
ALPHA = 1.0  # of linucb
PolicyName = Literal["linear_ts", "linucb", "softmax", "igw"]
CANDIDATES = 30  # of igw: arms of highest estimate, and as many others


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """``users``: keys of the worlds of films."""

    arms: int = 1_000
    keys: int = 5
    rounds: int = 300
    click_rounds: int = 40
    users: int = 25
    film_rounds: int = 60


SIZES = Sizes()


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Keys, arms and rewards.

    ``means``       of all arms, for a key in a decision: (key, decision) -> (K,)
    ``batch``       decisions of a round
    ``contexts``    of each key and decision, with the directions of the arms that interact with them
    ``numbers``     of a decision that are not 0; None: all of D
    ``spread``      that learners are told: half of the largest reward less the least; None: nothing, or 1 / 2
                    of clicks
    ``silent``      so many decisions at first are told a reward of 0, whatever was chosen
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
    numbers: float | None = None
    spread: float | None = None
    silent: int = 0

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
    """Numbers, or None: what follows from the sums. ``learned``: the learned prior.
    ``policy``: with its temperature, gamma or alpha as without a setting.
    """

    exploration: float | None = None
    ridge: float | None = None
    intercept: bool = False
    learned: bool = False
    policy: PolicyName = "linear_ts"


def play(world: World, setting: Setting, *, seed: int = 0) -> Matrix:
    """The expected rewards of linear Thompson sampling. Shape: (keys, decisions)."""
    rng = np.random.default_rng((SEED, 1, seed))
    features, constant = world.features, np.empty((1, 0))
    if setting.intercept:
        constant = np.full((1, 1), np.sqrt((world.features**2).mean()))
        features = np.column_stack((features, np.repeat(constant, len(features), axis=0)))
    sums = [ridge_sums.empty(world.dim + constant.size) for _ in range(world.keys)]
    keys, firsts = np.arange(world.keys), np.ones(world.keys, dtype=np.bool_)
    excluded = np.zeros((world.keys, len(world.features)), dtype=np.bool_)
    expected, values = np.empty((world.keys, world.decisions)), np.empty(world.keys)
    taught = np.empty((world.keys, world.dim + constant.size))
    prior, fitted = None, 0
    mean_square = float((world.features**2).sum(axis=1).mean())  # once: it costs as much as a scan
    for at in range(world.decisions):
        if setting.learned and at >= many_keys.GROWTH * fitted:
            prior, fitted = many_keys.fitted(sums), at
        for key, own in enumerate(sums):
            if prior is None:
                posterior = posterior_of(own, setting, world, mean_square=mean_square)
            else:
                posterior = prior.posterior(own)
            ratio = posterior.ratio if prior is None and world.contexts is None else 0.0
            numbers = own.dim if world.numbers is None else world.numbers
            exploration = exploration_of(numbers, setting, ratio)
            if prior is not None and world.contexts is None:
                exploration = exploration_with_prior(exploration, keys=prior.keys, variation=prior.variation)
            if world.contexts is not None:
                posterior = bilinear.given(posterior, world.directions, world.contexts[key, at])
            left = None if world.repeats else ~excluded[key]
            arm = choose(posterior, features, setting.policy, exploration=exploration, rng=rng, left=left)
            excluded[key, arm] = not world.repeats
            expected[key, at] = mean = world.means(key, at)[arm]
            values[key] = _reward(world, mean, rng) if at >= world.silent else 0.0
            chosen = world.features[[arm]]
            if world.contexts is not None:
                chosen = bilinear.phi(chosen, world.directions, world.contexts[key, at])
            taught[key] = np.concatenate((chosen, constant), axis=1)[0]
        sums = ridge_sums.add_each(sums, keys, taught, values, firsts)
    return expected


def choose(
    posterior: ridge.Posterior,
    features: Matrix,
    policy: PolicyName,
    *,
    exploration: float,
    rng: np.random.Generator,
    left: NDArray[np.bool_] | None = None,
) -> int:
    """The row of an arm; ``left`` (K,): the arms that may be chosen; None: all. Cost: K D, linucb K D^2."""
    if policy == "linear_ts":
        scores = features @ linear_ts.draw(posterior, exploration=exploration, rng=rng)
    else:
        scores = features @ posterior.theta
    if policy == "linucb":
        scores += ALPHA * ridge.widths(posterior, features)
    if left is not None:
        scores[~left] = -np.inf
    if policy == "softmax":
        rows = np.flatnonzero(scores > -np.inf)
        share = scales.TEMPERATURE_BY_EVIDENCE if posterior.ratio else scales.TEMPERATURE
        temperature = share * posterior.unit
        return int(rows[softmax.choose(scores[rows], k=1, temperature=temperature, rng=rng).places[0]])
    if policy == "igw":  # its cover: any arms, where the service spreads them
        best = np.argpartition(-scores, CANDIDATES)[:CANDIDATES]
        others = rng.choice(len(scores), CANDIDATES, replace=False)
        rows = np.union1d(best, others[scores[others] > -np.inf])
        gamma = scales.GAMMA * len(rows) / posterior.unit
        return int(rows[igw.choose(scores[rows], k=1, gamma=gamma, rng=rng).places[0]])
    return int(scores.argmax())


def posterior_of(own: RidgeSums, setting: Setting, world: World, *, mean_square: float) -> ridge.Posterior:
    """The posterior of a key without the learned prior; ``mean_square``: of the lengths of all arms."""
    return auto_rules.posterior(
        own,
        ridge=setting.ridge,
        learns_noise=setting.exploration is None,
        spread=0.5 if world.rewards == "click" else world.spread,
        mean_square=mean_square,
        numbers=None if world.contexts is None else world.numbers or own.dim,
    )


def exploration_of(dim: float, setting: Setting, ratio: float) -> float:
    """What multiplies the draws of a key without the learned prior; ``ratio``: of its posterior."""
    if setting.exploration is not None:
        return setting.exploration
    return auto_rules.exploration(dim, ratio)


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


def gauss(
    name: str, dim: int, draw: int, *, scale: float = 1.0, lognormal: float = 0.0, sizes: Sizes = SIZES
) -> World:
    """Gaussian arms; with ``lognormal`` their directions, and lengths of their own."""
    rng = np.random.default_rng((SEED, dim, draw))
    features = rng.standard_normal((sizes.arms, dim)) / np.sqrt(dim)
    if lognormal:
        features /= np.linalg.norm(features, axis=1, keepdims=True)
        features *= np.exp(lognormal * rng.standard_normal((sizes.arms, 1)))
    common, tastes = _tastes(rng, sizes.keys, dim)
    means = tastes @ features.T
    popularity = features @ common
    return World(name, scale * features, lambda key, _at: means[key], popularity, sizes.keys, sizes.rounds)


def clicks(draw: int, dim: int = 16, sizes: Sizes = SIZES) -> World:
    """Clicks with probability 0.01 exp(x.theta - 1 / 2), at most one half."""
    rng, arms = np.random.default_rng((SEED, 3, draw)), sizes.arms
    features = rng.standard_normal((arms, dim)) / np.sqrt(dim)
    common, tastes = _tastes(rng, CLICK_KEYS, dim)

    def chances(taste: Matrix) -> Matrix:
        found: Matrix = np.minimum(0.01 * np.exp(taste @ features.T - 0.5), 0.5)
        return found

    others = chances(np.sqrt(COMMON) * common + np.sqrt(1 - COMMON) * rng.standard_normal((2 * arms, dim)))
    shown = np.tile(np.arange(arms), 2)  # each arm to two others
    clicked = rng.random(2 * arms) < others[np.arange(2 * arms), shown]
    popularity = np.bincount(shown, clicked, minlength=arms).astype(np.float64)
    means = chances(tastes)
    return World(
        "clicks",
        features,
        lambda key, _at: means[key],
        popularity,
        CLICK_KEYS,
        sizes.click_rounds,
        rewards="click",
        batch=CLICK_BATCH,
    )


def context(draw: int, dim: int = 16, m: int = 4, p: int = 8, sizes: Sizes = SIZES) -> World:
    """Rewards x.theta + (P x)^T W u; the context moves them as much as the taste does."""
    rng, keys, rounds = np.random.default_rng((SEED, 4, draw)), sizes.keys, sizes.rounds
    features = rng.standard_normal((sizes.arms, dim)) / np.sqrt(dim)
    directions = bilinear.directions(features.T @ features, p)
    common, tastes = _tastes(rng, keys, dim)
    weights = rng.standard_normal((keys, p, m)) * np.sqrt(dim / p)
    contexts = rng.standard_normal((keys, rounds, m))
    contexts /= np.linalg.norm(contexts, axis=2, keepdims=True)

    def means(key: int, at: int) -> Vector:
        found: Vector = features @ (tastes[key] + directions.T @ (weights[key] @ contexts[key, at]))
        return found

    return World(
        "context", features, means, features @ common, keys, rounds, contexts=contexts, directions=directions
    )


def films(name: str, ratings: movielens.Ratings, draw: int, *, repeats: bool, sizes: Sizes = SIZES) -> World:
    """Users who are held back; features and popularity are from the ratings of all others."""
    held, _, known = movielens.split(ratings, sizes.users, seed=draw)
    good = ratings.good
    liked = good[held].toarray()
    popularity = np.asarray(good[known].sum(axis=0), dtype=np.float64).ravel()
    return World(
        name,
        movielens.movie_features(good, known),
        lambda key, _at: liked[key],
        popularity,
        sizes.users,
        sizes.film_rounds,
        rewards="certain",
        repeats=repeats,
    )
