"""Campaigns that look for k centres while others answer, with noise, how far apart two points are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from app.algorithms.kcenter import ask_tell, ns_tands, ns_ts, ns_ucb
from app.algorithms.kcenter.ask_tell import Answer, Query
from app.algorithms.kcenter.noisy_state import Method, Noise, State, Threshold
from app.errors import Invalid
from app.services.campaigns.campaigns import Campaigns
from app.services.campaigns.fold import Campaign


class CenterParameters(msgspec.Struct, frozen=True, array_like=True):
    """What a campaign is made with. ``noise_std`` None: unknown; ``epsilon`` None: a tenth of the noise."""

    points: list[str]
    k: int
    method: Method = "ns_ts"
    noise: Noise = "gaussian"
    noise_std: float | None = None
    delta: float = 0.1
    epsilon: float | None = None
    mix: float = 0.9
    threshold: Threshold = "proven"
    first: str | None = None


@dataclass(frozen=True, slots=True)
class SeededState:
    """A state and the seed of its generators: one for the start, one for every asking."""

    seed: int
    inner: State

    @property
    def issued(self) -> int:
        return self.inner.issued

    @property
    def observed(self) -> int:
        return self.inner.observed

    @property
    def done(self) -> bool:
        return self.inner.done

    @property
    def rng(self) -> np.random.Generator:
        """The generator of the next step."""
        return np.random.default_rng((self.seed, 1 + self.inner.asks))


class NoisyCenters:
    """NS-TS, NS-UCB and NS-TandS as an algorithm of ``app.services.campaigns.campaigns``."""

    kind = "centers"
    pull = "query"
    parameters = CenterParameters
    state = SeededState

    def start(self, parameters: CenterParameters, seed: int) -> SeededState:
        """The state before any query. Raises Invalid, naming the parameter."""
        points = parameters.points
        _refuse_repeats(points)
        if parameters.first is not None and parameters.first not in points:
            raise Invalid("first must be one of the points", loc=("first",))
        options: dict[str, Any] = {
            "n": len(points),
            "k": parameters.k,
            "delta": parameters.delta,
            "rng": np.random.default_rng((seed, 0)),
            "first": None if parameters.first is None else points.index(parameters.first),
            "noise": parameters.noise,
            "noise_std": parameters.noise_std,
            "epsilon": parameters.epsilon,
        }
        if parameters.method == "ns_ts":
            state = ns_ts.start(**options, mix=parameters.mix)
        elif parameters.method == "ns_ucb":
            state = ns_ucb.start(**options)
        else:
            state = ns_tands.start(**options, threshold=parameters.threshold)
        return SeededState(seed, ask_tell.settled(state))

    def ask(self, state: SeededState, count: int) -> tuple[SeededState, Sequence[Query]]:
        inner, queries = ask_tell.ask(state.inner, count, rng=state.rng)
        return replace(state, inner=inner), queries

    def tell(self, state: SeededState, results: Sequence[tuple[int, float]]) -> SeededState:
        inner = ask_tell.tell(state.inner, results)
        return state if inner is state.inner else replace(state, inner=inner)


CenterCampaign = Campaign[CenterParameters, SeededState]
CenterCampaigns = Campaigns[CenterParameters, SeededState, Query]


def answer(campaign: CenterCampaign) -> Answer:
    """Where a campaign stands."""
    return ask_tell.answer(campaign.state.inner)


def _refuse_repeats(points: Sequence[str]) -> None:
    seen: set[str] = set()
    for place, point in enumerate(points):
        if point in seen:
            raise Invalid("a point must not be named twice", loc=("points", place))
        seen.add(point)
