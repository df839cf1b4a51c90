"""The front between signals: a part of `shortlist bench signals`.

Notation
    J           signals, 2: r_1 and r_2, each from 0 to 1
    w           setting of the dial: the mix is w r_1 + (1 - w) r_2
    dial        one learner with signals. It gets decisions by all settings, one after the other
    own         a learner for each setting, that knows its mix alone and gets decisions of this setting alone
    r1, r2      mean of each signal of the arm of highest estimate, with all decisions: a point of the front
    value       w r1 + (1 - w) r2; best is what is known to be possible, random any arm
    needed      decisions after which the value of a setting stays within 10 % of the way from random to best
                (films: to what its own learner earns in the end, since nobody knows what is possible for a
                linear learner); of the dial those of all settings together. The median of the draws; None:
                most were not there in time
    all         the dial: decisions until all settings are there. own: those that its learners need together

Worlds
    known       K = 60 arms of dimension 5, rows of a Dirichlet distribution, so that x.theta_j is a
                probability; r_j is 1 with that probability. So the front is known
    films       users of MovieLens (--data) with a learner each: r_1 liked (4 or more stars), r_2 stars / 5; 0
                for films without a rating

Coverage: logs of random decisions of the known world are evaluated, by all settings in one pass. The policy
is softmax with a learner of before the log, so its true value is known. ``coverage`` is the share of its
intervals, which claim 95 %, that hold it, over all logs and settings; ``least`` of the setting with least.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from app.bandits.bandit import Bandit, bandit_of
from app.bandits.settings import BanditRecord, SignalRule
from app.bandits.versions import BanditVersion, version_to_bytes
from app.catalogues.catalogue import Catalogue
from app.decision_log.rows import LoggedArm, LoggedReward, Row
from app.indexes.live import IndexOptions, LiveIndex
from app.platform.errors import ShortlistError
from app.policies.registry import POLICIES
from app.records.records import CatalogueRecord
from shortlist.linear import ridge_sums, signals
from shortlist.linear.exploration import exploration_of_dimension
from shortlist.linear.linear_ts import draw
from shortlist.linear.ridge import Posterior
from shortlist.linear.ridge_sums import RidgeSums
from shortlist.linear.scales import Scales
from shortlist.linear.signals import Weighing
from shortlist.types import Matrix, Rows, Vector
from shortlist_client.progress import progress
from shortlist_evaluation.evaluated import ESTIMATOR_NAMES
from shortlist_evaluation.evaluator import Evaluator
from shortlist_evaluation.sources import HeldSource
from studies.experiments import movielens

SEED = 370
DIAL = (0.0, 0.25, 0.5, 0.75, 1.0)
ARMS, DIM, NOISE = 60, 5, 0.5
DECISIONS, DRAWS, QUICK_DRAWS = 6_000, 8, 2
USERS, QUICK_USERS, FILM_DECISIONS = 25, 4, 300
CHECK, FILM_CHECK = 25, 5  # decisions between two looks at what a learner would show
NEAR = 0.9
SCALES = Scales(None, learns_noise=True)
LOGS, QUICK_LOGS, LOG_ROWS, LEARNED = 200, 20, 1_000, 300
TEMPERATURE = 0.05
NAMES = ("r1", "r2")
UID = "0" * 16


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Arms and what they earn. Shapes: features (K, d), means (K, 2). ``reward``: (arm, rng) -> (2,)."""

    features: Matrix
    means: Matrix
    reward: Callable[[int, np.random.Generator], Vector]

    def value(self, setting: float, arms: Rows) -> Vector:
        """Of arms by a setting. Shape: as arms."""
        return self.means[arms] @ mix(setting)


def mix(setting: float) -> Vector:
    """The weights of a setting. Shape: (2,)."""
    return np.array([setting, 1.0 - setting])


def rows(quick: bool, data: Path | None) -> list[dict[str, Any]]:
    """The points of each front, and what data they need. Raises ShortlistError: no MovieLens in ``data``."""
    worlds = [known(draw) for draw in range(QUICK_DRAWS if quick else DRAWS)]
    found = front("known", worlds, DECISIONS, CHECK, goal_is_best=True)
    if data is None:
        print("films are left out: --data names no MovieLens directory")
        return found
    try:
        users = films(data, QUICK_USERS if quick else USERS)
    except (OSError, ValueError) as error:
        raise ShortlistError(f"--data: {error}") from None
    return found + front("films", users, FILM_DECISIONS, FILM_CHECK, goal_is_best=False)


def known(number: int) -> World:
    rng = np.random.default_rng((SEED, number))
    features = rng.dirichlet(np.full(DIM, 0.5), ARMS)
    means = features @ rng.uniform(0.0, 1.0, (DIM, 2))
    return World(features, means, lambda arm, rng: (rng.random(2) < means[arm]).astype(np.float64))


def films(folder: Path, users: int) -> list[World]:
    """A world for each user that is held back."""
    ratings = movielens.read(folder)
    held, _, others = movielens.split(ratings, users, seed=SEED)
    features = movielens.movie_features(ratings.good, others)
    result = []
    for user in held.tolist():
        own = ratings.users == user
        means = np.zeros((len(features), 2))
        stars = ratings.values[own]
        means[ratings.movies[own]] = np.column_stack([stars >= movielens.GOOD, stars / 5.0])
        result.append(World(features, means, partial(_certain, means)))
    return result


def _certain(means: Matrix, arm: int, _rng: np.random.Generator) -> Vector:
    reward: Vector = means[arm]
    return reward


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """A world, and the arms that the dial and own learners show by each setting, every ``check`` decisions.

    Shapes: dial, own (looks, settings).
    """

    world: World
    check: int
    dial: Rows
    own: Rows

    def values(self, which: str, setting: float, place: int) -> Vector:
        """Of one setting, which is at ``place``. Shape: (looks,)."""
        return self.world.value(setting, getattr(self, which)[:, place])


def front(
    name: str,
    worlds: Sequence[World],
    decisions: int,
    check: int,
    *,
    goal_is_best: bool,
    dial: Sequence[float] = DIAL,
) -> list[dict[str, Any]]:
    """A row of each setting."""
    draws = []
    for number, world in enumerate(progress(worlds, f"draws of {name}")):
        shown = learned(world, dial, decisions, check, number)
        own = [learned(world, (setting,), decisions, check, number) for setting in dial]
        draws.append(Draw(world, check, shown, np.hstack(own)))
    found = [
        _row(name, draws, setting, place, goal_is_best=goal_is_best) for place, setting in enumerate(dial)
    ]
    dials, owns = ([row[which] for row in found] for which in ("dial_needed", "own_needed"))
    dial_all = None if None in dials else max(dials)
    own_all = None if None in owns else sum(owns)
    return [{**row, "dial_all": dial_all, "own_all": own_all} for row in found]


def _row(
    name: str, draws: Sequence[Draw], setting: float, place: int, *, goal_is_best: bool
) -> dict[str, Any]:
    every = np.arange(len(draws[0].world.features))
    known = np.array([draw.world.value(setting, every) for draw in draws])
    best, random = known.max(axis=1), known.mean(axis=1)
    dial, own = (
        np.array([each.values(which, setting, place) for each in draws]) for which in ("dial", "own")
    )
    goals = random + NEAR * ((best if goal_is_best else own[:, -4:].mean(axis=1)) - random)
    points = {
        which: np.mean([each.world.means[getattr(each, which)[-1, place]] for each in draws], axis=0)
        for which in ("dial", "own")
    }
    check = draws[0].check
    return {
        "world": name, "w": setting, "random": float(random.mean()), "best": float(best.mean()),
        "dial_r1": float(points["dial"][0]), "dial_r2": float(points["dial"][1]),
        "own_r1": float(points["own"][0]), "own_r2": float(points["own"][1]),
        "dial": float(dial[:, -1].mean()), "own": float(own[:, -1].mean()),
        "dial_needed": middle([needed(*each, check) for each in zip(dial, goals.tolist(), strict=True)]),
        "own_needed": middle([needed(*each, check) for each in zip(own, goals.tolist(), strict=True)]),
    }  # fmt: skip


def needed(values: Vector, goal: float, check: int) -> float:
    """Decisions after which the values stay at the goal; infinite: more than there were."""
    below = np.flatnonzero(values < goal)
    if not len(below):
        return check
    return np.inf if below[-1] == len(values) - 1 else float(below[-1] + 2) * check


def middle(counts: Sequence[float]) -> float | None:
    """The median; None where it is infinite."""
    found = float(np.median(counts))
    return found if np.isfinite(found) else None


def learned(world: World, settings: Sequence[float], decisions: int, check: int, number: int) -> Rows:
    """The arms of highest estimate by each setting, every ``check`` decisions of Thompson sampling.

    Of one setting the learner knows the mix alone. Shape: -> (looks, settings).
    """
    rng = np.random.default_rng((SEED, number, len(settings)))
    dim, result = world.features.shape[1], np.empty((decisions // check, len(settings)), dtype=np.int64)
    sums = ridge_sums.empty(dim)
    for decision in range(decisions):
        setting = settings[decision % len(settings)]
        query = draw(posterior(sums, setting, settings), exploration=exploration_of_dimension(dim), rng=rng)
        arm = int(np.argmax(world.features @ query))
        reward = world.reward(arm, rng)
        value = reward[None, :] if len(settings) > 1 else reward @ mix(setting)[:, None]
        sums = ridge_sums.add(sums, world.features[[arm]], value, np.ones(1, dtype=np.bool_))
        if (decision + 1) % check == 0:
            thetas = [posterior(sums, each, settings).theta for each in settings]
            result[decision // check] = (world.features @ np.array(thetas).T).argmax(axis=0)
    return result


def posterior(sums: RidgeSums, setting: float, settings: Sequence[float]) -> Posterior:
    """What a learner thinks of a setting."""
    if len(settings) == 1:
        return SCALES.posterior(sums)
    weighing = Weighing(tuple(mix(setting).tolist()), (None, None), (None, None))
    return signals.weighed(sums.with_signals(2), SCALES, weighing)


def coverage(logs: int) -> list[dict[str, Any]]:
    """How often the intervals of an evaluation hold the truth; a row of each estimator."""
    held = np.array([_held(number) for number in progress(range(logs), "logs")])
    return [
        {
            "estimator": name, "logs": logs, "decisions": LOG_ROWS, "settings": len(DIAL),
            "coverage": float(held[:, :, place].mean()), "least": float(held[:, :, place].mean(axis=0).min()),
        }
        for place, name in enumerate(ESTIMATOR_NAMES)
    ]  # fmt: skip


def _held(number: int) -> Any:
    """Whether the intervals of one log hold the truth. Shape: (settings, estimators)."""
    world, rng = known(number), np.random.default_rng((SEED, number, 3))
    bandit = _bandit(world.features)
    weighed = [bandit.weighed(dict(zip(NAMES, mix(each).tolist(), strict=True))) for each in DIAL]
    before = rng.integers(ARMS, size=LEARNED)
    values = np.array([world.reward(arm, rng) for arm in before.tolist()])
    first = np.ones(LEARNED, dtype=np.bool_)
    sums = ridge_sums.of(world.features[before], values, first)

    async def known_before(_key: str | None, owner: Bandit) -> Posterior:
        return owner.posterior(sums)

    evaluator = Evaluator(bandit, HeldSource(), known_before, ESTIMATOR_NAMES, weighed=weighed)
    for page in _pages(world, rng):
        asyncio.run(evaluator.add(page))
    result = np.empty((len(DIAL), len(ESTIMATOR_NAMES)), dtype=np.bool_)
    for place, policy in enumerate(evaluator.policies):
        scores = world.features @ policy.bandit.posterior(sums).theta
        mass = np.exp((scores - scores.max()) / TEMPERATURE)
        truth = float(mass @ world.value(DIAL[place], np.arange(ARMS)) / mass.sum())
        for column, name in enumerate(ESTIMATOR_NAMES):
            low, high = policy.state.estimates(name).whole.interval or (-np.inf, np.inf)
            result[place, column] = low <= truth <= high
    return result


def _pages(world: World, rng: np.random.Generator) -> Iterator[Sequence[Row]]:
    """A log of uniform draws."""
    nothing = dict.fromkeys(NAMES, 1.0)
    for start in range(0, LOG_ROWS, 500):
        page = []
        for time in range(start, start + 500):
            arm = int(rng.integers(ARMS))
            came = zip(NAMES, world.reward(arm, rng).tolist(), strict=True)
            rewards = [LoggedReward(f"a{arm}", value, time, False, name) for name, value in came]
            shown = [LoggedArm(f"a{arm}", 1, 0.0, 1.0 / ARMS, False)]
            page.append(
                Row("", time, None, 1, 1, 1, "softmax", None, None, None, None, shown, rewards, nothing)
            )
        yield page


def _bandit(features: Matrix) -> Bandit:
    options = IndexOptions(kind="exact")
    index = LiveIndex(DIM, options)
    index.upsert([f"a{arm}" for arm in range(ARMS)], features, range(ARMS))
    rule = SignalRule(min=0.0, max=1.0)
    record = BanditRecord(
        catalogue="bench",
        policy="softmax",
        temperature=TEMPERATURE,
        signals=dict.fromkeys(NAMES, rule),
    )
    catalogue = Catalogue("bench", UID, CatalogueRecord(DIM, asdict(options)), index)
    return bandit_of("bench", version_to_bytes(UID, BanditVersion(record)), catalogue, POLICIES)
