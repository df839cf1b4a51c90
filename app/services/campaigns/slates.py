"""Slate campaigns: the algorithms of ``shortlist.slates`` over arms that have ids.

Their stopping rule is tested after t_1, t_2, ... results, numbers fixed in advance: each test is a look.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from app.errors import Conflict, NotFound
from app.filters.fields import Value
from app.services.campaigns.campaigns import Campaigns
from app.services.campaigns.fold import Campaign
from app.services.campaigns.options import options_of
from app.services.campaigns.slate_rules import SlateRules, given, partition, stored
from app.services.catalogues.catalogues import Catalogues
from app.services.formats.ids import refuse_repeats
from shortlist.slates import ask_tell, exhaustive, icb, sa_foa, saqm
from shortlist.slates.allocation import Allocation
from shortlist.slates.ask_tell import Pull
from shortlist.slates.campaign_state import Method, Options, Report, State
from shortlist.slates.matroids import PartitionMatroid
from shortlist.slates.widths import Bound

# Warnings: totals vary this much more than the noise that was stated; this many degrees of freedom are enough
# to say so; the allocation is this much worse than uniform by the G-criterion.
_NOISY = 1.5
_ENOUGH = 50
_WIDE = 2.0


class SlateParameters(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a campaign is made with; see ``campaign_state.Options``. Stored as a map.

    ``rules`` say which slates are allowed; None: all. ``metadata`` has the value of their field of each arm
    that has one, as it was when the campaign was made; it was given, or came from ``catalogue``.
    Exactly one of ``noise_range`` and ``noise_std`` is given. ``noise_range`` R: the noise of one arm lies in
    [-R, R], and ``independent_noise`` says that the arms of a slate err independently. ``noise_std``: the
    sub-Gaussian parameter of the noise of a total.
    """

    arms: list[str]
    k: int
    method: Method
    epsilon: float
    delta: float
    noise_range: float | None
    noise_std: float | None
    independent_noise: bool
    allocation: Allocation
    bound: Bound
    rules: SlateRules | None = None
    catalogue: str | None = None
    metadata: dict[str, dict[str, str | bool | int | float]] | None = None

    @property
    def sigma(self) -> float:
        """Sub-Gaussian parameter of the noise of a total: k R, sqrt(k) R if independent (Hoeffding)."""
        if self.noise_range is None:
            return self.noise_std or 0.0
        return self.noise_range * (math.sqrt(self.k) if self.independent_noise else self.k)


SlateCampaign = Campaign[SlateParameters, State]
SlateCampaigns = Campaigns[SlateParameters, State, Pull]


@dataclass(frozen=True, slots=True)
class SlateMethod:
    """A row of ``METHODS``: how a campaign starts, and the bounds for which its answer is proven.

    How it goes on is in ``ask_tell``.
    """

    start: Callable[..., State]
    proven: frozenset[Bound] = frozenset(("certified", "paper"))


METHODS: Mapping[Method, SlateMethod] = {
    "saqm": SlateMethod(saqm.start),
    "sa_foa": SlateMethod(sa_foa.start, proven=frozenset(("certified",))),
    "icb": SlateMethod(icb.start),
    "exhaustive": SlateMethod(exhaustive.start),
}


class Slates:
    """The ask/tell algorithm of all four methods, for ``Campaigns``."""

    kind = "slates"
    pull = "pull"
    parameters = SlateParameters
    state = State

    def start(self, parameters: SlateParameters, seed: int) -> State:
        refuse_repeats(parameters.arms, "an arm must not appear twice", ("arms",))
        options = options_of(parameters, Options.__annotations__) | {
            "n": len(parameters.arms),
            "noise_std": parameters.sigma,  # of a total, also where the noise of an arm was given
            "reach": None if parameters.noise_range is None else parameters.k * parameters.noise_range,
            "seed": seed,
            "matroid": _matroid(parameters),
        }
        return METHODS[parameters.method].start(**options)

    def ask(self, state: State, count: int) -> tuple[State, Sequence[Pull]]:
        return ask_tell.ask(state, count)

    def tell(self, state: State, results: Sequence[tuple[int, float]]) -> State:
        return ask_tell.tell(state, results)


def _matroid(parameters: SlateParameters) -> PartitionMatroid | None:
    if parameters.rules is None:
        return None
    return partition(parameters.arms, parameters.metadata or {}, parameters.rules, parameters.k)


async def create(
    slates: SlateCampaigns, catalogues: Catalogues, name: str, parameters: SlateParameters, seed: int | None
) -> tuple[SlateCampaign, bool]:
    """Make a campaign, as ``Campaigns.create``, with the metadata that its rules need.

    A campaign keeps the metadata that it was made with. So one that is asked for again is the same one, also
    when the arms of its catalogue have changed. Raises NotFound (the catalogue), Conflict, Invalid.
    """
    rules = parameters.rules
    if rules is not None:
        metadata = await _metadata(slates, catalogues, name, parameters, rules)
        parameters = msgspec.structs.replace(parameters, metadata=metadata)
    return await slates.create(name, parameters, seed=seed)


async def _metadata(
    slates: SlateCampaigns, catalogues: Catalogues, name: str, wanted: SlateParameters, rules: SlateRules
) -> dict[str, dict[str, Value]]:
    if wanted.catalogue is None:
        return given(wanted.arms, wanted.metadata or {}, rules)
    with suppress(NotFound):
        known = (await slates.get(name)).parameters
        if msgspec.structs.replace(known, metadata=None) == wanted:
            return known.metadata or {}
    return await stored(catalogues, wanted.catalogue, wanted.arms, rules)


async def best_slate(slates: SlateCampaigns, name: str) -> list[str]:
    """The slate that a campaign has found. Raises NotFound, Conflict (it is still sampling)."""
    return standing(finished(await slates.get(name))).best


def finished(campaign: SlateCampaign) -> SlateCampaign:
    """Return the campaign. Raises Conflict while it is sampling."""
    if not campaign.state.done:
        raise Conflict("the slate campaign is still sampling")
    return campaign


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a campaign stands, in the ids of its arms.

    ``best`` is the best slate by estimate, its best arm first. Its mean total is in [lower, upper], and no
    slate exceeds it by more than ``excess``. About ``more_pulls`` results are missing. All of this is of the
    last look, which was after ``looked_at`` results.
    """

    best: list[str]
    estimates: dict[str, float]
    lower: float | None
    upper: float | None
    excess: float | None
    more_pulls: int | None
    looked_at: int
    warnings: list[str]
    guarantee: Literal["pac", "none"]


def standing(campaign: SlateCampaign) -> Standing:
    """Report the last look. Before the first nothing is estimated."""
    parameters, state = campaign.parameters, campaign.state
    report = state.report
    proven = parameters.bound in METHODS[parameters.method].proven
    guarantee: Literal["pac", "none"] = "pac" if proven else "none"
    if report is None:
        return Standing([], {}, None, None, None, None, 0, [], guarantee)
    order = report.best[np.argsort(-report.theta[report.best], kind="stable")]
    return Standing(
        best=[parameters.arms[arm] for arm in order.tolist()],
        estimates=dict(zip(parameters.arms, report.theta.tolist(), strict=True)),
        lower=report.lower,
        upper=report.upper,
        excess=report.excess,
        more_pulls=report.more_pulls,
        looked_at=report.observed,
        warnings=_warnings(parameters, state, report),
        guarantee=guarantee,
    )


def _warnings(parameters: SlateParameters, state: State, report: Report) -> list[str]:
    field = "noise_std" if parameters.noise_range is None else "noise_range"
    found = []
    if state.outside:
        found.append(
            f"{state.outside} or more totals are farther from their mean than noise_range allows: "
            "the guarantee does not cover them"
        )
    if state.design.criterion > _WIDE * len(parameters.arms):
        found.append("allocation g may need twice the totals of uniform: its support is small for all slates")
    free = report.observed - len(parameters.arms)
    if free >= _ENOUGH and report.spread * report.observed / free > _NOISY * parameters.sigma**2:
        found.append(f"totals vary more than {field} says: the guarantee may not hold")
    return found
