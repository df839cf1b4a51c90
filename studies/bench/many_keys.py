"""Worlds of many keys, played by linear Thompson sampling with and without a prior that is learned from them.

Keys play in turns, a round of all keys after the other; the rewards of a turn come at its end. The prior is
fitted as the service does it: after a turn, once there are a tenth as many rewards more.

Notation
    K, d        arms, their dimension; learners have d + 1 numbers with an intercept
    U           keys
    mu, Sigma   the tastes of keys are N(mu, Sigma), unless a world says otherwise
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, Literal

import numpy as np

from shortlist.linear import learned_prior, linear_ts, ridge_sums
from shortlist.linear.discounted_sums import plus, scaled
from shortlist.linear.exploration import exploration_with_prior
from shortlist.linear.learned_prior import LearnedPrior
from shortlist.linear.ridge import Posterior
from shortlist.linear.ridge_sums import RidgeSums
from shortlist.types import Matrix, Rows, Vector
from shortlist_client.progress import progress
from studies.bench import auto_rules
from studies.experiments import movielens

SEED = 2026
GROWTH = 1.1
ARMS = 1_000
GENRE_USERS, CLICK_USERS = 60, 144
STRENGTHS = (0.25, 1.0, 4.0)
EXPLORATIONS = (0.3, 0.6, 1.0)
ALONE = ((0.1, 0.3), (0.1, 3.0), (0.5, 0.3), (0.5, 3.0))  # exploration, ridge
FEW_ROUNDS = 5
COMPANY = 20.0  # times as large rewards as those of people
VARIED = 3  # directions in which keys differ, where they are few
HALF = 0.5**0.5  # of a variance of 1 keys share half

# What the prior gained over each key for itself, without an intercept, as simulated when it was designed:
# with five other draws of each world, MovieLens with other users.
SIMULATED = {
    "genres": 0.381,
    "drawn clicks": 0.179,
    "drawn clicks, none twice": 0.199,
    "drawn clicks, 125 rounds": 0.103,
    "drawn clicks, none twice, 125 rounds": 0.145,
    "people16": 0.271,
    "people16, 200 rounds": 0.052,
    "people64": 0.311,
    "people16, noise 5": 1.22,
    "three kinds": 0.303,
    "nothing shared": 0.038,
    "nothing shared, 200 rounds": -0.008,
    "nothing shared, one by one": -0.020,
    "four directions of 32": 0.040,
    "four directions of 32, 200 rounds": 0.021,
    "drift": 0.210,
    "rare clicks": 0.035,
}


@dataclass(frozen=True, slots=True, eq=False)
class People:
    """Keys, arms and rewards.

    ``means``       of all arms for all keys, in a round: (U, K); of ``certain`` rewards what they are
    ``popularity``  what a list of most popular arms is ordered by, (K,)
    ``shown``       arms of a round of a key
    ``arrival``     the round in which each key comes (U,)
    ``stay``        rounds that each key plays; None: until the end
    ``history``     features and rewards of keys who played before
    ``sizes``       by which all rewards of each key are multiplied (U,); ``means`` are as without
    ``discount``    by which the rewards of a round before are weighed
    """

    name: str
    features: Matrix
    means: Callable[[int], Matrix]
    popularity: Vector
    keys: int
    rounds: int
    rewards: Literal["normal", "click", "certain"] = "normal"
    noise: float = 1.0
    spread: float | None = None
    shown: int = 1
    repeats: bool = True
    arrival: Rows | None = None
    stay: int | None = None
    discount: float = 1.0
    history: Sequence[tuple[Matrix, Vector]] = field(default=())
    sizes: Vector | None = None

    def is_there(self, key: int, at: int) -> bool:
        """Whether a key plays in a round."""
        came = 0 if self.arrival is None else int(self.arrival[key])
        return came <= at and (self.stay is None or at < came + self.stay)


@dataclass(frozen=True, slots=True)
class Way:
    """How keys learn. ``learned``: with a prior; ``strength`` multiplies its precision.
    ``together``: one learner for all keys. Else each for itself.

    None: what the service does without a setting. ``times`` multiplies what it then
    explores.
    """

    learned: bool = True
    intercept: bool = True
    exploration: float | None = None
    ridge: float | None = None
    strength: float = 1.0
    together: bool = False
    times: float = 1.0

    def __str__(self) -> str:
        e = "auto" if self.exploration is None else self.exploration
        if self.learned:
            return f"prior x {self.strength:g}, {e}"
        return f"alone, ridge {'auto' if self.ridge is None else self.ridge}, {e}"


OURS, PLAIN, GLOBAL = Way(), Way(learned=False), Way(learned=False, together=True)
GRID = [
    *(Way(exploration=e, strength=s) for e in EXPLORATIONS for s in STRENGTHS),
    *(Way(learned=False, exploration=e, ridge=r) for e, r in ALONE),
]


def play(world: People, way: Way, *, seed: int = 0) -> Matrix:
    """Mean rewards of what each key is shown in each round, NaN while it is away. Shape: (U, rounds)."""
    rng = np.random.default_rng((SEED, seed))
    features, past = _seen(world, way)
    sums = [ridge_sums.empty(features.shape[1]) for _ in range(world.keys)]
    before = [_sums_of(x, r) for x, r in past]
    excluded = np.zeros((world.keys, len(features)), dtype=np.bool_)
    expected = np.full((world.keys, world.rounds), np.nan)
    prior = fitted(before) if way.learned else None
    had = known = sum(each.observations for each in before)
    everyone = reduce(plus, before, ridge_sums.empty(features.shape[1]))
    for at in range(world.rounds):
        means = world.means(at)
        for key in range(world.keys):
            if not world.is_there(key, at):
                continue
            own = everyone if way.together else sums[key]
            found, exploration = _posterior(own, prior, way, world)
            scores = features @ linear_ts.draw(found, exploration=exploration, rng=rng)
            scores[excluded[key]] = -np.inf
            arms = _best(scores, world.shown)
            excluded[key, arms] = not world.repeats
            expected[key, at] = means[key, arms].mean()
            rewards = _rewards(world, means[key, arms], rng)
            if world.sizes is not None:
                rewards = rewards * world.sizes[key]
            first = np.ones(len(arms), dtype=np.bool_)
            sums[key] = ridge_sums.add(scaled(sums[key], world.discount), features[arms], rewards, first)
            if way.together:
                everyone = ridge_sums.add(everyone, features[arms], rewards, first)
            had += world.shown
            if way.learned and had >= GROWTH * known:
                prior, known = fitted([*before, *sums]), had
    return expected


def popular(world: People) -> Matrix:
    """Mean rewards of the arms of most popularity. Shape: (U, rounds)."""
    ranked = np.argsort(-world.popularity, kind="stable")
    expected = np.full((world.keys, world.rounds), np.nan)
    for at in range(world.rounds):
        means = world.means(at)
        for key in range(world.keys):
            played = at - (0 if world.arrival is None else int(world.arrival[key]))
            start = 0 if world.repeats else played * world.shown
            if world.is_there(key, at):
                expected[key, at] = means[key, ranked[start : start + world.shown]].mean()
    return expected


def _seen(world: People, way: Way) -> tuple[Matrix, Sequence[tuple[Matrix, Vector]]]:
    """Features of arms and of past decisions as learners see them: with a constant, or not."""
    if not way.intercept:
        return world.features, world.history
    constant = float(np.sqrt((world.features**2).mean()))

    def with_constant(features: Matrix) -> Matrix:
        return np.column_stack((features, np.full(len(features), constant)))

    return with_constant(world.features), [(with_constant(x), r) for x, r in world.history]


def _posterior(
    own: RidgeSums, prior: LearnedPrior | None, way: Way, world: People
) -> tuple[Posterior, float]:
    """The posterior of a key, and what multiplies its draws."""
    if prior is not None:
        if way.strength != 1.0:
            precision = way.strength * prior.precision
            prior = LearnedPrior.of(
                prior.mean,
                precision,
                prior.residuals,
                keys=prior.keys,
                observations=0.0,
                variation=prior.variation,
                sizes=prior.sizes,
            )
        alone = auto_rules.exploration(own.dim)
        ours = exploration_with_prior(alone, keys=prior.keys, variation=prior.variation)
        return prior.posterior(own), ours * way.times if way.exploration is None else way.exploration
    found = auto_rules.posterior(
        own,
        ridge=way.ridge,
        learns_noise=way.exploration is None or way.learned,
        spread=world.spread,
        mean_square=float((world.features**2).sum(axis=1).mean()),
    )
    if way.exploration is not None and not way.learned:
        return found, way.exploration
    return found, way.times * auto_rules.exploration(own.dim, found.ratio)


def fitted(sums: Sequence[RidgeSums]) -> LearnedPrior | None:
    """The prior that keys with these sums imply; None of too few."""
    known = [each for each in sums if each.weight]
    if not known:
        return None
    return learned_prior.fit(
        np.array([each.gram for each in known]),
        np.array([each.moments for each in known]),
        np.array([each.products for each in known]),
        np.array([each.weight for each in known]),
        own_units=True,
    )


def _sums_of(features: Matrix, rewards: Vector) -> RidgeSums:
    return ridge_sums.of(features, rewards, np.ones(len(rewards), dtype=np.bool_))


def _best(scores: Vector, count: int) -> np.ndarray:
    found = np.argpartition(-scores, count - 1)[:count]
    ranked: np.ndarray = found[np.argsort(-scores[found], kind="stable")]
    return ranked


def _rewards(world: People, means: Vector, rng: np.random.Generator) -> Vector:
    if world.rewards == "normal":
        return means + world.noise * rng.standard_normal(len(means))
    if world.rewards == "click":
        return (rng.random(len(means)) < means).astype(np.float64)
    return means


def rows_of(make: Callable[[int], People], draws: int, grid: Sequence[Way]) -> dict[str, Any]:
    """Play all ways in all draws of a world: a row, of mean rewards of what is shown."""
    played: dict[Way, list[Matrix]] = {way: [] for way in dict.fromkeys((PLAIN, GLOBAL, OURS, *grid))}
    ranked: list[Matrix] = []
    for draw in range(draws):
        world = make(draw)
        ranked.append(popular(world))
        for way in progress(played, f"settings in {world.name}, draw {draw}", leave=False):
            played[way].append(play(world, way, seed=draw))
    earned = {way: _mean(each) for way, each in played.items()}
    best = max(grid, key=lambda way: earned[way])
    # The best of a grid is best by chance too: it is compared in draws that did not choose it.
    fresh = [make(draws + draw) for draw in range(draws)]
    again = {
        way: [play(each, way, seed=draws + draw) for draw, each in enumerate(fresh)] for way in (OURS, best)
    }
    ours, plain = earned[OURS], earned[PLAIN]
    simulated = SIMULATED.get(world.name)
    gains = [_mean([a]) / _mean([b]) - 1.0 for a, b in zip(played[OURS], played[PLAIN], strict=True)]
    error = float(np.std(gains, ddof=1) / np.sqrt(draws)) if draws > 1 else None
    return {
        "world": world.name,
        "D": world.features.shape[1] + 1,
        "keys": world.keys,
        "rounds": world.rounds,
        "popular": _mean(ranked),
        "plain": plain,
        "global": earned[GLOBAL],
        "ours": ours,
        "gain": ours / plain - 1.0,
        "error": error,
        "simulated": simulated,
        "best": earned[best],
        "best_way": str(best),
        "ratio": _mean(again[OURS]) / _mean(again[best]),
        "first5": _mean(played[OURS], stop=FEW_ROUNDS) / _mean(ranked, stop=FEW_ROUNDS),
        "from6": _mean(played[OURS], FEW_ROUNDS) / _mean(ranked, FEW_ROUNDS),
    }


def _mean(of: Sequence[Matrix], start: int = 0, stop: int | None = None) -> float:
    """Over keys and rounds from ``start`` to before ``stop``, and draws."""
    return float(np.mean([np.nanmean(each[:, start:stop]) for each in of]))


def gauss(
    name: str,
    draw: int,
    *,
    dim: int = 16,
    keys: int = 60,
    rounds: int = 50,
    noise: float = 1.0,
    kind: Literal["correlated", "clusters", "few directions", "nothing shared"] = "correlated",
    arrival: int = 0,
    stay: int | None = None,
    drift: int = 0,
    discount: float = 1.0,
    first_size: float = 1.0,
) -> People:
    """Arms are N(0, I / d). Tastes have mean N(0, I / 2) and a covariance of trace d / 2 with a spectrum like
    1 / i, or of 3 directions alone; or are one of three, with a little of their own; or share nothing. So
    means of arms vary as much as noise of 1.

    ``arrival``: a key comes every so many rounds, for ``stay``. ``drift``: tastes are drawn again every so
    many rounds. ``first_size``: by which all rewards of the first key are multiplied.
    """
    rng = np.random.default_rng((SEED, dim, keys, draw))
    features = rng.standard_normal((ARMS, dim)) / np.sqrt(dim)
    common, clusters = rng.standard_normal(dim) * HALF, 1.5 * HALF * rng.standard_normal((3, dim))
    turned = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    spectrum = 1.0 / np.arange(1, dim + 1)
    if kind == "few directions":
        spectrum[VARIED:] = 0.0
    root = turned * np.sqrt(spectrum * dim / spectrum.sum()) * HALF

    def tastes() -> Matrix:
        own = rng.standard_normal((keys, dim))
        if kind == "clusters":
            found: Matrix = clusters[rng.integers(3, size=keys)] + 0.3 * HALF * own
            return found
        return own if kind == "nothing shared" else common + own @ root.T

    drawn = [tastes() @ features.T for _ in range(-(-rounds // drift) if drift else 1)]
    return People(
        name,
        features,
        lambda at: drawn[at // drift if drift else 0],
        drawn[0].mean(axis=0),
        keys,
        rounds,
        noise=noise,
        arrival=np.arange(keys) * arrival if arrival else None,
        stay=stay,
        discount=discount,
        sizes=np.where(np.arange(keys), 1.0, first_size) if first_size != 1.0 else None,
    )


def few_directions(name: str, draw: int, *, dim: int = 32, effective: int = 4, rounds: int = 50) -> People:
    """Features vary in few directions; each key has a constant of its own."""
    rng = np.random.default_rng((SEED, dim, effective, draw))
    features = rng.standard_normal((ARMS, effective)) @ rng.standard_normal((effective, dim))
    features /= np.sqrt((features**2).sum(axis=1).mean())
    keys = 60
    common = rng.standard_normal(dim)
    tastes = (common + rng.standard_normal((keys, dim))) * HALF
    means = tastes @ features.T + 0.5 + 0.5 * rng.standard_normal((keys, 1))
    return People(name, features, lambda _: means, means.mean(axis=0), keys, rounds)


def worlds() -> list[Callable[[int], People]]:
    """Those that need no data."""
    share_nothing = partial(gauss, kind="nothing shared")
    return [
        partial(gauss, "people16"),
        partial(gauss, "people16, 200 rounds", rounds=200),
        partial(gauss, "people64", dim=64, rounds=100),
        partial(gauss, "people16, noise 5", noise=5.0, rounds=100),
        partial(gauss, "three kinds", kind="clusters"),
        partial(gauss, "three directions of 16", keys=20, rounds=25, kind="few directions"),
        partial(gauss, "four keys", keys=4),
        partial(share_nothing, "nothing shared"),
        partial(share_nothing, "nothing shared, 200 rounds", rounds=200),
        partial(share_nothing, "nothing shared, one by one", rounds=495, arrival=5, stay=200),
        partial(few_directions, "four directions of 32"),
        partial(few_directions, "four directions of 32, 200 rounds", rounds=200),
        partial(gauss, "drift", keys=30, rounds=200, drift=50, discount=0.97),
        partial(rare_clicks, "rare clicks"),
        partial(gauss, "a company and 5 people", keys=6, rounds=100, first_size=COMPANY),
        partial(gauss, "a company and 39 people", keys=40, first_size=COMPANY),
    ]


def film_worlds(
    ratings: movielens.Ratings,
    described: Matrix,
    genre_users: int = GENRE_USERS,
    click_users: int = CLICK_USERS,
) -> list[Callable[[int], People]]:
    """Users of MovieLens."""
    by_genre = partial(genres, ratings=ratings, described=described, users=genre_users)
    by_clicks = partial(rated_clicks, ratings=ratings, users=click_users)
    return [
        partial(by_genre, "genres"),
        partial(by_genre, "genres, 150 others", history=150),
        partial(by_clicks, "drawn clicks"),
        partial(by_clicks, "drawn clicks, none twice", repeats=False),
        partial(by_clicks, "drawn clicks, 125 rounds", rounds=125),
        partial(by_clicks, "drawn clicks, none twice, 125 rounds", rounds=125, repeats=False),
    ]


def rare_clicks(name: str, draw: int, *, dim: int = 16) -> People:
    """Clicks with probability .01 exp(z - .1), at most one half, for z of deviation .45, half of its variance
    shared; 200 rounds of 20 decisions.
    """
    rng = np.random.default_rng((SEED, 3, draw))
    features = rng.standard_normal((ARMS, dim)) / np.sqrt(dim)
    tastes = (rng.standard_normal(dim) + rng.standard_normal((20, dim))) / np.sqrt(2)
    means = np.minimum(0.01 * np.exp(0.45 * tastes @ features.T - 0.1), 0.5)
    return People(
        name,
        features,
        lambda _: means,
        means.mean(axis=0),
        20,
        200,
        rewards="click",
        spread=0.5,
        shown=20,
    )


def genres(
    name: str, draw: int, *, ratings: movielens.Ratings, described: Matrix, users: int, history: int = 0
) -> People:
    """Films by genre, year and how many others rated them, five a round, none twice; a hit is a film that the
    user liked. ``history``: so many others played before; each was shown up to 50 of the films that they
    rated, and 50 at random.
    """
    held, others, known = movielens.split(ratings, users, seed=draw)
    liked = ratings.good.toarray()
    counts = np.bincount(ratings.movies[np.isin(ratings.users, known)], minlength=liked.shape[1])
    features = np.column_stack((described, 2.0 * np.log1p(counts) / np.log1p(counts.max())))
    rng = np.random.default_rng((SEED, 5, draw))
    pool = np.setdiff1d(known, others)[: 4 * history] if history else np.empty(0, dtype=np.int64)
    past = []
    for user in rng.permutation(pool)[:history].tolist():
        rated = np.flatnonzero(np.bincount(ratings.movies[ratings.users == user], minlength=len(counts)))
        shown = rng.permutation(rated)[:50]
        more = rng.integers(len(counts), size=50)  # what nobody rated was not liked
        arms = np.unique(np.concatenate((shown, more)))
        past.append((features[arms], liked[user, arms]))
    popularity = np.asarray(liked[known].sum(axis=0), dtype=np.float64)
    return People(
        name,
        features,
        lambda _: liked[held],
        popularity,
        users,
        20,
        rewards="certain",
        spread=0.5,
        shown=5,
        repeats=False,
        history=past,
    )


def rated_clicks(
    name: str, draw: int, *, ratings: movielens.Ratings, users: int, rounds: int = 25, repeats: bool = True
) -> People:
    """Clicks are drawn, with the chances of ``movielens.clicked``."""
    held, _, known = movielens.split(ratings, users, seed=draw)
    features, means = movielens.clicked(ratings, held, known)
    popularity = np.asarray(ratings.good[known].sum(axis=0), dtype=np.float64).ravel()
    return People(
        name,
        features,
        lambda _: means,
        popularity,
        users,
        rounds,
        rewards="click",
        spread=0.5,
        repeats=repeats,
    )
