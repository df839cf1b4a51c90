"""POST /v1/bandits/{b}/observations: rewards that were not decided here."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from fastapi import Query, Response
from pydantic import Field

from app.api.fields import ContextBody, Identifier, Value, Weights
from app.api.problems import problems
from app.api.request_limits import MAX_BODY_BYTES, MAX_REWARDS
from app.api.rewards import ReceiptView, receipt_reply
from app.api.strict_json import SEVERAL_CALLS, Provided, StrictModel, json_router
from app.bandits.served_bandits import Bandits
from app.rewards.reward_entries import Observation
from app.rewards.rewards import Rewards

router = json_router(prefix="/v1/bandits", tags=["learners"])


class ObservationItem(StrictModel):
    """``values``: of the signals, instead of ``value``, exactly when the bandit has some. Signals without a
    name here are at their default. ``at``: when it was, in ms since 1970, now if absent; ``half_life_s``
    counts from then.
    """

    id: Identifier
    arm: Identifier
    value: Value | None = None
    key: Identifier | None = None
    context: ContextBody = None
    values: Weights | None = None
    at: Annotated[int, Field(ge=0, lt=10**15)] | None = None


class ObservationsBody(StrictModel):
    max_bytes: ClassVar[int] = MAX_BODY_BYTES
    instead: ClassVar[str] = SEVERAL_CALLS
    long_list: ClassVar[str] = "observations"

    observations: Annotated[list[ObservationItem], Field(min_length=1, max_length=MAX_REWARDS)]


@router.post(
    "/{bandit}/observations",
    status_code=202,
    response_model=ReceiptView,
    responses={200: {"model": ReceiptView}, **problems(409)},
)
async def observe(
    bandit: str,
    body: ObservationsBody,
    bandits: Provided[Bandits],
    rewards: Provided[Rewards],
    wait: Annotated[Literal["applied"] | None, Query()] = None,
) -> Response:
    """Teach history, once per observation id and key."""
    items = [
        Observation(item.id, item.arm, item.value, item.key, item.context, item.values, item.at)
        for item in body.observations
    ]
    receipt = await rewards.observe(await bandits.ready(bandit), items)
    return await receipt_reply(rewards, receipt, wait)
