"""Plays an environment against the service, over HTTP."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event

import numpy as np

from examples.environments import Environment, Matrix
from examples.service import Server
from shortlist_client import Client
from shortlist_client.progress import progress

CATALOGUE = "arms"
UPLOAD = 1_000


@dataclass(frozen=True)
class Seat:
    """One learner under one of the bandits that are played, and how the service knows it."""

    way: int
    learner: int
    bandit: str
    key: str | None


@dataclass(frozen=True)
class Caller:
    """The client of one thread. ``seconds`` are the durations of its calls, by kind."""

    client: Client
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @contextmanager
    def timed(self, kind: str = "other") -> Iterator[Client]:
        """The client, for one call of this kind."""
        started = time.perf_counter()
        yield self.client
        self.seconds[kind].append(time.perf_counter() - started)


@dataclass
class Outcome:
    """What came of it. ``regrets`` by name of what played, (L, rounds played) each."""

    regrets: dict[str, Matrix]
    seconds: dict[str, list[float]] = field(default_factory=dict)
    elapsed_s: float = 0.0
    exact_share: float = 0.0

    @property
    def requests(self) -> int:
        return sum(map(len, self.seconds.values()))


class Player:
    """Plays all bandits for every learner; several threads share the learners, and wait for arrivals."""

    def __init__(
        self, environment: Environment, server: Server, *, threads: int, repeats: bool, seed: int
    ) -> None:
        self._game = environment
        self._repeats = repeats
        self._callers = [Caller(server.connect()) for _ in range(threads)]
        self._seats = list(_seats(environment))
        self._names = list(environment.bandits)
        shape = (len(self._names), len(environment.learners), environment.rounds)
        rng = np.random.default_rng(seed)
        if environment.clicks:
            self._noise = rng.random(shape[1:])
        else:
            self._noise = rng.normal(0.0, environment.noise_std, shape[1:])
        # Every choice has a seed, so that a second run is the same but for what is built in the background.
        self._seeds = rng.integers(2**31, size=(len(self._seats), environment.rounds))
        self._regrets = np.zeros(shape)
        self._chosen: list[list[str]] = [[] for _ in self._seats]
        self._exact = 0
        self._stop = Event()

    def play(self) -> Outcome:
        """All rounds."""
        game = self._game
        self._set_up()
        started = time.monotonic()
        shares = range(len(self._callers))
        with ThreadPoolExecutor(len(self._callers)) as pool:
            try:
                for block in progress(range(len(game.present)), f"blocks of {game.block} rounds"):
                    self._add_arms(game.present[block - 1] if block else 0, game.present[block])
                    list(pool.map(lambda share, block=block: self._play_block(block, share), shares))
            except BaseException:
                self._stop.set()
                raise
        return self._outcome(time.monotonic() - started)

    def _set_up(self) -> None:
        game, caller = self._game, self._callers[0]
        with caller.timed() as client:
            client.put_catalogue(CATALOGUE, dim=game.features.shape[1], index={"kind": "hnsw"})
        for bandit, way in {(seat.bandit, seat.way) for seat in self._seats}:
            settings = game.bandits[self._names[way]]
            with caller.timed() as client:
                client.put_bandit(bandit, catalogue=CATALOGUE, scope=game.scope, **settings)

    def _add_arms(self, first: int, last: int) -> None:
        features = self._game.features
        for start in range(first, last, UPLOAD):
            rows = range(start, min(start + UPLOAD, last))
            with self._callers[0].timed() as client:
                client.upsert_arms(CATALOGUE, features[rows], ids=[f"arm-{row}" for row in rows])

    def _play_block(self, block: int, share: int) -> None:
        mine = range(share, len(self._seats), len(self._callers))
        for at in range(block * self._game.block, (block + 1) * self._game.block):
            for number in mine:
                if self._stop.is_set():
                    return
                self._play_one(self._callers[share], number, block, at)

    def _play_one(self, caller: Caller, number: int, block: int, at: int) -> None:
        seat, game = self._seats[number], self._game
        exclude = [] if self._repeats else self._chosen[number]
        name = self._names[seat.way]
        with caller.timed(f"choose, {name}") as client:
            # With once=False one choice is one request: nobody asks first what kind of bandit it is.
            drawn_by = int(self._seeds[number, at])
            choice = client.choose(seat.bandit, once=False, key=seat.key, exclude=exclude, seed=drawn_by)
        arm_id = choice.arms[0].id
        mean = game.means[seat.learner, int(arm_id.removeprefix("arm-"))]
        noise = self._noise[seat.learner, at]
        value = float(noise < mean) if game.clicks else float(mean + noise)
        with caller.timed("reward, until applied") as client:
            client.reward(choice.decision, value, wait=True)
        self._chosen[number].append(arm_id)
        self._regrets[seat.way, seat.learner, at] = game.best[seat.learner, block] - mean
        self._exact += choice.exact and seat.way == 0

    def _outcome(self, elapsed_s: float) -> Outcome:
        outcome = Outcome(dict(zip(self._names, self._regrets, strict=True)), elapsed_s=elapsed_s)
        for caller in self._callers:
            caller.client.close()
            for kind, seconds in caller.seconds.items():
                outcome.seconds.setdefault(kind, []).extend(seconds)
        outcome.exact_share = self._exact / self._regrets[0].size
        return outcome


def _seats(environment: Environment) -> Iterator[Seat]:
    for learner, name in enumerate(environment.learners):
        for way in range(len(environment.bandits)):
            if environment.scope == "per_key":
                yield Seat(way, learner, f"bandit-{way}", name)
            else:
                yield Seat(way, learner, f"bandit-{way}.{name}", None)
