"""POST /v1/decisions/activate."""

from __future__ import annotations

from fastapi import APIRouter, Response

from app.api.reward_schemas import ActivationsBody, ActivationView
from app.api.strict_json import JsonRoute, reply
from app.services.learning.decisions import Decisions


def router(decisions: Decisions) -> APIRouter:
    routes = APIRouter(prefix="/v1", tags=["choices"], route_class=JsonRoute)

    @routes.post("/decisions/activate", response_model=ActivationView)
    async def activate(body: ActivationsBody) -> Response:
        """Say that decisions made with ``"activate": false`` were shown: from now on rewards count."""
        outcome = await decisions.activate(body.decisions)
        rejected = [{"index": index, "code": code} for index, code in outcome.rejected]
        return reply({"activated": outcome.activated, "duplicate": outcome.duplicate, "rejected": rejected})

    return routes
