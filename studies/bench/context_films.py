"""Films for new users, with their taste as the context: a part of `shortlist bench context`, with `--data`.

MovieLens users come one after the other, 20 rounds each. In every round one film is recommended, none twice;
the reward is 1 if the user rated it 4 or more, and else 0. Nobody is known: a learner has the features of the
films, and what the users before have taught it.

Notation
    d           dimension of the films, 16; features from the ratings of all users who are not served
    m           numbers of the context, 8. Half of a user's ratings, drawn at random, are known before: their
                first m principal components, scaled to length 1, are the context. These films are not
                recommended, so what is rewarded is in the other half alone
    reward      mean of all rounds, ``error``: its standard error over the splits
    gain        reward less that of ``blind``, in the same splits; ``gain_error``: its standard error
    decide_us   processor time of a decision, with all that it needs to use the rewards before; learn_us: of
                learning a reward

    popular     the films most users like, in that order
    factors     what the same factorisation predicts from the known half; nothing is learned here
    blind       one learner for all, without context
    context     one learner for all, with the context
    peers       the same features and contexts; see ``context_peers``

Every way to recommend has a grid of settings. It is tuned on users who are served in no split.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import svds
from threadpoolctl import threadpool_limits

from shortlist.linear import bilinear, ridge, ridge_sums, sub_ts
from shortlist.types import Matrix, Rows, Vector
from shortlist_client.progress import progress
from studies.bench.choose import index_of
from studies.experiments.movielens import DIM, GOOD, LEAST_RATINGS, Ratings, read

SEED = 1_618
CONTEXT = 8
_FIRST = np.array([True])


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Users to tune on, and those who are served in each split, with the rounds of each user."""

    tuning: int = 60
    splits: int = 5
    served: int = 100
    rounds: int = 20


WHOLE, QUICK = Sizes(), Sizes(tuning=15, splits=2)


@dataclass(frozen=True, slots=True, eq=False)
class User:
    """Shapes: context (m,), known (n,) films rated before, likes (K,) bool, predicted (K,)."""

    context: Vector
    known: Rows
    likes: NDArray[np.bool_]
    predicted: Vector


@dataclass(frozen=True, slots=True, eq=False)
class Films:
    """Films, and users to serve in turn. Shapes: features (K, d), popularity (K,)."""

    features: Matrix
    popularity: Vector
    users: Sequence[User]


class Recommender(Protocol):
    """One way to recommend."""

    def start(self, user: User) -> None:
        """The next user comes."""
        ...

    def choose(self, user: User, excluded: Rows, rng: np.random.Generator) -> int: ...

    def learn(self, user: User, film: int, reward: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Way:
    """A way to recommend, and the settings that are tried. ``make`` also takes a seed."""

    name: str
    make: Callable[[Films, Any, int], Recommender]
    settings: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Played:
    """Mean reward of a round, and processor time of a decision and of learning in microseconds."""

    reward: float
    decide_us: float
    learn_us: float


def rows(sizes: Sizes, data: Path, peers: Sequence[Way] = ()) -> list[dict[str, Any]]:
    """Tune every way on some users, and serve others in each split.

    Raises FileNotFoundError, ValueError: no MovieLens data, or too few users.
    """
    tuning, splits = groups(read(data), sizes)
    ways = [*WAYS, *peers]
    with threadpool_limits(1):
        chosen = {
            way.name: tune(way, tuning, sizes.rounds) for way in progress(ways, "ways to recommend, tuned")
        }
        played = {
            way.name: serve(way, chosen[way.name], splits, sizes.rounds)
            for way in progress(ways, "ways to recommend")
        }
    blind = np.array([each.reward for each in played["blind"]])
    return [
        {
            "part": "films",
            "way": name,
            "setting": "" if chosen[name] is None else str(chosen[name]),
            "users": sizes.served * sizes.splits,
            **_mean("reward", "error", np.array([each.reward for each in results])),
            **_mean("gain", "gain_error", np.array([each.reward for each in results]) - blind),
            "decide_us": float(np.mean([each.decide_us for each in results])),
            "learn_us": float(np.mean([each.learn_us for each in results])),
        }
        for name, results in played.items()
    ]


def _mean(name: str, error: str, values: Vector) -> dict[str, float]:
    spread = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return {name: float(values.mean()), error: float(spread)}


def groups(ratings: Ratings, sizes: Sizes) -> tuple[Films, list[Films]]:
    """Users to tune on, who are in no split, and the splits, each of other users. Raises ValueError."""
    counts = np.bincount(ratings.users)
    active = np.random.default_rng(SEED).permutation(np.flatnonzero(counts >= LEAST_RATINGS))
    if len(active) < (wanted := sizes.tuning + sizes.served):
        raise ValueError(
            f"only {len(active)} users have {LEAST_RATINGS} ratings or more, {wanted} are wanted"
        )
    own, others = active[: sizes.tuning], active[sizes.tuning :]
    draws = [
        np.random.default_rng((SEED, split)).permutation(others)[: sizes.served]
        for split in range(sizes.splits)
    ]
    return films_for(ratings, own, own, SEED), [
        films_for(ratings, held, np.concatenate((own, held)), split) for split, held in enumerate(draws)
    ]


def films_for(ratings: Ratings, served: Rows, left_out: Rows, seed: int) -> Films:
    """Features of the films from the ratings of all but ``left_out``, and the users ``served``."""
    good = ratings.good
    others = good[np.setdiff1d(np.arange(good.shape[0]), left_out)]
    _, sizes, right = svds(others, k=DIM, v0=np.ones(min(others.shape)))
    largest = np.argsort(-sizes)
    sizes, components = sizes[largest], right[largest].T
    features: Matrix = components * np.sqrt(sizes)
    features /= np.linalg.norm(features, axis=1).max()
    rng = np.random.default_rng((SEED, seed))
    users = []
    for user in served:
        rated = rng.permutation(np.flatnonzero(ratings.users == user))
        known, rest = np.array_split(rated, 2)
        before, likes = (_liked(ratings, part) for part in (known, rest))
        along = before @ components
        context = (along / sizes)[:CONTEXT]
        context /= max(float(np.linalg.norm(context)), np.finfo(float).tiny)
        users.append(User(context, np.sort(ratings.movies[known]), likes, components @ along))
    return Films(features, np.asarray(others.sum(axis=0), dtype=np.float64).ravel(), users)


def _liked(ratings: Ratings, some: Rows) -> NDArray[np.bool_]:
    likes = np.zeros(len(ratings.movie_ids), dtype=np.bool_)
    likes[ratings.movies[some][ratings.values[some] >= GOOD]] = True
    return likes


def tune(way: Way, films: Films, rounds: int) -> Any:
    """The setting with the largest reward; the first of them."""
    if len(way.settings) == 1:
        return way.settings[0]
    rewards = [play(way.make(films, setting, SEED), films, SEED, rounds).reward for setting in way.settings]
    return way.settings[int(np.argmax(rewards))]


def serve(way: Way, setting: Any, splits: Sequence[Films], rounds: int) -> list[Played]:
    """All users of each split, by a new recommender."""
    return [play(way.make(films, setting, seed), films, seed, rounds) for seed, films in enumerate(splits)]


def play(recommender: Recommender, films: Films, seed: int, rounds: int) -> Played:
    """All users in turn. Every way meets them in the same order."""
    rng, reward, decide_s, learn_s = np.random.default_rng((SEED, seed)), 0, 0.0, 0.0
    for user in films.users:
        recommender.start(user)
        excluded = user.known
        for _ in range(rounds):
            started = time.thread_time()
            film = recommender.choose(user, excluded, rng)
            decided = time.thread_time()
            recommender.learn(user, film, float(user.likes[film]))
            learn_s += time.thread_time() - decided
            decide_s += decided - started
            reward += int(user.likes[film])
            excluded = np.append(excluded, film)
    decisions = rounds * len(films.users)
    return Played(reward / decisions, decide_s / decisions * 1e6, learn_s / decisions * 1e6)


class Ranked:
    """Films in the order of scores that do not depend on rewards."""

    def __init__(self, scores: Callable[[User], Vector]) -> None:
        self._scores = scores

    def start(self, user: User) -> None:
        """All users are alike."""

    def choose(self, user: User, excluded: Rows, _rng: np.random.Generator) -> int:
        scores = np.array(self._scores(user), dtype=np.float64)
        scores[excluded] = -np.inf
        return int(scores.argmax())

    def learn(self, user: User, film: int, reward: float) -> None:
        """Nothing is learned."""


@dataclass(frozen=True, slots=True)
class Setting:
    """``interactions``: p, None: no context."""

    ridge: float
    exploration: float
    interactions: int | None = None

    def __str__(self) -> str:
        parts = [f"ridge {self.ridge:g}", f"exploration {self.exploration:g}"]
        if self.interactions is not None:
            parts.append(f"p {self.interactions}")
        return ", ".join(parts)


class Bandit:
    """Sub-TS by this project's parts: one learner for all users."""

    def __init__(self, films: Films, setting: Setting, seed: int) -> None:
        self._films, self._setting = films, setting
        self._snapshot = index_of("auto", films.features, seed).snapshot()
        self._directions = None
        if setting.interactions is not None:
            gram = films.features.T @ films.features
            self._directions = bilinear.directions(gram, setting.interactions)
        self._sums = ridge_sums.empty(DIM + CONTEXT * (setting.interactions or 0))

    def start(self, _user: User) -> None:
        """All users are alike."""

    def choose(self, user: User, excluded: Rows, rng: np.random.Generator) -> int:
        posterior = ridge.posterior(self._sums, ridge=self._setting.ridge)
        if self._directions is not None:
            posterior = bilinear.given(posterior, self._directions, user.context)
        found = sub_ts.choose(
            posterior, self._snapshot, k=1, exploration=self._setting.exploration, rng=rng, exclude=excluded
        )
        return int(found.rows[0])

    def learn(self, user: User, film: int, reward: float) -> None:
        taught = self._films.features[film : film + 1]
        if self._directions is not None:
            taught = bilinear.phi(taught, self._directions, user.context)
        self._sums = ridge_sums.add(self._sums, taught, np.array([reward]), _FIRST)


PLAIN = [Setting(ridge, exploration) for ridge in (0.3, 1.0, 3.0) for exploration in (0.05, 0.1)]
WITH_CONTEXT = [
    Setting(ridge, exploration, interactions)
    for interactions in (8, 16)
    for ridge, exploration in ((0.3, 0.05), (0.3, 0.1), (1.0, 0.1))
]
WAYS = (
    Way("popular", lambda films, _, __: Ranked(lambda _: films.popularity), [None]),
    Way("factors", lambda *_: Ranked(lambda user: user.predicted), [None]),
    Way("blind", Bandit, PLAIN),
    Way("context", Bandit, WITH_CONTEXT),
)
