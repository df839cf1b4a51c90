"""What people use instead of a bandit: rankings that are fitted again and again from who liked what.

All are given what the bandit is given: in the setting without a past only what they themselves have shown.

    popular     the arms that most people liked
    item-kNN    the sum of the cosines of an arm to the arms that a person liked; what is popular for
                those who liked nothing yet
    EASE        as item-kNN, with the weights between arms that say best who likes what (Steck 2019); the
                ridge is chosen by likes that are held out: of the past, else of what was shown until now
    ALS         factors of implicit feedback (Hu, Koren and Volinsky 2008), by the package `implicit`; what is
                popular for those who liked nothing yet
    VW          Vowpal Wabbit: a linear model of person and features of the arm, and of their products; every
                other list has an arm at random

item-kNN and EASE have weights of the 5,000 most liked arms at most; the others are ranked by popularity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
from scipy.sparse import csr_array, csr_matrix, vstack

from shortlist.embedding import item_to_item
from shortlist.embedding.item_to_item import ItemToItem
from shortlist.types import Matrix, Vector
from studies.bench.behaviour_worlds import Events

FACTORS, STEPS, REGULARIZATION, ALPHA = 32, 15, 0.05, 10.0
VOWPAL = "--cb_adf --cb_type dm --rank_all --coin -q uf"
RANDOM_ARMS = 0.5  # of a list
TIE = 1e-6  # random, so that ties are broken differently for everyone


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """What is known at the start. Shapes: features (K, d). ``people``: how many are played."""

    features: Matrix
    people: int
    past: Events | None = None
    others: int = 0

    @property
    def arms(self) -> int:
        return len(self.features)

    def past_likes(self) -> csr_array:
        """Shape: (others, K); without a past nobody."""
        if self.past is None:
            return csr_array((0, self.arms))
        return self.past.likes(self.others, self.arms)


class Opponent(Protocol):
    """Made from what is given and a seed."""

    def scores(self, person: int) -> Vector:
        """Of all arms. Shape: (K,)."""

    def learn(self, shown: Events) -> None:
        """Fit again after a round; ``shown``: all that was shown until now."""


@dataclass(frozen=True, slots=True)
class Way:
    """``module``: what must be installed, None: nothing more."""

    name: str
    make: Callable[[Given, int], Opponent]
    module: str | None = None


def installed(opponents: Sequence[Way]) -> Iterator[Way]:
    """The opponents that are installed; the others are named."""
    for way in opponents:
        if way.module is not None and find_spec(way.module) is None:
            print(f"{way.name}: {way.module} is not installed (.venv/bin/pip install -e '.[peers]')")
        else:
            yield way


class Popular:
    """The arms that most people liked; ties at random."""

    def __init__(self, given: Given, seed: int) -> None:
        self._given, self._rng = given, np.random.default_rng(seed)
        self._past = given.past_likes()
        self._likes = csr_array((given.people, given.arms))
        self._fit(vstack([self._past, self._likes]).tocsr())

    def scores(self, person: int) -> Vector:
        popular: Vector = self._counts + TIE * self._rng.random(self._given.arms)
        return popular if self._likes[[person]].nnz == 0 else self._personal(person, popular)

    def learn(self, shown: Events) -> None:
        self._likes = shown.likes(self._given.people, self._given.arms)
        self._fit(vstack([self._past, self._likes]).tocsr())

    def _fit(self, likes: csr_array) -> None:
        self._counts = np.asarray(likes.sum(axis=0), dtype=np.float64).ravel()

    def _personal(self, _person: int, popular: Vector) -> Vector:
        return popular


class ItemKnn(Popular):
    """Cosines of arms over the people who liked them."""

    def _fit(self, likes: csr_array) -> None:
        super()._fit(likes)
        self._model = self._weights(likes)

    def _weights(self, likes: csr_array) -> ItemToItem:
        return item_to_item.item_knn(likes)

    def _personal(self, person: int, popular: Vector) -> Vector:
        scores: Vector = self._model.scores(self._likes[[person]])[0] + TIE * popular
        return scores


class Ease(ItemKnn):
    """The weights of EASE, from scratch after each round."""

    def __init__(self, given: Given, seed: int) -> None:
        past = given.past_likes()
        self._seed = seed
        self._ridge = self._best(past) if past.nnz else None
        super().__init__(given, seed)

    def _best(self, likes: csr_array) -> float:
        return item_to_item.best_ridge(likes, np.random.default_rng(self._seed))

    def _weights(self, likes: csr_array) -> ItemToItem:
        return item_to_item.ease(likes, self._ridge or self._best(likes))


class ImplicitAls(Popular):
    """Alternating least squares with weights, from scratch after each round."""

    def __init__(self, given: Given, seed: int) -> None:
        from implicit.als import AlternatingLeastSquares  # noqa: PLC0415 - an extra

        self._make = AlternatingLeastSquares
        self._seed = seed
        super().__init__(given, seed)

    def _fit(self, likes: csr_array) -> None:
        super()._fit(likes)
        if likes.nnz == 0:
            return
        model = self._make(
            factors=FACTORS,
            regularization=REGULARIZATION,
            alpha=ALPHA,
            iterations=STEPS,
            num_threads=1,
            random_state=self._seed,
        )
        model.fit(csr_matrix(likes, dtype=np.float32), show_progress=False)
        self._people = np.asarray(model.user_factors[self._past.shape[0] :], dtype=np.float64)
        self._arms = np.asarray(model.item_factors, dtype=np.float64)

    def _personal(self, person: int, popular: Vector) -> Vector:
        found: Vector = self._arms @ self._people[person] + TIE * popular / max(popular.max(), 1.0)
        return found


class Vowpal:
    """Expected likes, learned from everything that was shown, liked or not."""

    def __init__(self, given: Given, seed: int) -> None:
        from vowpalwabbit import Workspace  # noqa: PLC0415 - an extra

        self._workspace: Any = Workspace(f"{VOWPAL} --quiet --random_seed {seed}")
        self._rng = np.random.default_rng(seed)
        scaled = given.features / np.sqrt((given.features**2).mean())
        self._lines = [
            "|f " + " ".join(f"{place}:{number:.4f}" for place, number in enumerate(row) if number)
            for row in scaled.tolist()
        ]
        self._all, self._learned = "\n".join(self._lines), 0
        if given.past is not None:
            for row in self._rng.permutation(len(given.past.arms)).tolist():
                past = given.past
                self._teach(f"past{past.people[row]}", int(past.arms[row]), bool(past.liked[row]))

    def scores(self, person: int) -> Vector:
        costs = self._workspace.predict(f"shared |u {person}\n{self._all}")
        is_random = self._rng.random(len(costs)) < RANDOM_ARMS / len(costs)
        found: Vector = np.where(is_random, np.inf, -np.array(costs)) + TIE * self._rng.random(len(costs))
        return found

    def learn(self, shown: Events) -> None:
        for row in range(self._learned, len(shown.arms)):
            self._teach(str(shown.people[row]), int(shown.arms[row]), bool(shown.liked[row]))
        self._learned = len(shown.arms)

    def _teach(self, person: str, arm: int, liked: bool) -> None:
        self._workspace.learn(f"shared |u {person}\n0:{-float(liked)}:1 {self._lines[arm]}")


OPPONENTS = (
    Way("popular", Popular),
    Way("item-kNN", ItemKnn),
    Way("EASE", Ease),
    Way("ALS", ImplicitAls, "implicit"),
    Way("VW", Vowpal, "vowpalwabbit"),
)
