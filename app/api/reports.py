"""GET /v1/bandits/{b}/report: what the policy and the holdout have earned, and whether it can be chance."""

from __future__ import annotations

import time
from dataclasses import fields
from typing import Annotated

from fastapi import Query, Request, Response
from pydantic import Field

from app.api.fields import INTEGER, From, To, span
from app.api.request_limits import MAX_BUCKET_S
from app.api.streamed_answers import while_connected
from app.api.strict_json import Provided, json_router, reply
from app.bandits.served_bandits import Bandits
from app.measuring.report import MAX_BUCKETS, Reports, too_many_buckets
from app.measuring.report_answer import Report

_OF_SIGNALS = {"weights", "signals", "guardrails"}

router = json_router(prefix="/v1/bandits", tags=["measuring"])

BucketSeconds = Annotated[int, INTEGER, Field(ge=1, le=MAX_BUCKET_S)]


class ReportView(Report):
    __doc__ = Report.__doc__


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
    answer = await while_connected(request, work)
    left_out = set() if answer.weights is not None else _OF_SIGNALS
    left_out = left_out if answer.moves else {*left_out, "moves"}
    shown = {
        field.name: getattr(answer, field.name) for field in fields(answer) if field.name not in left_out
    }
    return reply(shown)
