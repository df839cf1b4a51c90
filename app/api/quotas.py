"""/v1/bandits/{b}/quotas: how often arms may be shown, or rewarded, in a window of time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

import msgspec
from fastapi import Response
from pydantic import BaseModel, Field

from app.api.fields import Cursor, Identifier, Limit, Page, page_reply, span
from app.api.filters import FilterBody
from app.api.problems import problems
from app.api.request_limits import MAX_SMALL_BODY_BYTES
from app.api.strict_json import Provided, StrictModel, json_router, reply
from app.bandits.served_bandits import Bandits
from app.exposure_limits.quotas import Quotas, QuotaState
from app.exposure_limits.rules import MAX_MOST, MAX_PER_S, MIN_PER_S, QuotaCounts, QuotaPace, QuotaRule

router = json_router(prefix="/v1/bandits", tags=["quotas"])

Time = Annotated[datetime, Field(strict=False)]


class QuotaBody(StrictModel):
    """The arms with the one value of one field that ``filter`` asks for, or one ``arm``, are shown (or
    rewarded) at most ``most`` times in a window. Windows are multiples of ``per_s`` since ``from``, else
    since 1970; without it there is one. The quota holds from ``from`` until ``to``. ``pace`` even: spread
    evenly over the window. ``signal``: the one whose rewards count, of a bandit that has some; absent: those
    of all.
    """

    max_bytes: ClassVar[int] = MAX_SMALL_BODY_BYTES

    most: Annotated[int, Field(ge=0, le=MAX_MOST)]
    filter: FilterBody | None = None
    arm: Identifier | None = None
    per_s: Annotated[float, Field(ge=MIN_PER_S, le=MAX_PER_S)] | None = None
    counts: QuotaCounts = "shown"
    pace: QuotaPace = "none"
    from_: Annotated[Time | None, Field(alias="from")] = None
    to: Time | None = None
    signal: Identifier | None = None


class QuotaView(BaseModel):
    """``used``: counted in the current window, [from, to) in ms since 1970; ``left``: the rest. ``ends``:
    when it is used up if it goes on as since the window began, null if not in this window. ``window`` null:
    it does not hold now. ``outstanding``: where rewards are counted, what was shown in the window and has
    none.
    """

    id: str
    most: int
    filter: dict[str, Any] | None
    arm: str | None
    per_s: float | None
    counts: QuotaCounts
    pace: QuotaPace
    from_: Annotated[datetime | None, Field(alias="from")]
    to: datetime | None
    signal: str | None
    used: int
    left: int
    window: list[int | None] | None
    ends: datetime | None
    outstanding: int | None


@router.put(
    "/{bandit}/quotas/{quota}",
    response_model=QuotaView,
    status_code=201,
    responses={200: {"model": QuotaView}, **problems(409, 429)},
)
async def put_quota(
    bandit: str, quota: Identifier, body: QuotaBody, bandits: Provided[Bandits], quotas: Provided[Quotas]
) -> Response:
    """Make a quota, or give one another ``most``, ``pace`` or ``to``: its counts go on. 409 for all else."""
    from_ms, to_ms = span(body.from_, body.to)
    rule = QuotaRule(
        body.most, body.filter, body.arm, body.per_s, body.counts, body.pace, from_ms, to_ms, body.signal
    )
    state, is_new = await quotas.put(await bandits.get(bandit), quota, rule)
    return reply(_view(state), 201 if is_new else 200)


@router.get("/{bandit}/quotas", response_model=Page[QuotaView])
async def list_quotas(
    bandit: str,
    bandits: Provided[Bandits],
    quotas: Provided[Quotas],
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Response:
    """The quotas of a bandit by id, each with its counts in the current window."""
    states, following = await quotas.page(await bandits.get(bandit), cursor, limit)
    return await page_reply(((state.quota.id, _view(state)) for state in states), following)


@router.get("/{bandit}/quotas/{quota}", response_model=QuotaView)
async def get_quota(
    bandit: str, quota: str, bandits: Provided[Bandits], quotas: Provided[Quotas]
) -> Response:
    """A quota, and its counts in the current window."""
    return reply(_view(await quotas.get(await bandits.get(bandit), quota)))


@router.delete("/{bandit}/quotas/{quota}", status_code=204)
async def delete_quota(bandit: str, quota: str, bandits: Provided[Bandits], quotas: Provided[Quotas]) -> None:
    """Delete a quota. One that is made again counts from 0."""
    await quotas.delete(await bandits.get(bandit), quota)


def _view(state: QuotaState) -> dict[str, Any]:
    rule = msgspec.structs.asdict(state.quota.rule)
    begin, end = (_time(rule.pop(name)) for name in ("from_ms", "to_ms"))
    return {
        "id": state.quota.id,
        **rule,
        "from": begin,
        "to": end,
        "used": state.used,
        "left": state.left,
        "window": state.window,
        "ends": _time(state.ends_ms),
        "outstanding": state.outstanding,
    }


def _time(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1_000, UTC)
