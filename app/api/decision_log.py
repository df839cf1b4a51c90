"""/v1/bandits/{b}/log: the decisions of a bandit, with their rewards."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query, Response
from pydantic import BaseModel

from app.api.fields import Page, PageLimit
from app.api.services import Provided
from app.api.strict_json import json_router, reply
from app.api.times import From, To, span
from app.services.bandits.bandits import Bandits
from app.services.decision_log.decision_log import DecisionLog

router = json_router(prefix="/v1/bandits", tags=["measuring"])


class LoggedArmView(BaseModel):
    """``propensity``: the probability of this arm given those before it; null where the policy knows none."""

    id: str
    place: int
    score: float
    propensity: float | None
    pinned: bool


class LoggedRewardView(BaseModel):
    """``default``: nobody sent it, it stands for a reward that did not come in time; of all signals, where
    there are some. ``signal``: which one it is; absent without signals. ``revised``: how many earlier ones it
    has taken the place of; absent where of none.
    """

    arm: str
    value: float
    time: int
    default: bool
    signal: str | None = None
    revised: int = 0


class BarredView(BaseModel):
    """The arms that one of ``filters`` lets in, and these ``arms``."""

    filters: list[dict[str, Any]]
    arms: list[str]


class RowView(BaseModel):
    """Times in ms since 1970. ``decision``: the token. ``filter``: what all arms had to be like, the bandit's
    and the request's. ``rewards``: in the order in which they came. ``barred``: what quotas and repeats did
    not allow; left out where there is none, null where that is not known. ``prior_version``: as of a choice.
    """

    decision: str
    time: int
    key: str | None
    bandit_version: int
    learner_version: int
    catalogue_version: int
    policy: str
    group: str | None
    context: list[float] | None
    filter: dict[str, Any] | None
    eligible: int | None
    arms: list[LoggedArmView]
    rewards: list[LoggedRewardView]
    weights: dict[str, float] | None = None
    barred: BarredView | None = None
    prior_version: int | None = None


@router.get("/{bandit}/log", response_model=Page[RowView])
async def log(
    bandit: str,
    bandits: Provided[Bandits],
    decision_log: Provided[DecisionLog],
    *,
    start: From = None,
    end: To = None,
    cursor: Annotated[str | None, Query()] = None,
    limit: Annotated[PageLimit, Query()] = 100,
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
