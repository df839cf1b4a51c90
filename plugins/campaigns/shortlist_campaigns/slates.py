"""Slate campaigns: which k arms earn most together, found by ``shortlist.slates`` from totals.

The algorithms know arms as numbers; here they have ids, and rules. A rule limits how many arms of one slate
may share a value of a field. One such rule makes the slates the bases of a partition matroid, whose groups
are the arms of equal value; an arm without the field is a group of its own, so no rule keeps it out. Two
rules, or an arm with several values, would give no matroid, so neither is accepted.

A campaign tests whether it can stop after t_1, t_2, ... results, numbers fixed in advance. Such a test is a
"look".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec
import numpy as np

from shortlist.slates import ask_tell, exhaustive, icb, sa_foa, saqm
from shortlist.slates.allocation import Allocation
from shortlist.slates.ask_tell import Pull
from shortlist.slates.campaign_state import SlateMethod, SlateOptions, SlateReport, SlateState
from shortlist.slates.matroids import PartitionMatroid
from shortlist.slates.widths import Bound
from shortlist_campaigns.campaigns import Campaigns
from shortlist_campaigns.fold import MOST_NAMED, Campaign, options_of
from shortlist_service.arm_lists import ArmList
from shortlist_service.catalogues import Catalogue, Catalogues, FieldValue, fields_of, kind_of, no_arm_has
from shortlist_service.errors import Conflict, FieldPath, Invalid, NotFound, named_by
from shortlist_service.routes import refuse_repeats

Metadata = Mapping[str, Mapping[str, Any]]


class AtMostRule(msgspec.Struct, frozen=True):
    """At most ``count`` arms of one slate share a value of ``field``."""

    field: str
    count: int


class SlateRules(msgspec.Struct, frozen=True):
    """``at_most`` has one rule."""

    at_most: list[AtMostRule]

    @property
    def rule(self) -> AtMostRule:
        return self.at_most[0]


def partition(arms: Sequence[str], metadata: Metadata, rules: SlateRules, k: int) -> PartitionMatroid:
    """The slates that a rule allows. ``metadata`` is as ``given`` and ``stored`` return it.

    Groups are numbered in the order of their first arms.
    """
    rule, numbers = rules.rule, dict[object, int]()
    groups, limits = [], []
    for arm in arms:
        value = metadata[arm][rule.field] if arm in metadata else None
        kind = kind_of(value)
        label: object = arm if kind is None else (kind, value)  # else True would equal 1
        if label not in numbers:
            numbers[label] = len(numbers)
            limits.append(1 if kind is None else rule.count)
        groups.append(numbers[label])
    return PartitionMatroid(tuple(groups), tuple(limits), k)


def given(arms: Sequence[str], metadata: Metadata, rules: SlateRules) -> dict[str, dict[str, FieldValue]]:
    """The value of the rule's field of each arm that has one, out of metadata as a body gives it.

    Raises Invalid: metadata of other arms, an arm with several values, a field that no arm has.
    """
    if not metadata.keys() <= set(arms):
        raise Invalid("metadata must name arms of the campaign", path=("metadata",))
    name = rules.rule.field
    values = [fields_of((), metadata.get(arm, {})).get(name, []) for arm in arms]
    return _of_one_value(arms, values, name)


async def stored(
    catalogues: Catalogues, name: str, arms: Sequence[str], rules: SlateRules
) -> dict[str, dict[str, FieldValue]]:
    """The same, out of the catalogue's arms as they are now.

    Raises NotFound (the catalogue), Invalid (also arms that it lacks).
    """
    field = rules.rule.field
    missing: list[int] = []

    async def read(catalogue: Catalogue) -> Sequence[Sequence[FieldValue]]:
        catalogue.need_arms("a campaign with rules")
        snapshot = catalogue.index.snapshot()
        rows = [snapshot.table.rows_of([arm]) for arm in arms]
        missing[:] = [position for position, row in enumerate(rows) if not len(row)]
        if missing:
            raise NotFound("arms are missing")
        return [[value for _, value in snapshot.attributes.values_of(field, row)[0]] for row in rows]

    try:
        return _of_one_value(arms, await catalogues.use(name, read), field)
    except NotFound:
        if not missing:
            raise
    text = "this arm is not in the catalogue"
    raise Invalid.many([(("arms", position), text) for position in missing[:MOST_NAMED]])


def _of_one_value(
    arms: Sequence[str], values: Sequence[Iterable[FieldValue]], field: str
) -> dict[str, dict[str, FieldValue]]:
    distinct = [
        list({(kind_of(value), value): value for value in values_of_arm}.values()) for values_of_arm in values
    ]
    errors: list[tuple[FieldPath, str]] = [
        (("arms", position), "has several values of the rule's field: groups must not overlap")
        for position, values_of_arm in enumerate(distinct)
        if len(values_of_arm) > 1
    ]
    if errors:
        raise Invalid.many(errors[:MOST_NAMED])
    metadata = {
        arm: {field: values_of_arm[0]}
        for arm, values_of_arm in zip(arms, distinct, strict=True)
        if values_of_arm
    }
    if not metadata:
        raise Invalid(no_arm_has(field), path=("rules", "at_most", 0, "field"))
    return metadata


# Warnings: totals vary this much more than the noise that was stated; this many degrees of freedom are enough
# to say so; the allocation is this much worse than uniform by the G-criterion.
_NOISY = 1.5
_ENOUGH = 50
_WIDE = 2.0


class SlateParameters(msgspec.Struct, frozen=True, omit_defaults=True):
    """The parameters of a campaign; see ``campaign_state.SlateOptions``. Stored as a map.

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
) -> dict[str, dict[str, FieldValue]]:
    if parameters.catalogue is None:
        return given(parameters.arms, parameters.metadata or {}, rules)
    with suppress(NotFound):
        parameters_known = (await slates.get(name)).parameters
        if msgspec.structs.replace(parameters_known, metadata=None) == parameters:
            return parameters_known.metadata or {}
    with named_by("catalogue"):
        return await stored(catalogues, parameters.catalogue, parameters.arms, rules)


class BestSlates(ArmList):
    """The slates that campaigns have found, as lists that a choice may ask for."""

    def __init__(self, slates: SlateCampaigns) -> None:
        self._slates = slates

    async def arms_of(self, name: str) -> Sequence[str]:
        """The slate of a campaign. Raises NotFound, Conflict (it is still sampling)."""
        return standing(finished(await self._slates.get(name))).best


def finished(campaign: SlateCampaign) -> SlateCampaign:
    """Return the campaign. Raises Conflict while it is sampling."""
    if not campaign.state.done:
        raise Conflict("the slate campaign has not finished sampling")
    return campaign


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a campaign, in the ids of its arms: ``asked`` pulls, ``observed`` results.

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
    progress = Standing(
        state="done" if state.done else "sampling",
        asked=state.issued,
        observed=state.observed,
        outside=state.outside,
        next_look=None if state.done else state.next_look,
        guarantee="pac" if parameters.bound in METHODS[parameters.method].proven else "none",
    )
    if report is None:
        return progress
    order = report.best[np.argsort(-report.theta[report.best], kind="stable")]
    return replace(
        progress,
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
