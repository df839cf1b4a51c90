"""POST /v1/bandits/{b}/log/explain, and GET …/log/{decision} for short tokens: why these arms?"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec
from fastapi import Response
from pydantic import BaseModel

from app.api.decision_log import RowView
from app.api.fields import Token
from app.api.limits import MAX_IDS_BYTES
from app.api.services import Provided
from app.api.strict_json import StrictModel, json_router, reply
from app.services.bandits.bandits import Bandits
from app.services.measuring.explain import Explanations

router = json_router(prefix="/v1/bandits", tags=["measuring"])


class ExplainBody(StrictModel):
    """``decision``: its token."""

    max_bytes: ClassVar[int] = MAX_IDS_BYTES

    decision: Token


class AskedView(BaseModel):
    """What the request asked for. ``filter``: its own, without that of the bandit. ``arms``: a baseline."""

    k: int
    exclude: list[str]
    event_id: str | None
    arms: list[str] | None
    filter: dict[str, Any] | None
    pins: list[list[Any]]
    at_most: list[list[Any]]


class CandidateView(BaseModel):
    """``width``: how uncertain the estimate is, (x^T V^-1 x)^(1/2). ``place``: null if it was not chosen."""

    id: str
    estimate: float
    width: float
    place: int | None


class ExplanationView(BaseModel):
    """``repeated``: whether the choice, made again from its ``seed``, is the same; null: it cannot be made
    again, for what has ``changed``; then there are no candidates. ``asked``: null if too large to be kept.
    """

    row: RowView
    asked: AskedView | None
    seed: int
    seeded: bool
    changed: list[Literal["bandit", "request", "warm_up", "prior", "learner", "catalogue"]]
    repeated: bool | None
    candidates: list[CandidateView]


@router.post("/{bandit}/log/explain", response_model=ExplanationView)
async def explain(
    bandit: str, body: ExplainBody, bandits: Provided[Bandits], explanations: Provided[Explanations]
) -> Response:
    """What the log keeps of one decision, by its token, and the choice made again from its seed."""
    return await explain_short(bandit, body.decision, bandits, explanations)


@router.get("/{bandit}/log/{decision}", response_model=ExplanationView)
async def explain_short(
    bandit: str, decision: Token, bandits: Provided[Bandits], explanations: Provided[Explanations]
) -> Response:
    """The same, for a token that a path has room for."""
    found = await explanations.explain(await bandits.get(bandit), decision)
    return reply(
        {
            "row": found.row,
            "asked": None if found.asked is None else msgspec.structs.asdict(found.asked),
            "seed": found.seed,
            "seeded": found.seeded,
            "changed": found.changed,
            "repeated": found.repeated,
            "candidates": found.candidates,
        }
    )
