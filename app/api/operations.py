"""/healthz, /readyz, /metrics, /v1/status."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Literal

from fastapi import Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel

from app.api.strict_json import Provided, json_router
from app.platform.group_metrics import ShownMetrics
from app.platform.plugins import Plugin, plugins
from app.replication.health import Health, Status

router = json_router(tags=["operations"])


class HealthView(BaseModel):
    status: Literal["ok"]


class ReadyView(BaseModel):
    """``backlog``: rewards that are not applied yet, the oldest for ``lag_s`` seconds."""

    status: Literal["ready"]
    backlog: int
    lag_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusView(Status):
    """What runs, and how much of it there is.

    ``store``: when its writes reach the disk, as ``appendfsync`` says. ``loss``: what it has lost, if
    anything. ``findings``: what `shortlist doctor` says of it. ``plugins``: those that are loaded.
    """

    version: str
    python: str
    plugins: list[Plugin]


@router.get("/healthz", response_model=HealthView)
async def healthz() -> HealthView:
    """The process is alive."""
    return HealthView(status="ok")


@router.get("/readyz", response_model=ReadyView)
async def readyz(health: Provided[Health]) -> ReadyView:
    """Requests can be served: the store answers, indexes are loaded, the reward backlog is bounded."""
    readiness = await health.readiness()
    return ReadyView(status="ready", backlog=readiness.backlog, lag_s=readiness.lag_s)


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(health: Provided[Health], shown_metrics: Provided[ShownMetrics]) -> Response:
    """Counters and gauges for Prometheus."""
    await health.measure()
    return Response(shown_metrics.text(), media_type=CONTENT_TYPE_LATEST)


@router.get("/v1/status", response_model=StatusView)
async def status(health: Provided[Health]) -> StatusView:
    """The running parts, and their sizes."""
    figures = asdict(await health.status())
    return StatusView(
        version=version("shortlist"), python=platform.python_version(), plugins=plugins(), **figures
    )
