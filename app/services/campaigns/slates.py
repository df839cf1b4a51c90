"""Slate campaigns: the algorithms of ``shortlist.slates`` over arms that have ids.

Their stopping rule is tested after t_1, t_2, ... results, numbers fixed in advance: each test is a look.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec
import numpy as np

from app.errors import Conflict, NotFound
from app.filters.fields import Value
from app.services.campaigns.campaigns import Campaigns
from app.services.campaigns.fold import Campaign
from app.services.campaigns.records import options_of
from app.services.campaigns.slate_rules import SlateRules, given, partition, stored
from app.services.catalogues.catalogues import Catalogues
from app.services.formats.ids import refuse_repeats
from shortlist.slates import ask_tell, exhaustive, icb, sa_foa, saqm
from shortlist.slates.allocation import Allocation
from shortlist.slates.ask_tell import Pull
from shortlist.slates.campaign_state import SlateMethod, SlateOptions, SlateReport, SlateState
from shortlist.slates.matroids import PartitionMatroid
from shortlist.slates.widths import Bound

# Warnings: totals vary this much more than the noise that was stated; this many degrees of freedom are enough
# to say so; the allocation is this much worse than uniform by the G-criterion.
_NOISY = 1.5
_ENOUGH = 50
_WIDE = 2.0


class SlateParameters(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a campaign is made with; see ``campaign_state.SlateOptions``. Stored as a map.

    ``rules`` say which slates are allowed; None: all. ``metadata`` has the value of their field of each arm
    that has one, as it was when the campaign was made; it was given, or came from ``catalogue``.
    Exactly one of ``noise_range`` and ``noise_std`` is given. ``noise_range`` R: the noise of one arm lies in
    [-R, R], and ``independent_noise`` says that the arms of a slate err independently. ``noise_std``: the
    sub-Gaussian parameter of the noise of a total.
    """

    arms: list[str]
    k: int
    method: SlateMethod
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


SlateCampaign = Campaign[SlateParameters, SlateState]
SlateCampaigns = Campaigns[SlateParameters, SlateState, Pull]


@dataclass(frozen=True, slots=True)
class SlateStart:
    """A row of ``METHODS``: how a campaign starts, and the bounds for which its answer is proven.

    How it goes on is in ``ask_tell``.
    """

    start: Callable[..., SlateState]
    proven: frozenset[Bound] = frozenset(("certified", "paper"))


METHODS: Mapping[SlateMethod, SlateStart] = {
    "saqm": SlateStart(saqm.start),
    "sa_foa": SlateStart(sa_foa.start, proven=frozenset(("certified",))),
    "icb": SlateStart(icb.start),
    "exhaustive": SlateStart(exhaustive.start),
}


class Slates:
    """The ask/tell algorithm of all four methods, for ``Campaigns``."""

    kind = "slates"
    pull = "pull"
    parameters = SlateParameters
    state = SlateState

    def start(self, parameters: SlateParameters, seed: int) -> SlateState:
        refuse_repeats(parameters.arms, "an arm must not appear twice", ("arms",))
        options = options_of(parameters, SlateOptions.__annotations__) | {
            "n": len(parameters.arms),
            "noise_std": parameters.sigma,  # of a total, also where the noise of an arm was given
            "reach": None if parameters.noise_range is None else parameters.k * parameters.noise_range,
            "seed": seed,
            "matroid": _matroid(parameters),
        }
        return METHODS[parameters.method].start(**options)

    def ask(self, state: SlateState, count: int) -> tuple[SlateState, Sequence[Pull]]:
        return ask_tell.ask(state, count)

    def tell(self, state: SlateState, results: Sequence[tuple[int, float]]) -> SlateState:
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
    slates: SlateCampaigns, catalogues: Catalogues, name: str, parameters: SlateParameters, rules: SlateRules
) -> dict[str, dict[str, Value]]:
    if parameters.catalogue is None:
        return given(parameters.arms, parameters.metadata or {}, rules)
    with suppress(NotFound):
        known = (await slates.get(name)).parameters
        if msgspec.structs.replace(known, metadata=None) == parameters:
            return known.metadata or {}
    return await stored(catalogues, parameters.catalogue, parameters.arms, rules)


async def best_slate(slates: SlateCampaigns, name: str) -> Sequence[str]:
    """The slate that a campaign has found. Raises NotFound, Conflict (it is still sampling)."""
    return standing(finished(await slates.get(name))).best


def finished(campaign: SlateCampaign) -> SlateCampaign:
    """Return the campaign. Raises Conflict while it is sampling."""
    if not campaign.state.done:
        raise Conflict("the slate campaign is still sampling")
    return campaign


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a campaign stands, in the ids of its arms: ``asked`` pulls, ``observed`` results.

    ``best`` is the best slate by estimate, its best arm first. Its mean total is in [lower, upper], and no
    slate exceeds it by more than ``excess``. About ``more_pulls`` results are missing. All of this is of the
    last look, which was after ``looked_at`` results; before the first nothing is estimated. ``outside``: see
    ``SlateState``.
    """

    state: Literal["sampling", "done"]
    asked: int
    observed: int
    outside: int
    next_look: int | None
    guarantee: Literal["pac", "none"]
    best: Sequence[str] = ()
    estimates: Mapping[str, float] = field(default_factory=dict)
    lower: float | None = None
    upper: float | None = None
    excess: float | None = None
    more_pulls: int | None = None
    looked_at: int = 0
    warnings: Sequence[str] = ()


def standing(campaign: SlateCampaign) -> Standing:
    """Report the last look."""
    parameters, state = campaign.parameters, campaign.state
    report = state.report
    now = Standing(
        state="done" if state.done else "sampling",
        asked=state.issued,
        observed=state.observed,
        outside=state.outside,
        next_look=None if state.done else state.next_look,
        guarantee="pac" if parameters.bound in METHODS[parameters.method].proven else "none",
    )
    if report is None:
        return now
    order = report.best[np.argsort(-report.theta[report.best], kind="stable")]
    return replace(
        now,
        best=[parameters.arms[arm] for arm in order.tolist()],
        estimates=dict(zip(parameters.arms, report.theta.tolist(), strict=True)),
        lower=report.lower,
        upper=report.upper,
        excess=report.excess,
        more_pulls=report.more_pulls,
        looked_at=report.observed,
        warnings=_warnings(parameters, state, report),
    )


def _warnings(parameters: SlateParameters, state: SlateState, report: SlateReport) -> list[str]:
    field = "noise_std" if parameters.noise_range is None else "noise_range"
    warnings = []
    if state.outside:
        warnings.append(
            f"{state.outside} or more totals are farther from their mean than noise_range allows: "
            "the guarantee does not cover them"
        )
    if state.design.criterion > _WIDE * len(parameters.arms):
        warnings.append(
            "allocation g may need twice the totals of uniform: its support is small for all slates"
        )
    free = report.observed - len(parameters.arms)
    if free >= _ENOUGH and report.spread * report.observed / free > _NOISY * parameters.sigma**2:
        warnings.append(f"totals vary more than {field} says: the guarantee may not hold")
    return warnings
