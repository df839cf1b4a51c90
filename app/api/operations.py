"""/healthz, /readyz, /metrics, /v1/status."""

from __future__ import annotations

import platform
from dataclasses import asdict
from importlib.metadata import version
from typing import Literal

from fastapi import Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel

from app.api.services import HealthDep, MetricsDep
from app.api.strict_json import json_router

router = json_router(tags=["operations"])


class HealthView(BaseModel):
    status: Literal["ok"]


class ReadyView(BaseModel):
    status: Literal["ready"]
    backlog: int
    lag_s: float


class LossView(BaseModel):
    """``at``: when it was noticed. ``what``: which data."""

    at: str
    what: str


class StatusView(BaseModel):
    """``store``: when its writes reach the disk, as ``appendfsync`` says. ``loss``: what it has lost."""

    version: str
    python: str
    uptime_s: float
    ready: bool
    store: str
    worker: bool
    backlog: int
    catalogues: int
    arms: int
    bandits: int
    cached_learners: int
    cached_learner_bytes: int
    loss: LossView | None


@router.get("/healthz", response_model=HealthView)
async def healthz() -> HealthView:
    """The process is alive."""
    return HealthView(status="ok")


@router.get("/readyz", response_model=ReadyView)
async def readyz(health: HealthDep) -> ReadyView:
    """Requests can be served: the store answers, indexes are loaded, the reward backlog is bounded."""
    readiness = await health.readiness()
    return ReadyView(status="ready", backlog=readiness.backlog, lag_s=readiness.lag_s)


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(health: HealthDep, metrics: MetricsDep) -> Response:
    """Counters and gauges for Prometheus."""
    await health.measure()
    return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/v1/status", response_model=StatusView)
async def status(health: HealthDep) -> StatusView:
    """What is running, and how much of it there is."""
    figures = asdict(await health.status())
    return StatusView(version=version("shortlist"), python=platform.python_version(), **figures)
