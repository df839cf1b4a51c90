"""Contextual bandits of others, for the films of `shortlist bench context`. A peer need not be installed.

They get the same features of films and the same contexts, and products of both. Each has as many settings to
be tuned as Shortlist.

    vowpal          Vowpal Wabbit with action-dependent features: one line of text for each film. Features are
                    scaled to a mean square of 1, which suits its updates better. Its learners take a reward
                    of 1 as a cost of -1
    bayesianbandits Thompson sampling by a Gaussian posterior over the products, exact and joint for all films
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from shortlist.linear import bilinear
from shortlist.types import Matrix, Rows, Vector
from studies.bench.context_films import WITH_CONTEXT, Films, Setting, User, Way

# ``mtr`` weighs a reward by one over the number of films, hence its rates of learning.
VOWPAL = (
    "--epsilon 0 --cb_type dm --coin",
    "--epsilon 0.02 --cb_type dm --coin",
    "--epsilon 0 --cb_type dm",
    "--epsilon 0 --cb_type mtr --learning_rate 1000",
    "--squarecb --gamma_scale 1000 --learning_rate 50",
    "--squarecb --gamma_scale 1000 --learning_rate 500",
)


def installed() -> Iterator[Way]:
    """The peers that are installed; the others are named."""
    for way in PEERS:
        if find_spec(MODULES[way.name]) is None:
            print(f"{way.name} is not installed (.venv/bin/pip install -e '.[peers]'): it has no row")
        else:
            yield way


class Vowpal:
    """``--cb_explore_adf`` with a quadratic namespace of user and film."""

    def __init__(self, films: Films, setting: str, seed: int) -> None:
        from vowpalwabbit import Workspace  # noqa: PLC0415 - a peer that need not be installed

        self._workspace = Workspace(f"--cb_explore_adf --quiet --random_seed {seed} -q uf {setting}")
        scaled = films.features / np.sqrt((films.features**2).mean())
        self._lines = np.array([f"|f {_named(film)}" for film in scaled], dtype=object)
        self._shown: Rows = np.empty(0, dtype=np.int64)
        self._place, self._propensity = 0, 1.0

    def start(self, user: User) -> None:
        """Users are told by their contexts."""

    def choose(self, user: User, excluded: Rows, rng: np.random.Generator) -> int:
        is_eligible = np.ones(len(self._lines), dtype=np.bool_)
        is_eligible[excluded] = False
        self._shown = np.flatnonzero(is_eligible)
        shares: Vector = np.array(self._workspace.predict(self._text(user, self._lines[self._shown])))
        shares /= shares.sum()
        self._place = int(rng.choice(len(shares), p=shares))
        self._propensity = float(shares[self._place])
        return int(self._shown[self._place])

    def learn(self, user: User, _film: int, reward: float) -> None:
        lines = self._lines[self._shown]
        lines[self._place] = f"0:{-reward}:{self._propensity} {lines[self._place]}"
        self._workspace.learn(self._text(user, lines))

    def _text(self, user: User, lines: Any) -> str:
        return "\n".join((f"shared |u {_named(user.context)}", *lines))


def _named(numbers: Vector) -> str:
    return " ".join(f"{place}:{number:.6f}" for place, number in enumerate(numbers.tolist()))


class BayesianBandits:
    """``LipschitzContextualAgent`` with the features that Shortlist learns from."""

    def __init__(self, films: Films, setting: Setting, seed: int) -> None:
        import bayesianbandits  # noqa: PLC0415 - a peer that need not be installed

        features = films.features
        directions = bilinear.directions(features.T @ features, setting.interactions or 1)
        self._excluded: Rows = np.empty(0, dtype=np.int64)

        def products(contexts: Matrix, tokens: list[int]) -> Any:
            some = features if len(tokens) == len(features) else features[tokens]
            return bilinear.phi(some, directions, contexts[0]).T[None]

        def eligible(samples: Any, tokens: list[int]) -> Any:
            scores = np.array(samples).reshape(len(tokens), -1, samples.shape[-1])
            scores[self._excluded] = -np.inf
            return scores

        noise = setting.exploration**2
        self._agent = bayesianbandits.LipschitzContextualAgent(
            [bayesianbandits.Arm(film, learner=None) for film in range(len(features))],
            bayesianbandits.ThompsonSampling(),
            bayesianbandits.FunctionArmFeaturizer(products),
            bayesianbandits.NormalRegressor(alpha=setting.ridge / noise, beta=1.0 / noise),
            batch_reward_function=eligible,
            random_seed=seed,
        )

    def start(self, user: User) -> None:
        """Users are told by their contexts."""

    def choose(self, user: User, excluded: Rows, _rng: np.random.Generator) -> int:
        self._excluded = excluded
        (film,) = self._agent.pull(user.context[None])
        return int(film)

    def learn(self, user: User, _film: int, reward: float) -> None:
        self._agent.update(user.context[None], np.array([reward]))


PEERS = (
    Way("vowpal", Vowpal, VOWPAL),
    Way("bayesianbandits", BayesianBandits, WITH_CONTEXT),
)
MODULES = {"vowpal": "vowpalwabbit", "bayesianbandits": "bayesianbandits"}
