"""GET /v1/bandits/{b}/report: what the policy and the holdout have earned, and whether it can be chance."""

from __future__ import annotations

import time
from typing import Annotated, Literal

from fastapi import Query, Request, Response
from pydantic import BaseModel, BeforeValidator, Field

from app.api.fields import digits
from app.api.leaving import while_connected
from app.api.limits import MAX_BUCKET_S
from app.api.services import Provided
from app.api.strict_json import json_router, reply
from app.api.times import From, To, span
from app.services.bandits.bandits import Bandits
from app.services.measuring.report import MAX_BUCKETS, Reports, too_many_buckets

router = json_router(prefix="/v1/bandits", tags=["measuring"])

BucketSeconds = Annotated[int, BeforeValidator(digits), Field(ge=1, le=MAX_BUCKET_S)]


class GroupCountsView(BaseModel):
    """``rewarded``: decisions with a reward that somebody sent. ``mean_reward``: of all; null without any."""

    group: Literal["policy", "holdout"]
    decisions: int
    rewarded: int
    mean_reward: float | None


class GroupReportView(GroupCountsView):
    """``interval``: holds the mean with 95 % probability at all looks together; null: not known yet."""

    interval: list[float] | None


class LiftView(BaseModel):
    """The mean reward of the policy less that of the holdout."""

    value: float | None
    interval: list[float] | None


class BucketView(BaseModel):
    """``from``: its begin, in ms since 1970."""

    from_: Annotated[int, Field(alias="from")]
    groups: list[GroupCountsView]


class ReportView(BaseModel):
    """``unit``: what intervals take as drawn: the keys of a per_key bandit, the decisions of a global one.

    ``interval_kind``       bounded ones hold exactly, asymptotic ones the better the more there are
    ``interval_decisions``  the intervals are of the first so many decisions: with keys a power of two
    ``ungrouped``           decisions in neither group: made before there was a holdout, or for a baseline
    ``warnings``            why a group has no interval
    ``complete_from``       when it begins, in ms since 1970, since rows from before are gone; null: as asked
    """

    groups: list[GroupReportView]
    lift: LiftView
    unit: Literal["key", "decision"]
    interval_kind: Literal["bounded", "asymptotic"]
    interval_decisions: int
    ungrouped: int
    buckets: list[BucketView]
    warnings: list[str]
    complete_from: int | None


@router.get("/{bandit}/report", response_model=ReportView)
async def report(
    bandit: str,
    request: Request,
    bandits: Provided[Bandits],
    reports: Provided[Reports],
    *,
    start: From = None,
    end: To = None,
    bucket_s: Annotated[BucketSeconds | None, Query()] = None,
) -> Response:
    """Compare the policy with the holdout, over the logged decisions of a time: from <= time < to."""
    from_ms, to_ms = span(start, end)
    bucket_ms = None if bucket_s is None else 1_000 * bucket_s
    if from_ms is not None and bucket_ms is not None:
        last_ms = time.time_ns() // 1_000_000 if to_ms is None else to_ms
        if last_ms // bucket_ms - from_ms // bucket_ms > MAX_BUCKETS:
            raise too_many_buckets()
    owner = await bandits.get(bandit)
    work = reports.report(owner, from_ms=from_ms, to_ms=to_ms, bucket_ms=bucket_ms)
    return reply(await while_connected(request, work))
