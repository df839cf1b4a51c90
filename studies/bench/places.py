"""`shortlist bench places`: what it is worth to learn which places of a list are looked at.

Every key has tastes of a common distribution, every arm an effect of its own, and the arm at place j is
looked at with probability p_j. Lists are drawn as by ``sub_ts``, with a prior of keys that is known and arm
effects that are fitted as the service fits them. Three kinds of knowledge of places play the same worlds.

Notation
    none, learned, right   places are taken for equal (w = 1); p and w are learned; p is known, w is learned
    share       of what can be had: what lists earn beyond lists at random, over what the best ones do
    error       the largest |p_j - truth| at the end
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from app.platform.command_line import table
from shortlist.linear import arm_effects, places
from shortlist.linear.arm_effects import NOTHING, EffectSums
from shortlist.linear.places import Examination, PlaceNumbers
from shortlist.types import Matrix, Rows, Vector
from shortlist_client.progress import progress
from studies.measurement import record

SEED = 104
LISTS, QUICK_LISTS, DRAWS, QUICK_DRAWS = 4_000, 600, 6, 1
FIT_EVERY = 20  # lists: the worker fits each second while rewards come
D = 8
EXPLORATION = 0.5  # as "auto" has it of learners that know something
STEEP = (1.0, 0.6, 0.4, 0.3, 0.2)
MODES = ("none", "learned", "right")


@dataclass(frozen=True, slots=True)
class Kind:
    """What worlds of a kind are like. ``base``: what an arm earns that is looked at; ``taste``, ``effect``:
    deviations of what a key thinks of it, and of its own effect. ``noise``: of rewards, None: clicks.
    ``once``: no key sees an arm twice.
    """

    name: str
    p: tuple[float, ...] = STEEP
    base: float = 0.3
    taste: float = 0.12
    effect: float = 0.12
    noise: float | None = None
    arms: int = 100
    keys: int = 100
    once: bool = False


KINDS = (
    Kind("steep"),
    Kind("steeper", p=(1.0, 0.4, 0.2, 0.1, 0.05)),
    Kind("strong effects", effect=0.2),
    Kind("Gaussian noise", noise=0.5),
    Kind("no effects", effect=0.0),
    Kind("mostly personal", taste=0.15, effect=0.03),
    Kind("few arms", arms=40),
    Kind("rare clicks", base=0.06, taste=0.02, effect=0.03),
    Kind("arms nearly alike", taste=0.06, effect=0.06),
    Kind("mild", p=(1.0, 0.9, 0.8, 0.75, 0.7)),
    Kind("none twice", once=True, arms=400),
    Kind("strong and none twice", effect=0.2, once=True, arms=400),
    Kind("40 keys", keys=40),
    Kind("flat places", p=(1.0, 1.0, 1.0, 1.0, 1.0)),
)


@dataclass(slots=True)
class Known:
    """What is known of keys, arms and places. ``seen``: what keys may not see again. Shapes:
    G (U, D + 1, D + 1), m (U, D + 1); arms (K,); seen (U, K)."""

    G: Matrix
    m: Matrix
    arms: EffectSums
    since: PlaceNumbers
    faded: PlaceNumbers
    examination: Examination
    effects: Vector
    deviations: Vector
    noise: float
    seen: NDArray[np.bool_]


class World(NamedTuple):
    """``worth``: what an arm earns of a key that looks at it. Shapes: features (K, D + 1), the last 1; worth
    (K, U); truth (k,)."""

    features: Matrix
    worth: Matrix
    truth: Vector


class Shown(NamedTuple):
    """A list: its arms, their features, and what is expected of these. Shapes: (k,), (k, D + 1), (k,)."""

    rows: Rows
    features: Matrix
    expected: Vector


def run(quick: bool) -> dict[str, Any]:
    """Measure all kinds of worlds; print and return their rows. ``quick``: one draw of each."""
    with threadpool_limits(1):
        found = rows(quick)
    print(table(found))
    return record("places", found, seed=SEED)


def rows(quick: bool) -> list[dict[str, Any]]:
    """Of each kind of worlds the shares, with what learning gains and its standard error."""
    draws, lists = (QUICK_DRAWS, QUICK_LISTS) if quick else (DRAWS, LISTS)
    return [row(kind, draws, lists) for kind in progress(list(KINDS), "worlds with places")]


def row(kind: Kind, draws: int = DRAWS, lists: int = LISTS) -> dict[str, Any]:
    """Worlds of a kind, each played with all three kinds of knowledge."""
    played = [[play(kind, mode, lists, draw) for mode in MODES] for draw in range(draws)]
    shares = np.array([[share for share, _ in modes] for modes in played])
    gains = shares[:, 1] - shares[:, 0]
    return {
        "world": kind.name,
        **dict(zip(MODES, shares.mean(axis=0).tolist(), strict=True)),
        "gain": float(gains.mean()),
        "se": float(gains.std(ddof=1) / np.sqrt(draws)) if draws > 1 else None,
        "error": max(error for _, error in (modes[1] for modes in played)),
    }


def play(kind: Kind, mode: str, lists: int, draw: int) -> tuple[float, float]:
    """The share that is had in a world, and the error of p."""
    rng = np.random.default_rng((SEED, draw))
    features, worth, truth = world_of(kind, rng)
    count = len(truth)
    variance = kind.base * (1.0 - kind.base) if kind.noise is None else kind.noise**2
    known = start(kind, truth if mode == "right" else np.ones(count), variance)
    had, best, at_random = 0.0, 0.0, 0.0
    for number in range(lists):
        key = int(rng.integers(kind.keys))
        shown = choose(known, features, key, count, rng)
        liked = worth[shown.rows, key]
        y = truth * liked + (kind.noise or 0.0) * rng.normal(size=count)
        if kind.noise is None:
            y = (rng.random(count) < truth * liked).astype(float)
        if kind.once:
            known.seen[key, shown.rows] = True
        learn(known, key, shown, y)
        had += float(truth @ liked)
        best += float(truth @ np.sort(worth[:, key])[::-1][:count])
        at_random += float(truth.sum() * worth[:, key].mean())
        if number % FIT_EVERY == FIT_EVERY - 1:
            fit(known, mode)
    return (had - at_random) / (best - at_random), float(np.abs(known.examination.p - truth).max())


def world_of(kind: Kind, rng: Generator) -> World:
    """A world of a kind."""
    features = np.column_stack((rng.normal(size=(kind.arms, D)), np.ones(kind.arms)))
    tastes = rng.normal(size=(kind.keys, D)) * kind.taste / np.sqrt(D)
    worth = kind.base + features[:, :D] @ tastes.T + kind.effect * rng.normal(size=(kind.arms, 1))
    return World(features, worth.clip(0.0, 1.0) if kind.noise is None else worth, np.array(kind.p))


def start(kind: Kind, p: Vector, variance: float) -> Known:
    """Keys that know what they have in common, as a learned prior has it after some thousand lists."""
    precision = np.append(np.full(D, variance * D / kind.taste**2), variance / 0.01)
    return Known(
        np.repeat(np.diag(precision)[None], kind.keys, axis=0),
        np.repeat((precision * np.append(np.zeros(D), kind.base))[None], kind.keys, axis=0),
        EffectSums(*np.zeros((4, kind.arms))),
        PlaceNumbers(*np.zeros((4, len(p)))),
        PlaceNumbers(*np.zeros((4, len(p)))),
        Examination(p, np.ones(len(p))),
        np.zeros(kind.arms),
        np.zeros(kind.arms),
        variance,
        np.zeros((kind.keys, kind.arms), dtype=np.bool_),
    )


def choose(known: Known, features: Matrix, key: int, count: int, rng: Generator) -> Shown:
    """A list by a draw."""
    covariance = np.linalg.inv(known.G[key])
    mean = covariance @ known.m[key]
    drawn = mean + EXPLORATION * np.sqrt(known.noise) * np.linalg.cholesky(covariance) @ rng.normal(
        size=D + 1
    )
    noise = EXPLORATION * known.deviations * rng.normal(size=len(features))
    scores = features @ drawn + known.effects + noise
    scores[known.seen[key]] = -np.inf
    shown = np.argpartition(-scores, count)[:count]
    shown = shown[np.argsort(-scores[shown])]
    return Shown(shown, features[shown], features[shown] @ mean)


def learn(known: Known, key: int, shown: Shown, y: Vector) -> None:
    """Add the rewards of a list to the sums of its key, its arms and its places."""
    (p, w), x, b = known.examination, shown.features, known.effects[shown.rows]
    known.G[key] += (w * p**2 * x.T) @ x
    known.m[key] += (w * p * (y - p * b)) @ x
    rho = w * p * (y - p * shown.expected)
    of_arms = (w * p**2, rho, rho**2, (w * p**2) ** 2)
    for sums, more in zip((known.arms.n, known.arms.R, known.arms.Q, known.arms.F), of_arms, strict=True):
        sums[shown.rows] += more
    worth = shown.expected + b
    of_places = (np.ones(len(y)), np.maximum(worth, 0.0), y, (y - p * worth) ** 2)
    known.since = PlaceNumbers(*(a + b for a, b in zip(known.since, of_places, strict=True)))


def fit(known: Known, mode: str) -> None:
    """Fit effects and places, as the worker does."""
    fitted = arm_effects.fit(known.arms)
    if fitted != NOTHING:
        known.effects, known.deviations = arm_effects.estimates(known.arms.n, known.arms.R, fitted)
    if mode == "none":
        return
    known.faded = places.faded(known.faded, known.since)
    known.since = PlaceNumbers(*np.zeros((4, len(known.since.n))))
    right = known.examination.p if mode == "right" else None
    found = places.fit(known.faded, right)
    known.examination = Examination(found.p if right is None else right, found.w)
