"""Bodies of rewards, observations and activations, and what became of them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from app.api.limits import MAX_BATCH, MAX_REWARDS, MAX_TOKEN_CHARS
from app.api.schemas import Identifier, Value
from app.api.strict_json import StrictModel

Token = Annotated[str, Field(min_length=1, max_length=MAX_TOKEN_CHARS)]


class RewardItem(StrictModel):
    decision: Token
    value: Value
    arm: Identifier | None = None
    reward_id: Identifier | None = None


class RewardsBody(StrictModel):
    rewards: Annotated[list[RewardItem], Field(min_length=1, max_length=MAX_REWARDS)]


class ActivationsBody(StrictModel):
    decisions: Annotated[
        list[Token],
        Field(min_length=1, max_length=MAX_BATCH),
    ]


class ObservationItem(StrictModel):
    id: Identifier
    arm: Identifier
    value: Value
    key: Identifier | None = None


class ObservationsBody(StrictModel):
    observations: Annotated[list[ObservationItem], Field(min_length=1, max_length=MAX_REWARDS)]


class RejectedView(BaseModel):
    index: int
    code: str


class ActivationView(BaseModel):
    activated: int
    duplicate: int
    rejected: list[RejectedView]


class ReceiptView(BaseModel):
    accepted: int
    duplicate: int
    rejected: list[RejectedView]
