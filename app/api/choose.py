"""POST /v1/bandits/{b}/choose and choose/batch."""

from __future__ import annotations

from fastapi import APIRouter, Response

from app.api.schemas import ChoicesView, ChoiceView, ChooseBatchBody, ChooseBody
from app.api.services import BanditsDep, ChoosingDep, SlatesDep
from app.api.strict_json import JsonRoute, reply
from app.errors import within
from app.services.campaigns.slates import SlateCampaigns, best_slate
from app.services.choosing.choosing import ChooseRequest

router = APIRouter(prefix="/v1/bandits", tags=["choices"], route_class=JsonRoute)


@router.post("/{bandit}/choose", response_model=ChoiceView)
async def choose(
    bandit: str, body: ChooseBody, bandits: BanditsDep, choosing: ChoosingDep, slates: SlatesDep
) -> Response:
    """Choose up to k arms, the best first, and return the token to reward them with."""
    return reply(await choosing.choose(await bandits.get(bandit), await _request(body, slates)))


@router.post("/{bandit}/choose/batch", response_model=ChoicesView)
async def choose_batch(
    bandit: str, body: ChooseBatchBody, bandits: BanditsDep, choosing: ChoosingDep, slates: SlatesDep
) -> Response:
    """Choose for several requests at once; an error of one is the error of all."""
    owner = await bandits.get(bandit)
    requests = []
    for place, item in enumerate(body.requests):
        with within(("body", "requests", place)):
            requests.append(await _request(item, slates))
    return reply({"results": await choosing.choose_batch(owner, requests)})


async def _request(body: ChooseBody, slates: SlateCampaigns) -> ChooseRequest:
    arms = None if body.baseline is None else await best_slate(slates, body.baseline)
    return ChooseRequest(body.key, body.k, body.exclude, body.event_id, body.seed, body.activate, arms)
