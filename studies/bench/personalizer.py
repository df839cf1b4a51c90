"""`shortlist bench personalizer`: clients of Personalizer's API beside Vowpal Wabbit, which Personalizer was.

Both get the same JSON of contexts and actions, and the reward of what they chose, before the next round. Ours
is a service of one process with its store, over HTTP; Vowpal Wabbit is a library here, and learns at once.

    wine, cancer, digits    tables of scikit-learn: a row is a context of scaled numbers, a class is an action
                            that has only its name, and the right class is a reward of 1
    news                    20 actions out of 60, which come and go: their topic, source and age; the context
                            has a taste for topics, a device and an hour; clicks have a probability

A row has the mean reward of all rounds, and its ratio to that of the best setting of Vowpal Wabbit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Protocol

import httpx
import numpy as np

from examples.service import Server, temporary_service
from shortlist_client.progress import progress
from shortlist_personalizer.personalizer_command import make
from studies.measurement import report

SEED = 2026
BANDIT = "personalizer"
# The learning policy that Personalizer began with, the defaults of the library, and its newer exploration.
VOWPAL = ("--epsilon 0.2 --cb_type mtr --power_t 0 -l 0.001", "", "--squarecb")
TOPICS, SOURCES, DEVICES = 6, 8, ("phone", "desktop", "tablet")
Features = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Round:
    """What a client sends, and the probability that each action is rewarded."""

    context: Features
    actions: Sequence[Mapping[str, Any]]
    probabilities: Sequence[float]


class Player(Protocol):
    """Who chooses and learns."""

    def choose(self, given: Round) -> int:
        """The position of the action."""

    def learn(self, value: float) -> None:
        """The reward of the last choice."""


class Ours:
    """A client of ``/personalizer``, as the published ones are. ``http``: of the service."""

    def __init__(self, server: Server, http: httpx.Client) -> None:
        self._http = http
        self._http.delete(f"/v1/bandits/{BANDIT}")
        with server.connect() as client:
            make(client, BANDIT)
        self._event = ""

    def choose(self, given: Round) -> int:
        body = {"contextFeatures": given.context, "actions": given.actions}
        ranked = self._http.post("/personalizer/rank", json=body).raise_for_status().json()
        self._event = ranked["eventId"]
        ids = [action["id"] for action in given.actions]
        return ids.index(ranked["rewardActionId"])

    def learn(self, value: float) -> None:
        path = f"/personalizer/events/{self._event}/reward"
        self._http.post(path, json={"value": value}).raise_for_status()


class Vowpal:
    """``--cb_explore_adf -q ::`` with the same features in the same namespaces."""

    def __init__(self, setting: str, seed: int) -> None:
        from vowpalwabbit import Workspace  # noqa: PLC0415 - an extra

        words = f"--cb_explore_adf -q :: --quiet --random_seed {seed} {setting}"
        self._workspace: Any = Workspace(words)
        self._rng = np.random.default_rng(seed)
        self._lines = list[str]()
        self._chosen, self._propensity = 0, 1.0

    def choose(self, given: Round) -> int:
        self._lines = [f"shared {_namespaces(given.context, 'c')}"]
        self._lines += [_namespaces(action["features"], "a") for action in given.actions]
        propensities = np.array(self._workspace.predict("\n".join(self._lines)))
        propensities /= propensities.sum()
        self._chosen = int(self._rng.choice(len(propensities), p=propensities))
        self._propensity = float(propensities[self._chosen])
        return self._chosen

    def learn(self, value: float) -> None:
        lines = list(self._lines)
        lines[1 + self._chosen] = f"0:{-value}:{self._propensity} {lines[1 + self._chosen]}"
        self._workspace.learn("\n".join(lines))


def _namespaces(features: Features, prefix: str) -> str:
    """The line of Vowpal Wabbit's text format: a namespace for each object, and one for what is in none."""
    spaces: dict[str, list[str]] = {}
    for one in features:
        for name, value in one.items():
            space, inner = (name, value) if isinstance(value, dict) else ("", {name: value})
            for field, given in inner.items():
                text = f"{field}={given}" if isinstance(given, str) else f"{field}:{given}"
                spaces.setdefault(space, []).append(text.replace(" ", "_"))
    return " ".join(f"|{prefix}{space} {' '.join(texts)}" for space, texts in spaces.items())


def table_rounds(name: str, seed: int, count: int) -> Iterator[Round]:
    """Rows of a table, drawn with replacement."""
    datasets = import_module("sklearn.datasets")  # of an extra
    loaded = {
        "wine": datasets.load_wine,
        "cancer": datasets.load_breast_cancer,
        "digits": datasets.load_digits,
    }
    numbers, classes = loaded[name](return_X_y=True)
    scaled = (numbers - numbers.mean(axis=0)) / np.maximum(numbers.std(axis=0), 1e-9)
    kinds = int(classes.max()) + 1
    actions = [{"id": f"class-{kind}", "features": [{"class": str(kind)}]} for kind in range(kinds)]
    for row in np.random.default_rng(seed).integers(len(scaled), size=count).tolist():
        context = [
            {"row": {f"x{place}": round(float(one), 3) for place, one in enumerate(scaled[row]) if one}}
        ]
        yield Round(context, actions, np.eye(kinds)[classes[row]].tolist())


def news_rounds(seed: int, count: int) -> Iterator[Round]:
    """20 of 60 actions a round, of which one is replaced every 25 rounds."""
    rng = np.random.default_rng(seed)
    tastes = rng.normal(size=(len(DEVICES), 4, TOPICS)) * 0.9  # by device and quarter of the day
    sources = rng.normal(size=SOURCES) * 0.4

    def new_action(number: int) -> dict[str, Any]:
        topic, source = int(rng.integers(TOPICS)), int(rng.integers(SOURCES))
        return {"id": f"article-{number}", "topic": topic, "source": source, "since": number}

    pool = [new_action(number) for number in range(60)]
    for number in range(count):
        if number % 25 == 24:
            pool[int(rng.integers(60))] = new_action(60 + number)
        device, quarter = int(rng.integers(len(DEVICES))), int(rng.integers(4))
        shown = [pool[place] for place in rng.choice(60, size=20, replace=False).tolist()]
        scores = [tastes[device, quarter, one["topic"]] + sources[one["source"]] for one in shown]
        chances = [1.0 / (1.0 + math.exp(2.0 - score)) for score in scores]
        actions = [
            {"id": one["id"], "features": [{"topic": f"t{one['topic']}"}, {"source": f"s{one['source']}"}]}
            for one in shown
        ]
        yield Round([{"device": DEVICES[device]}, {"quarter": f"q{quarter}"}], actions, chances)


WORLDS: Mapping[str, Callable[[int, int], Iterator[Round]]] = {
    **{name: partial(table_rounds, name) for name in ("wine", "cancer", "digits")},
    "news": news_rounds,
}


def progressive_reward(player: Player, rounds: Iterator[Round], seed: int) -> float:
    """The mean reward of all rounds; the same clicks for everybody who makes the same choices."""
    rng = np.random.default_rng([seed, 1])
    rewards = []
    for given in rounds:
        is_click = rng.random() < given.probabilities[player.choose(given)]
        player.learn(float(is_click))
        rewards.append(is_click)
    return float(np.mean(rewards))


def run(quick: bool, worlds: Sequence[str] = tuple(WORLDS), count: int | None = None) -> dict[str, Any]:
    """5,000 rounds of five seeds (quick: 1,000 of two); print and return a row for each world and player."""
    seeds = 2 if quick else 5
    count = count or (1_000 if quick else 5_000)
    rows = list[dict[str, Any]]()
    with temporary_service() as server, httpx.Client(base_url=server.url, timeout=60.0) as http:
        for world in progress(worlds, "worlds"):
            means = {
                name: [
                    progressive_reward(player(seed), WORLDS[world](seed, count), seed)
                    for seed in range(seeds)
                ]
                for name, player in _players(server, http).items()
            }
            best = max(float(np.mean(means[name])) for name in means if name.startswith("vw"))
            for name, found in means.items():
                mean = float(np.mean(found))
                error = float(np.std(found, ddof=1) / math.sqrt(seeds))
                rows.append(
                    {"world": world, "player": name, "mean": mean, "error": error, "ratio": mean / best}
                )
    return report("personalizer", rows, seed=SEED)


def _players(server: Server, http: httpx.Client) -> Mapping[str, Callable[[int], Player]]:
    ours: dict[str, Callable[[int], Player]] = {"shortlist": lambda _: Ours(server, http)}
    return ours | {f"vw {setting}".strip(): partial(Vowpal, setting) for setting in VOWPAL}
