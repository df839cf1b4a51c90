"""POST /v1/rewards."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from fastapi import Query, Response
from pydantic import Field

from app.api.fields import Identifier, Token, Value
from app.api.limits import MAX_BODY_BYTES, MAX_REWARDS
from app.api.receipts import ReceiptView, receipt_reply
from app.api.services import Provided
from app.api.strict_json import SEVERAL_CALLS, StrictModel, json_router
from app.services.learning.reward_entries import Reward
from app.services.learning.rewards import Rewards

router = json_router(prefix="/v1", tags=["rewards"])


class RewardItem(StrictModel):
    """``signal``: which of several rewards it is; needed exactly when the bandit has signals.

    ``at``: when it was so, in ms since 1970; needed where the last reward counts, elsewhere of no use.
    """

    decision: Token
    value: Value
    arm: Identifier | None = None
    reward_id: Identifier | None = None
    signal: Identifier | None = None
    at: Annotated[int, Field(ge=0, lt=10**15)] | None = None


class RewardsBody(StrictModel):
    max_bytes: ClassVar[int] = MAX_BODY_BYTES
    instead: ClassVar[str] = SEVERAL_CALLS
    long_list: ClassVar[str] = "rewards"

    rewards: Annotated[list[RewardItem], Field(min_length=1, max_length=MAX_REWARDS)]


@router.post("/rewards", status_code=202, response_model=ReceiptView, responses={200: {"model": ReceiptView}})
async def reward(
    body: RewardsBody, rewards: Provided[Rewards], wait: Annotated[Literal["applied"] | None, Query()] = None
) -> Response:
    """Reward decisions. 202: durable, and applied soon; with wait=applied 200: applied."""
    items = [
        Reward(item.decision, item.value, item.arm, item.reward_id, item.signal, item.at)
        for item in body.rewards
    ]
    return await receipt_reply(rewards, await rewards.reward(items), wait)
