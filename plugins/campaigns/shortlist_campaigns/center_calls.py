"""/v1/centers: k representative points, while others answer, with noise, how far apart two points are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field

from shortlist_campaigns.campaign_limits import (
    MAX_ASKED,
    MAX_CENTER_PAIRS,
    MAX_CENTER_POINTS,
    MAX_IDS_BYTES,
    MAX_K,
)
from shortlist_campaigns.campaign_settings import CampaignSettings
from shortlist_campaigns.campaigns import CampaignName, Campaigns
from shortlist_campaigns.catalogue_calls import CenterGuaranteeView
from shortlist_campaigns.noisy_centers import (
    CenterCampaign,
    CenterCampaigns,
    CenterParameters,
    NoisyCenters,
    answer,
)
from shortlist_service.errors import Invalid
from shortlist_service.routes import (
    SEVERAL_CALLS,
    Answer,
    Cursor,
    Delta,
    Identifier,
    Limit,
    Page,
    Provided,
    Response,
    RouteDependencies,
    Routes,
    Seed,
    StrictModel,
    Value,
    json_router,
    problems,
    reply,
)
from shortlist_service.work import REQUESTS

router = json_router(prefix="/v1/centers", tags=["centers"])


class CenterCampaignBody(StrictModel):
    """``noise_std`` absent: estimated; ``epsilon`` absent: a tenth of the noise's standard deviation.

    ``epsilon`` is on the scale of the distances. ``mix`` is used by ns_ts, ``threshold`` by ns_tands.
    """

    max_bytes: ClassVar[int] = MAX_IDS_BYTES
    long_list: ClassVar[str] = "points"

    id: Identifier
    points: Annotated[list[Identifier], Field(min_length=1, max_length=MAX_CENTER_POINTS)]
    k: Annotated[int, Field(ge=1, le=MAX_K)]
    method: Literal["ns_ts", "ns_ucb", "ns_tands"] = "ns_ts"
    noise: Literal["gaussian", "bernoulli"] = "gaussian"
    noise_std: Annotated[float, Field(ge=1e-9, le=1e9)] | None = None
    delta: Delta = 0.1
    epsilon: Annotated[float, Field(ge=0, le=1e9)] | None = None
    mix: Annotated[float, Field(ge=0, le=1)] = 0.9
    threshold: Literal["proven", "heuristic"] = "proven"
    first: Identifier | None = None
    seed: Seed | None = None


class AskQueriesBody(StrictModel):
    count: Annotated[int, Field(ge=1, le=MAX_ASKED)] = 100


class DistanceItem(StrictModel):
    query: Annotated[str, Field(min_length=1, max_length=64)]
    distance: Value


class TellDistancesBody(StrictModel):
    max_bytes: ClassVar[int] = MAX_IDS_BYTES
    instead: ClassVar[str] = SEVERAL_CALLS
    long_list: ClassVar[str] = "results"

    results: Annotated[list[DistanceItem], Field(min_length=1, max_length=MAX_ASKED)]


class QueryView(Answer, frozen=True):
    """Asks how far apart the two points of ``pair`` are."""

    query: str
    pair: list[str]


class QueriesView(Answer, frozen=True):
    """None, and ``done``, when the campaign has ended."""

    queries: list[QueryView]
    done: bool


class CenterToldView(BaseModel):
    """New results, results that were there already, and whether all centres are found."""

    observed: int
    duplicate: int
    done: bool


class CenterCampaignView(BaseModel):
    """The state of a campaign. ``radius`` is estimated from the answers, for all centres but the last."""

    id: str
    method: str
    k: int
    points: int
    state: Literal["sampling", "done"]
    issued: int
    observed: int
    centers: list[str]
    radius: float | None
    guarantee: CenterGuaranteeView


@router.post(
    "",
    status_code=201,
    response_model=CenterCampaignView,
    responses={**problems(409, 429), 200: {"model": CenterCampaignView}},
)
async def create(body: CenterCampaignBody, center_campaigns: Provided[CenterCampaigns]) -> Response:
    """Make a campaign: 201 made, 200 the same one exists, 409 another one exists."""
    if len(body.points) * body.k > MAX_CENTER_PAIRS:
        raise Invalid(f"points x k must not be more than {MAX_CENTER_PAIRS:,}", path=())
    parameters = CenterParameters(**body.model_dump(exclude={"id", "seed"}))
    campaign, new = await center_campaigns.create(body.id, parameters, seed=body.seed)
    return reply(await _view(campaign), 201 if new else 200)


@router.get("", response_model=Page[CampaignName])
async def list_all(
    center_campaigns: Provided[CenterCampaigns], cursor: Cursor = None, limit: Limit = 100
) -> Page[CampaignName]:
    """All campaigns by id."""
    page, following = await center_campaigns.page(cursor, limit)
    return Page(items=[CampaignName(id=name) for name in page], next=following)


@router.post("/{campaign}/ask", response_model=QueriesView, responses=problems(429))
async def ask(
    campaign: str, body: AskQueriesBody, center_campaigns: Provided[CenterCampaigns]
) -> QueriesView:
    """Ask for pairs of points whose distance should be measured next; none when all centres are found."""
    asked, queries = await center_campaigns.ask(campaign, body.count)
    points = asked.parameters.points
    shown = [
        QueryView(asked.pull_id(query.number), [points[point] for point in query.pair]) for query in queries
    ]
    return QueriesView(shown, asked.state.done)


@router.post("/{campaign}/tell", response_model=CenterToldView, responses=problems(429))
async def tell(
    campaign: str, body: TellDistancesBody, center_campaigns: Provided[CenterCampaigns]
) -> CenterToldView:
    """Tell measured distances, in any order, late or again; all are taken or none."""
    told, receipt = await center_campaigns.tell(
        campaign, [(item.query, item.distance) for item in body.results]
    )
    return CenterToldView(observed=receipt.observed, duplicate=receipt.duplicate, done=told.state.done)


@router.get("/{campaign}", response_model=CenterCampaignView)
async def get(campaign: str, center_campaigns: Provided[CenterCampaigns]) -> CenterCampaignView:
    """The centres found so far."""
    return await _view(await center_campaigns.get(campaign))


@router.delete("/{campaign}", status_code=204)
async def delete(campaign: str, center_campaigns: Provided[CenterCampaigns]) -> None:
    """Delete a campaign."""
    await center_campaigns.delete(campaign)


async def _view(campaign: CenterCampaign) -> CenterCampaignView:
    progress, parameters = await REQUESTS.run(partial(answer, campaign)), campaign.parameters
    return CenterCampaignView.model_validate(
        {
            "id": campaign.name,
            "method": parameters.method,
            "k": parameters.k,
            "points": len(parameters.points),
            "state": "done" if progress.done else "sampling",
            "issued": progress.issued,
            "observed": progress.observed,
            "centers": [parameters.points[point] for point in progress.centers],
            "radius": progress.radius,
            "guarantee": progress.guarantee,
        }
    )


class CenterCalls(Routes):
    """``/v1/centers``."""

    router = router
    scopes: ClassVar[Mapping[str, str]] = {
        "GET": "read",
        "POST /{campaign}/ask": "choose",
        "POST /{campaign}/tell": "observe",
    }

    def services(self, dependencies: RouteDependencies) -> Mapping[str, object]:
        capacity_bytes = CampaignSettings().campaign_cache_mb << 20
        campaigns: CenterCampaigns = Campaigns(
            dependencies.event_logs, NoisyCenters(), capacity_bytes=capacity_bytes
        )
        return {"center_campaigns": campaigns}
