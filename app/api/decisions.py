"""POST /v1/decisions/activate."""

from __future__ import annotations

from typing import Annotated, ClassVar

from fastapi import Request
from pydantic import Field

from app.api.fields import Token
from app.api.guard import access_of
from app.api.limits import MAX_BATCH, MAX_BODY_BYTES
from app.api.rewards import RejectedView
from app.api.strict_json import SEVERAL_CALLS, Provided, StrictModel, json_router
from app.learning.decisions import Decisions
from app.platform.documents import Answer

router = json_router(prefix="/v1", tags=["choices"])


class ActivationsBody(StrictModel):
    max_bytes: ClassVar[int] = MAX_BODY_BYTES
    instead: ClassVar[str] = SEVERAL_CALLS
    long_list: ClassVar[str] = "decisions"

    decisions: Annotated[list[Token], Field(min_length=1, max_length=MAX_BATCH)]


class ActivationView(Answer, frozen=True):
    """``duplicate`` counts decisions that were activated before."""

    activated: int
    duplicate: int
    rejected: list[RejectedView]


@router.post("/decisions/activate", response_model=ActivationView)
async def activate(body: ActivationsBody, request: Request, decisions: Provided[Decisions]) -> ActivationView:
    """Say that decisions made with ``"activate": false`` were shown: from now on rewards count."""
    outcome = await decisions.activate(body.decisions, access_of(request))
    rejected = [RejectedView(index, code) for index, code in outcome.rejected]
    return ActivationView(outcome.activated, outcome.duplicate, rejected)
