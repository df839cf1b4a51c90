"""POST /v1/bandits/{b}/log/explain, and GET …/log/{decision} for short tokens: why these arms?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
from fastapi import Response
from pydantic import BaseModel

from app.api.decision_log import RowView
from app.api.fields import Token
from app.api.limits import MAX_IDS_BYTES
from app.api.services import Provided
from app.api.strict_json import StrictModel, json_router, reply
from app.services.bandits.bandits import Bandits
from app.services.measuring.explain import Explanation, Explanations

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
    diverse: list[Any] | None


@dataclass(frozen=True)
class ExplanationView(Explanation):
    __doc__ = Explanation.__doc__
    row: RowView  # type: ignore[assignment]  # as pydantic documents it
    asked: AskedView | None  # type: ignore[assignment]


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
    explanation = await explanations.explain(await bandits.get(bandit), decision)
    asked = None if explanation.asked is None else msgspec.structs.asdict(explanation.asked)
    return reply({name: getattr(explanation, name) for name in Explanation.__slots__} | {"asked": asked})
