"""/v1/slates: campaigns that find the k best arms from totals of slates."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from app.api.reward_schemas import ReceiptView
from app.api.rewards import receipt_reply
from app.api.schemas import Page, PageLimit
from app.api.services import BanditsDep, RewardsDep, SlatesDep, SlateWarmStartDep
from app.api.slates_schemas import (
    AskBody,
    BoundsView,
    ProgressView,
    PullsView,
    SlateBody,
    SlateGuaranteeView,
    SlateName,
    SlateView,
    TeachBody,
    TellBody,
    ToldView,
)
from app.api.strict_json import JsonRoute, reply
from app.services.campaigns.slates import SlateCampaign, SlateParameters, standing

router = APIRouter(prefix="/v1/slates", tags=["slates"], route_class=JsonRoute)


@router.post("", status_code=201, response_model=SlateView)
async def create(body: SlateBody, slates: SlatesDep) -> Response:
    """Make a campaign: 201 made, 200 the same one exists, 409 another one exists."""
    parameters = SlateParameters(**body.model_dump(exclude={"id", "seed"}))
    campaign, new = await slates.create(body.id, parameters, seed=body.seed)
    return reply(_view(campaign), 201 if new else 200)


@router.get("", response_model=Page[SlateName])
async def list_all(
    slates: SlatesDep,
    cursor: Annotated[str | None, Query()] = None,
    limit: Annotated[PageLimit, Query()] = 100,
) -> Page[SlateName]:
    """All campaigns by id."""
    page, following = await slates.page(cursor, limit)
    return Page(items=[SlateName(id=name) for name in page], next=following)


@router.get("/{campaign}", response_model=SlateView)
async def get(campaign: str, slates: SlatesDep) -> SlateView:
    """Where a campaign stands: what the last look at its results saw."""
    return _view(await slates.get(campaign))


@router.delete("/{campaign}", status_code=204)
async def delete(campaign: str, slates: SlatesDep) -> Response:
    """Delete a campaign with its results."""
    await slates.delete(campaign)
    return Response(status_code=204)


@router.post("/{campaign}/ask", response_model=PullsView)
async def ask(campaign: str, body: AskBody, slates: SlatesDep) -> Response:
    """Ask which slates to show next; none when the campaign is done."""
    found, pulls = await slates.ask(campaign, body.count)
    arms = found.parameters.arms
    shown = [{"pull": found.pull_id(p.number), "slate": [arms[arm] for arm in p.slate]} for p in pulls]
    return reply({"pulls": shown, "done": found.state.done})


@router.post("/{campaign}/tell", response_model=ToldView)
async def tell(campaign: str, body: TellBody, slates: SlatesDep) -> Response:
    """Tell totals, in any order; of a pull that was told before the first total counts."""
    results = [(item.pull, item.total) for item in body.results]
    found, receipt = await slates.tell(campaign, results)
    answer = {
        "observed": receipt.observed,
        "duplicate": receipt.duplicate,
        "done": found.state.done,
        "outside": found.state.outside,
    }
    return reply(answer)


@router.post("/{campaign}/teach", status_code=202, response_model=ReceiptView)
async def teach(
    campaign: str,
    body: TeachBody,
    *,
    slates: SlatesDep,
    bandits: BanditsDep,
    warm_start: SlateWarmStartDep,
    rewards: RewardsDep,
    wait: Annotated[Literal["applied"] | None, Query()] = None,
) -> Response:
    """Warm start of a learner: it takes up, once, all that a finished campaign found out about features."""
    receipt = await warm_start.append(await slates.get(campaign), await bandits.get(body.bandit), body.key)
    return await receipt_reply(rewards, receipt, wait)


def _view(campaign: SlateCampaign) -> SlateView:
    parameters, state, now = campaign.parameters, campaign.state, standing(campaign)
    return SlateView(
        id=campaign.name,
        state="done" if state.done else "sampling",
        observed=state.observed,
        best=now.best,
        estimates=now.estimates,
        bounds=BoundsView(lower=now.lower, upper=now.upper),
        progress=ProgressView(
            asked=state.issued,
            looked_at=now.looked_at,
            next_look=None if state.done else state.next_look,
            excess=now.excess,
            more_pulls=now.more_pulls,
        ),
        outside=state.outside,
        warnings=now.warnings,
        guarantee=SlateGuaranteeView(kind=now.guarantee, epsilon=parameters.epsilon, delta=parameters.delta),
        k=parameters.k,
        arms=parameters.arms,
        method=parameters.method,
        allocation=parameters.allocation,
        bound=parameters.bound,
        noise_range=parameters.noise_range,
        noise_std=parameters.noise_std,
        independent_noise=parameters.independent_noise,
    )
