"""/v1/bandits/{b}/log: decisions with their rewards, as a file, and explained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from fastapi import Query, Response
from pydantic import BaseModel

from app.api.fields import Cursor, From, Limit, To, Token, page_of, span
from app.api.problems import problems
from app.api.request_limits import MAX_IDS_BYTES
from app.api.streamed_answers import Streamed
from app.api.strict_json import Provided, StrictModel, json_router, reply
from app.bandits.served_bandits import Bandits
from app.decision_log.reading import DecisionLog
from app.decision_log.rows import Row
from app.measuring.explain import Explanation, Explanations
from app.measuring.export import MEDIA_TYPES, Exports, FormatName

router = json_router(prefix="/v1/bandits", tags=["measuring"])


@router.get("/{bandit}/log", response_model=page_of(Row))
async def log(
    bandit: str,
    bandits: Provided[Bandits],
    decision_log: Provided[DecisionLog],
    *,
    start: From = None,
    end: To = None,
    cursor: Cursor = None,
    limit: Limit = 100,
    order: Annotated[Literal["asc", "desc"], Query()] = "asc",
) -> Response:
    """Logged decisions made in the time from ``from`` until before ``to``, the oldest first, or with ``desc``
    the newest. A cursor is of one order.
    """
    from_ms, to_ms = span(start, end)
    owner = await bandits.get(bandit)
    rows, following = await decision_log.page(
        owner, from_ms=from_ms, to_ms=to_ms, cursor=cursor, limit=limit, newest_first=order == "desc"
    )
    return reply({"items": rows, "next": following})


@router.get(
    "/{bandit}/log/export",
    response_class=Response,
    responses={
        **problems(501),
        200: {"content": {kind: {"schema": {"type": "string"}} for kind in MEDIA_TYPES.values()}},
    },
)
async def export(
    bandit: str,
    bandits: Provided[Bandits],
    exports: Provided[Exports],
    *,
    format: Annotated[FormatName, Query()] = "ndjson",  # noqa: A002 - the name of the parameter
    start: From = None,
    end: To = None,
) -> Response:
    """The logged decisions of a time, from <= time < to, as a file with a row for each.

    Rows are those of the log; as Parquet their filters are JSON text. A broken answer is not the file.
    """
    from_ms, to_ms = span(start, end)
    owner = await bandits.get(bandit)
    pieces = exports.stream(owner, format, from_ms=from_ms, to_ms=to_ms)
    return await Streamed.of(pieces, media_type=MEDIA_TYPES[format], name=f"{owner.name}.{format}")


class ExplainBody(StrictModel):
    """``decision``: its token."""

    max_bytes: ClassVar[int] = MAX_IDS_BYTES

    decision: Token


class AskedView(BaseModel):
    """The request of a decision. ``filter``: its own, without the bandit's. ``arms``: a baseline.
    ``pins``: arm and place. ``at_most``: field and count. ``diverse``: weight and over.
    """

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
    asked: AskedView | None  # type: ignore[assignment]  # LoggedRequest is an array where it is stored


@router.post("/{bandit}/log/explain", response_model=ExplanationView)
async def explain(
    bandit: str, body: ExplainBody, bandits: Provided[Bandits], explanations: Provided[Explanations]
) -> Response:
    """The log's record of one decision, by its token, and the choice made again from its seed."""
    return await explain_short(bandit, body.decision, bandits, explanations)


@router.get("/{bandit}/log/{decision}", response_model=ExplanationView)
async def explain_short(
    bandit: str, decision: Token, bandits: Provided[Bandits], explanations: Provided[Explanations]
) -> Response:
    """The same, for a token short enough for a path."""
    explanation = await explanations.explain(await bandits.get(bandit), decision)
    asked = None if explanation.asked is None else msgspec.structs.asdict(explanation.asked)
    return reply({name: getattr(explanation, name) for name in Explanation.__slots__} | {"asked": asked})
