"""POST /v1/decisions/activate."""

from __future__ import annotations

from fastapi import APIRouter, Response

from app.api.reward_schemas import ActivationsBody, ActivationView
from app.api.services import DecisionsDep
from app.api.strict_json import JsonRoute, reply

router = APIRouter(prefix="/v1", tags=["choices"], route_class=JsonRoute)


@router.post("/decisions/activate", response_model=ActivationView)
async def activate(body: ActivationsBody, decisions: DecisionsDep) -> Response:
    """Say that decisions made with ``"activate": false`` were shown: from now on rewards count."""
    outcome = await decisions.activate(body.decisions)
    rejected = [{"index": index, "code": code} for index, code in outcome.rejected]
    return reply({"activated": outcome.activated, "duplicate": outcome.duplicate, "rejected": rejected})
