"""/v1/slates: campaigns that find the k best arms from totals of slates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from pydantic import AfterValidator, BaseModel, Field, StringConstraints, ValidationInfo, field_validator

from shortlist_campaigns import campaign_limits as limits
from shortlist_campaigns.campaign_settings import CampaignSettings
from shortlist_campaigns.campaigns import CampaignName, Campaigns
from shortlist_campaigns.fold import options_of
from shortlist_campaigns.slate_warm_start import teach_bandit
from shortlist_campaigns.slates import (
    BestSlates,
    SlateCampaign,
    SlateCampaigns,
    SlateParameters,
    SlateRules,
    Slates,
    standing,
)
from shortlist_campaigns.slates import create as create_campaign
from shortlist_service.errors import Invalid, named_by
from shortlist_service.routes import (
    SEVERAL_CALLS,
    Answer,
    AtMostBody,
    AttributesView,
    Bandits,
    Catalogues,
    Cursor,
    Delta,
    Identifier,
    Limit,
    Page,
    Provided,
    Query,
    ReceiptView,
    Response,
    Rewards,
    RouteDependencies,
    Routes,
    Seed,
    StrictModel,
    Value,
    WarmStart,
    json_router,
    problems,
    receipt_reply,
    reply,
    storable,
)

router = json_router(prefix="/v1/slates", tags=["slates"])

Scale = Annotated[float, Field(ge=1e-9, le=limits.MAX_VALUE)]


class SlateRulesBody(StrictModel):
    """``at_most`` limits how many arms of one slate share a value of a field, as in a choice."""

    at_most: Annotated[list[AtMostBody], Field(min_length=1, fail_fast=True)]

    @field_validator("at_most")
    @classmethod
    def _one_rule(cls, at_most: list[AtMostBody]) -> list[AtMostBody]:
        if len(at_most) > 1:
            raise ValueError("a campaign takes one rule: slates under two rules are not a matroid")
        return at_most


class SlateBody(StrictModel):
    """``noise_range`` R: the noise of each arm lies in [-R, R]. ``noise_std``: sub-Gaussian parameter of the
    noise of a total. One of the two must be given; ``independent_noise`` says that the arms of a slate err
    independently, and goes with ``noise_range``.

    ``rules`` say which slates are allowed, by a field of the arms: that of ``metadata``, by arm, or that of
    the arms of ``catalogue`` as they are when the campaign is made. With rules ``method`` is icb when absent.
    """

    max_bytes: ClassVar[int] = limits.MAX_VECTOR_BYTES

    id: Identifier
    arms: Annotated[list[Identifier], Field(min_length=2, max_length=limits.MAX_SLATE_ARMS)]
    k: Annotated[int, Field(ge=1, le=limits.MAX_SLATE_ARMS)]
    method: Literal["saqm", "sa_foa", "icb", "exhaustive"] = "sa_foa"
    epsilon: Scale = 0.5
    delta: Delta = 0.05
    noise_range: Scale | None = None
    noise_std: Annotated[Scale | None, Field(validate_default=True)] = None
    independent_noise: bool = False
    allocation: Literal["uniform", "g", "xy"] = "uniform"
    bound: Literal["certified", "paper"] = "certified"
    rules: SlateRulesBody | None = None
    catalogue: Identifier | None = None
    metadata: Annotated[
        dict[Identifier, Annotated[dict[str, Any], AfterValidator(storable)]] | None,
        Field(validate_default=True),
    ] = None
    seed: Seed | None = None

    @field_validator("noise_std")
    @classmethod
    def _one_noise(cls, noise_std: float | None, fields: ValidationInfo) -> float | None:
        if "noise_range" in fields.data and (fields.data["noise_range"] is None) == (noise_std is None):
            raise ValueError("exactly one of noise_range and noise_std must be given")
        return noise_std

    @field_validator("independent_noise")
    @classmethod
    def _goes_with_range(cls, independent_noise: bool, fields: ValidationInfo) -> bool:
        if independent_noise and "noise_range" in fields.data and fields.data["noise_range"] is None:
            raise ValueError("independent_noise goes with noise_range: noise_std is that of the total")
        return independent_noise

    @field_validator("metadata")
    @classmethod
    def _one_source(
        cls, metadata: dict[str, dict[str, Any]] | None, fields: ValidationInfo
    ) -> dict[str, dict[str, Any]] | None:
        if not {"rules", "catalogue"} <= fields.data.keys():
            return metadata
        sources = (fields.data["catalogue"] is not None) + (metadata is not None)
        if fields.data["rules"] is None and sources:
            raise ValueError("catalogue and metadata go with rules, which say what they are for")
        if fields.data["rules"] is not None and sources != 1:
            raise ValueError("rules need exactly one of catalogue and metadata: the fields of the arms")
        return metadata

    @property
    def chosen_method(self) -> str:
        """The default is the one that needs the fewest totals of those that keep the rules."""
        return "icb" if self.rules is not None and "method" not in self.model_fields_set else self.method


class AskBody(StrictModel):
    count: Annotated[int, Field(ge=1, le=limits.MAX_ASKED)] = 1


class ResultItem(StrictModel):
    pull: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    total: Value


class TellBody(StrictModel):
    max_bytes: ClassVar[int] = limits.MAX_IDS_BYTES
    instead: ClassVar[str] = SEVERAL_CALLS
    long_list: ClassVar[str] = "results"

    results: Annotated[list[ResultItem], Field(min_length=1, max_length=limits.MAX_ASKED)]


class TeachBody(StrictModel):
    """``key`` is required by a bandit of scope per_key, and refused by others."""

    bandit: Identifier
    key: Identifier | None = None


class BoundsView(AttributesView):
    """The mean total of ``best`` lies between these, with probability 1 - delta over the whole campaign."""

    lower: float | None
    upper: float | None


class ProgressView(AttributesView):
    """``asked`` pulls so far. The last look was at the first ``looked_at`` results, the next is at
    ``next_look``. No slate exceeds ``best`` by more than ``excess``, with the confidence of the campaign; it
    ends when that is at most epsilon, after about ``more_pulls`` more results.
    """

    asked: int
    looked_at: int
    next_look: int | None
    excess: float | None
    more_pulls: int | None


class SlateGuaranteeView(AttributesView):
    kind: Literal["pac", "none"]
    epsilon: float
    delta: float


class SlateView(BaseModel):
    """The state of a campaign. ``best`` and ``estimates`` are those of the last look; empty before the first.
    ``rules``: which slates are allowed, null: all. ``metadata`` has the fields of the campaign's rules, as of
    the creation.
    """

    id: str
    state: Literal["sampling", "done"]
    observed: int
    best: list[str]
    estimates: dict[str, float]
    bounds: BoundsView
    progress: ProgressView
    outside: int
    warnings: list[str]
    guarantee: SlateGuaranteeView
    k: int
    arms: list[str]
    method: str
    allocation: str
    bound: str
    noise_range: float | None
    noise_std: float | None
    independent_noise: bool
    rules: SlateRulesBody | None
    catalogue: str | None
    metadata: dict[str, dict[str, str | bool | int | float]] | None


class PullView(Answer, frozen=True):
    """Show ``slate``, and tell its total under the name ``pull``."""

    pull: str
    slate: list[str]


class PullsView(Answer, frozen=True):
    """None, and ``done``, when the campaign has ended."""

    pulls: list[PullView]
    done: bool


class SlateToldView(Answer, frozen=True):
    """``observed`` and ``duplicate`` count the results of this call, ``outside`` totals of the campaign."""

    observed: int
    duplicate: int
    done: bool
    outside: int


@router.post(
    "", status_code=201, response_model=SlateView, responses={**problems(409, 429), 200: {"model": SlateView}}
)
async def create(
    body: SlateBody, slates: Provided[SlateCampaigns], catalogues: Provided[Catalogues]
) -> Response:
    """Make a campaign: 201 made, 200 the same one exists, 409 another one exists."""
    fields = body.model_dump(exclude={"id", "seed"}) | {"method": body.chosen_method}
    fields["rules"] = msgspec.convert(fields["rules"], SlateRules | None)
    campaign, new = await create_campaign(slates, catalogues, body.id, SlateParameters(**fields), body.seed)
    return reply(_view(campaign), 201 if new else 200)


@router.get("", response_model=Page[CampaignName])
async def list_all(
    slates: Provided[SlateCampaigns], cursor: Cursor = None, limit: Limit = 100
) -> Page[CampaignName]:
    """All campaigns by id."""
    page, following = await slates.page(cursor, limit)
    return Page(items=[CampaignName(id=name) for name in page], next=following)


@router.get("/{campaign}", response_model=SlateView)
async def get(campaign: str, slates: Provided[SlateCampaigns]) -> SlateView:
    """The state of a campaign, as of the last look at its results."""
    return _view(await slates.get(campaign))


@router.delete("/{campaign}", status_code=204)
async def delete(campaign: str, slates: Provided[SlateCampaigns]) -> None:
    """Delete a campaign with its results."""
    await slates.delete(campaign)


@router.post("/{campaign}/ask", response_model=PullsView, responses=problems(429))
async def ask(campaign: str, body: AskBody, slates: Provided[SlateCampaigns]) -> PullsView:
    """Ask which slates to show next; none when the campaign is done."""
    most = limits.MAX_ASKED_ARMS // (await slates.get(campaign)).parameters.k
    if body.count > most:
        message = f"count x k must be at most {limits.MAX_ASKED_ARMS:,}, so count at most {most:,}"
        raise Invalid(message, path=("count",))
    asked, pulls = await slates.ask(campaign, body.count)
    arms = asked.parameters.arms
    shown = [PullView(asked.pull_id(pull.number), [arms[arm] for arm in pull.slate]) for pull in pulls]
    return PullsView(shown, asked.state.done)


@router.post("/{campaign}/tell", response_model=SlateToldView, responses=problems(429))
async def tell(campaign: str, body: TellBody, slates: Provided[SlateCampaigns]) -> SlateToldView:
    """Tell totals, in any order; of a pull that was told before the first total counts."""
    told, receipt = await slates.tell(campaign, [(item.pull, item.total) for item in body.results])
    return SlateToldView(receipt.observed, receipt.duplicate, told.state.done, told.state.outside)


@router.post(
    "/{campaign}/teach",
    status_code=202,
    response_model=ReceiptView,
    responses={**problems(409), 200: {"model": ReceiptView}},
)
async def teach(
    campaign: str,
    body: TeachBody,
    *,
    slates: Provided[SlateCampaigns],
    bandits: Provided[Bandits],
    warm_start: Provided[WarmStart],
    rewards: Provided[Rewards],
    wait: Annotated[Literal["applied"] | None, Query()] = None,
) -> Response:
    """Warm start of a learner: it takes up, once, all that a finished campaign found out about features."""
    campaign_found = await slates.get(campaign)
    with named_by("bandit"):
        bandit = await bandits.ready(body.bandit)
    receipt = await teach_bandit(warm_start, campaign_found, bandit, body.key)
    return await receipt_reply(rewards, receipt, wait)


def _view(campaign: SlateCampaign) -> SlateView:
    parameters, state = campaign.parameters, standing(campaign)
    return SlateView.model_validate(
        options_of(parameters, SlateView.model_fields)
        | asdict(state)
        | {
            "id": campaign.name,
            "bounds": state,
            "progress": state,
            "guarantee": {"kind": state.guarantee, "epsilon": parameters.epsilon, "delta": parameters.delta},
            "rules": msgspec.to_builtins(parameters.rules),
        }
    )


class SlateCalls(Routes):
    """``/v1/slates``, and the slates that ``baseline`` of a choice names."""

    router = router
    scopes: ClassVar[Mapping[str, str]] = {
        "GET": "read",
        "POST /{campaign}/ask": "choose",
        "POST /{campaign}/tell": "observe",
    }
    examples: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "POST": {"id": "example", "arms": ["art", "books", "cars"], "k": 2, "noise_std": 0.5},
        "POST /{campaign}/ask": {"count": 5},
        "POST /{campaign}/tell": {"results": [{"pull": "the pull of a slate", "total": 1.5}]},
    }

    def services(self, dependencies: RouteDependencies) -> Mapping[str, object]:
        capacity_bytes = CampaignSettings().campaign_cache_mb << 20
        slates: SlateCampaigns = Campaigns(dependencies.event_logs, Slates(), capacity_bytes=capacity_bytes)
        return {"slates": slates, "best_slates": BestSlates(slates)}
