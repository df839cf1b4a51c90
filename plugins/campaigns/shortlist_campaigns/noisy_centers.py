"""Campaigns that find k centres. Others measure, with noise, how far apart two points are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from shortlist.kcenter import ask_tell, ns_tands, ns_ts, ns_ucb
from shortlist.kcenter.ask_tell import CenterProgress, Query
from shortlist.kcenter.noisy_state import Noise, NoisyMethod, NoisyOptions, NoisyState, Threshold
from shortlist_campaigns.campaigns import Campaigns
from shortlist_campaigns.fold import Campaign, options_of
from shortlist_service.errors import Invalid
from shortlist_service.routes import refuse_repeats


class CenterParameters(msgspec.Struct, frozen=True, array_like=True):
    """The parameters of a campaign; see ``noisy_state.NoisyOptions``. Stored as an array, in this order.

    ``points`` are ids, and so is ``first``. ``noise_std`` None: unknown. ``epsilon`` None: a tenth of the
    noise's standard deviation. ``mix`` is used by ns_ts, ``threshold`` by ns_tands.
    """

    points: list[str]
    k: int
    method: NoisyMethod = "ns_ts"
    noise: Noise = "gaussian"
    noise_std: float | None = None
    delta: float = 0.1
    epsilon: float | None = None
    mix: float = 0.9
    threshold: Threshold = "proven"
    first: str | None = None


@dataclass(frozen=True, slots=True)
class NoisyStart:
    """A row of ``METHODS``: how a campaign starts, and the parameters that this method alone takes.

    How it goes on is in ``ask_tell``, and so is what is promised (``CenterProgress.guarantee``).
    """

    start: Callable[..., NoisyState]
    options: tuple[str, ...] = ()


METHODS: Mapping[NoisyMethod, NoisyStart] = {
    "ns_ts": NoisyStart(ns_ts.start, ("mix",)),
    "ns_ucb": NoisyStart(ns_ucb.start),
    "ns_tands": NoisyStart(ns_tands.start, ("threshold",)),
}


@dataclass(frozen=True, slots=True)
class SeededState:
    """A state, and the seed of its generators: there is one for the start and one for every ``ask``."""

    seed: int
    inner: NoisyState

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
        """The generator of the next ``ask``."""
        return np.random.default_rng((self.seed, 1 + self.inner.asks))


class NoisyCenters:
    """NS-TS, NS-UCB and NS-TandS as an algorithm of ``campaigns``."""

    kind = "centers"
    pull = "query"
    parameters = CenterParameters
    state = SeededState

    def start(self, parameters: CenterParameters, seed: int) -> SeededState:
        """The state before any query. Raises Invalid, naming the parameter."""
        points = parameters.points
        refuse_repeats(points, "a point must not be named twice", ("points",))
        if parameters.first is not None and parameters.first not in points:
            raise Invalid("first must be one of the points", path=("first",))
        method = METHODS[parameters.method]
        state = method.start(
            n=len(points),
            first=None if parameters.first is None else points.index(parameters.first),
            rng=np.random.default_rng((seed, 0)),
            **options_of(parameters, (*NoisyOptions.__annotations__, *method.options)),
        )
        return SeededState(seed, ask_tell.settled(state))

    def ask(self, state: SeededState, count: int) -> tuple[SeededState, Sequence[Query]]:
        inner, queries = ask_tell.ask(state.inner, count, rng=state.rng)
        return replace(state, inner=inner), queries

    def tell(self, state: SeededState, results: Sequence[tuple[int, float]]) -> SeededState:
        inner = ask_tell.tell(state.inner, results)
        return state if inner is state.inner else replace(state, inner=inner)


CenterCampaign = Campaign[CenterParameters, SeededState]
CenterCampaigns = Campaigns[CenterParameters, SeededState, Query]


def answer(campaign: CenterCampaign) -> CenterProgress:
    """The state of a campaign. Cost: O(n k)."""
    return ask_tell.answer(campaign.state.inner)
