"""`shortlist bench ages`: what it is worth to learn what the age of an arm adds, and to let arms fade.

Every key has tastes of a common distribution, and every arm an effect of its own, which may halve with its
age or wander with time. Lists are drawn as by ``sub_ts``, with a prior of keys that is known, and arm effects
and ages that are fitted as the service fits them. Several kinds of knowledge play the same worlds.

Notation
    none           effects are learned, and nothing of ages
    ages           what the age of an arm adds is learned, too
    arms fade      without ages, arms have a half-life: "half_life_s": {"arms": 32400}
    all fade       keys have it as well: "half_life_s": 32400
    share          of what can be had: what lists earn beyond lists at random, over what the best ones do
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from app.platform.command_line import table
from shortlist.linear import ages, arm_effects
from shortlist.linear.ages import BINS, AgeNumbers
from shortlist.linear.arm_effects import NOTHING, EffectSums
from shortlist.types import Matrix, Rows, Vector
from shortlist_client.progress import progress
from studies.measurement import record

SEED = 104
LISTS, QUICK_LISTS, DRAWS, QUICK_DRAWS = 6_000, 1_200, 6, 1
DAYS = 6.0
FIT_EVERY = 50  # lists
PLACES = 3
D, KEYS, ALIVE = 8, 100, 100
EXPLORATION = 0.5  # as "auto" has it of learners that know something
HOUR_MS = 3_600_000
HALF_LIFE_H = 9.0
BASE, TASTE = 0.15, 0.06


class Mode(NamedTuple):
    """What is learned. Half-lives in hours; None: nothing fades."""

    name: str
    ages: bool = False
    arms_h: float | None = None
    keys_h: float | None = None


MODES = (
    Mode("none"),
    Mode("ages", ages=True),
    Mode("arms fade", arms_h=HALF_LIFE_H),
    Mode("all fade", arms_h=HALF_LIFE_H, keys_h=HALF_LIFE_H),
)


@dataclass(frozen=True, slots=True)
class Kind:
    """What worlds of a kind are like. ``lives_h``: how long an arm lives, None: all are always there.
    ``effect``: the mean of effects, ``spread`` their deviation. ``halves_h``: by which age an effect has
    halved; ``kept``: its correlation with that of a day before. ``once``: no key sees an arm twice.
    """

    name: str
    lives_h: float | None = 48.0
    effect: float = 0.0
    spread: float = 0.1
    halves_h: float | None = None
    kept: float = 1.0
    once: bool = False


KINDS = (
    Kind("news", effect=0.25, halves_h=12.0, once=True),
    Kind("news, seen again", effect=0.25, halves_h=12.0),
    Kind("nothing ages", once=True),
    Kind("nothing ages, all at once", lives_h=None),
    Kind("effects move", lives_h=None, kept=0.25),
)


@dataclass(slots=True)
class World:
    """The arms of all time, and what they are worth. Shapes: features (K, D + 1), came_h, effects (K,)."""

    kind: Kind
    features: Matrix
    tastes: Matrix
    came_h: Vector
    effects: Vector
    rng: Generator
    now_h: float = 0.0

    @classmethod
    def draw(cls, kind: Kind, rng: Generator) -> World:
        lives = kind.lives_h
        # From one life before the start on: then as many are alive at any time.
        arms = ALIVE if lives is None else int(ALIVE * (24.0 * DAYS / lives + 1.0))
        came = np.zeros(arms) if lives is None else np.sort(rng.uniform(-lives, 24.0 * DAYS, arms))
        return cls(
            kind,
            np.column_stack((rng.normal(size=(arms, D)), np.ones(arms))),
            rng.normal(size=(KEYS, D)) * TASTE / np.sqrt(D),
            came,
            kind.effect + kind.spread * rng.normal(size=arms),
            rng,
        )

    def pass_time(self, hours: float) -> None:
        """Let effects wander, as far as they do."""
        self.now_h += hours
        if self.kind.kept < 1.0:
            kept = self.kind.kept ** (hours / 24.0)
            fresh = self.kind.spread * np.sqrt(1.0 - kept**2) * self.rng.normal(size=len(self.effects))
            self.effects = self.kind.effect + kept * (self.effects - self.kind.effect) + fresh

    def alive(self) -> NDArray[np.bool_]:
        lives = np.inf if self.kind.lives_h is None else self.kind.lives_h
        found: NDArray[np.bool_] = (self.came_h <= self.now_h) & (self.now_h < self.came_h + lives)
        return found

    def worth(self, key: int) -> Vector:
        """How likely a key clicks each arm. Shape: (K,)."""
        effects = self.effects
        if self.kind.halves_h is not None:
            effects = effects * np.exp2(-(self.now_h - self.came_h) / self.kind.halves_h)
        worth: Vector = (BASE + self.features[:, :D] @ self.tastes[key] + effects).clip(0.0, 1.0)
        return worth


@dataclass(slots=True)
class Known:
    """What is known of keys, arms and ages. ``at_h``: when the last fit was, ``decided_h``: the last decision
    of each key. ``n``, ``R``: of ages since a stretch ended.

    Shapes: G (U, D + 1, D + 1), m (U, D + 1); arms (K,); n, R, f (BINS,).
    """

    mode: Mode
    G: Matrix
    m: Matrix
    arms: EffectSums
    effects: Vector
    deviations: Vector
    variance: float
    decided_h: Vector
    at_h: float = 0.0
    of_ages: AgeNumbers = field(default_factory=ages.nothing)
    n: Vector = field(default_factory=lambda: np.zeros(BINS))
    R: Vector = field(default_factory=lambda: np.zeros(BINS))
    f: Vector = field(default_factory=lambda: np.zeros(BINS))

    def of_age(self, came_h: Vector) -> Vector:
        """What ages add, as of the last fit."""
        return self.f[bins_at(self.at_h, came_h)]


def bins_at(now_h: float, came_h: Vector) -> Rows:
    return ages.bins_of((HOUR_MS * (now_h - came_h)).astype(np.int64))


class Shown(NamedTuple):
    """A list: its arms, and what is expected of their features, (k,) both."""

    rows: Rows
    expected: Vector


def run(quick: bool) -> dict[str, Any]:
    """Measure all kinds of worlds; print and return their rows. ``quick``: one draw of each."""
    with threadpool_limits(1):
        found = rows(quick)
    print(table(found))
    return record("ages", found, seed=SEED)


def rows(quick: bool) -> list[dict[str, Any]]:
    """Of each kind of worlds the share without, and what the other kinds of knowledge make of it."""
    draws, lists = (QUICK_DRAWS, QUICK_LISTS) if quick else (DRAWS, LISTS)
    return [row(kind, draws, lists) for kind in progress(list(KINDS), "worlds with ages")]


def row(kind: Kind, draws: int = DRAWS, lists: int = LISTS) -> dict[str, Any]:
    """Worlds of a kind, each played with all kinds of knowledge: the share without, ratios to it, and the
    standard error of that of ages.
    """
    shares = np.array([[play(kind, mode, lists, draw) for mode in MODES] for draw in range(draws)])
    ratios = shares / shares[:, :1]
    return {
        "world": kind.name,
        "none": float(shares[:, 0].mean()),
        **{mode.name: float(own) for mode, own in zip(MODES[1:], ratios[:, 1:].mean(axis=0), strict=True)},
        "se": float(ratios[:, 1].std(ddof=1) / np.sqrt(draws)) if draws > 1 else None,
    }


def play(kind: Kind, mode: Mode, lists: int, draw: int) -> float:
    """The share that is had in a world."""
    rng, world = np.random.default_rng((SEED, draw)), World.draw(kind, np.random.default_rng((draw, SEED)))
    known = start(mode, len(world.features))
    seen = np.zeros((KEYS, len(world.features)), dtype=np.bool_)
    had, best, at_random, step_h = 0.0, 0.0, 0.0, 24.0 * DAYS / lists
    for number in range(lists):
        key = int(rng.integers(KEYS))
        eligible = np.flatnonzero(world.alive() & ~seen[key])
        if len(eligible) < PLACES:  # it has seen them all
            world.pass_time(step_h)
            continue
        shown = choose(known, world, key, eligible, rng)
        liked = world.worth(key)
        if kind.once:
            seen[key, shown.rows] = True
        learn(known, world, key, shown, (rng.random(PLACES) < liked[shown.rows]).astype(float))
        had += float(liked[shown.rows].sum())
        best += float(np.sort(liked[eligible])[-PLACES:].sum())
        at_random += float(PLACES * liked[eligible].mean())
        if number % FIT_EVERY == FIT_EVERY - 1:
            fit(known, world.now_h)
        world.pass_time(step_h)
    return (had - at_random) / (best - at_random)


def start(mode: Mode, arms: int) -> Known:
    """Keys that know what they have in common, as a learned prior has it after some thousand lists."""
    variance = BASE * (1.0 - BASE)
    return Known(
        mode,
        np.zeros((KEYS, D + 1, D + 1)),
        np.zeros((KEYS, D + 1)),
        EffectSums(*np.zeros((4, arms))),
        np.zeros(arms),
        np.zeros(arms),
        variance,
        np.zeros(KEYS),
    )


def choose(known: Known, world: World, key: int, eligible: Rows, rng: Generator) -> Shown:
    """A list by a draw."""
    precision = np.append(np.full(D, known.variance * D / TASTE**2), known.variance / 0.01)
    covariance = np.linalg.inv(np.diag(precision) + known.G[key])
    mean = covariance @ (precision * np.append(np.zeros(D), BASE) + known.m[key])
    root = np.linalg.cholesky(covariance)
    drawn = mean + EXPLORATION * np.sqrt(known.variance) * root @ rng.normal(size=D + 1)
    x = world.features[eligible]
    noise = EXPLORATION * known.deviations[eligible] * rng.normal(size=len(eligible))
    scores = x @ drawn + known.effects[eligible] + known.of_age(world.came_h[eligible]) + noise
    first = np.argsort(-scores)[:PLACES]
    return Shown(eligible[first], x[first] @ mean)


def learn(known: Known, world: World, key: int, shown: Shown, y: Vector) -> None:
    """Add the rewards of a list to the sums of its key, its arms and their ages."""
    x, b, f = world.features[shown.rows], known.effects[shown.rows], known.of_age(world.came_h[shown.rows])
    if known.mode.keys_h is not None:
        kept = 0.5 ** ((world.now_h - known.decided_h[key]) / known.mode.keys_h)
        known.G[key] *= kept
        known.m[key] *= kept
        known.decided_h[key] = world.now_h
    known.G[key] += x.T @ x
    known.m[key] += (y - b - f) @ x
    rho, ones = y - shown.expected - f, np.ones(len(y))
    for sums, more in zip(_numbers(known.arms), (ones, rho, rho**2, ones), strict=True):
        sums[shown.rows] += more
    if known.mode.ages:
        at = bins_at(world.now_h, world.came_h[shown.rows])
        np.add.at(known.n, at, 1.0)
        np.add.at(known.R, at, y - shown.expected - b)


def fit(known: Known, now_h: float) -> None:
    """Fit effects and ages, as the worker does."""
    if known.mode.arms_h is not None:
        kept = 0.5 ** ((now_h - known.at_h) / known.mode.arms_h)
        for sums, power in zip(_numbers(known.arms), (1, 1, 2, 2), strict=True):
            np.multiply(sums, kept**power, out=sums)
    known.at_h = now_h
    fitted = arm_effects.fit(known.arms, discounted=known.mode.arms_h is not None)
    if fitted != NOTHING:
        known.effects, known.deviations = arm_effects.estimates(known.arms.n, known.arms.R, fitted)
    if known.n.sum() >= ages.STRETCH:
        known.of_ages = ages.added(known.of_ages, known.n, known.R)
        known.n, known.R = np.zeros((2, BINS))
        known.f = ages.fit(known.of_ages, known.variance)[0]


def _numbers(sums: EffectSums) -> tuple[Vector, Vector, Vector, Vector]:
    return sums.n, sums.R, sums.Q, sums.F
