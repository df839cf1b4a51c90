"""POST /v1/rewards."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from app.api.reward_schemas import ReceiptView, RewardsBody
from app.api.services import RewardsDep
from app.api.strict_json import JsonRoute, reply
from app.services.learning.rewards import Receipt, Reward, Rewards

router = APIRouter(prefix="/v1", tags=["rewards"], route_class=JsonRoute)


@router.post("/rewards", status_code=202, response_model=ReceiptView)
async def reward(
    body: RewardsBody, rewards: RewardsDep, wait: Annotated[Literal["applied"] | None, Query()] = None
) -> Response:
    """Reward decisions. 202: durable, and applied soon; with wait=applied 200: applied."""
    items = [Reward(item.decision, item.value, item.arm, item.reward_id) for item in body.rewards]
    return await receipt_reply(rewards, await rewards.reward(items), wait)


async def receipt_reply(rewards: Rewards, receipt: Receipt, wait: Literal["applied"] | None) -> Response:
    """200 when the caller asked to wait and everything was applied in time, else 202."""
    if wait is not None:
        await rewards.wait(receipt)
    answer = {
        "accepted": receipt.accepted,
        "duplicate": receipt.duplicate,
        "rejected": [{"index": index, "code": code} for index, code in receipt.rejected],
    }
    return reply(answer, 200 if receipt.applied else 202)
