"""/healthz, /readyz, /metrics, /v1/status."""

from __future__ import annotations

import asyncio
import platform
import time
from importlib.metadata import version
from typing import Literal

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel

from app.api.strict_json import JsonRoute
from app.errors import Unavailable
from app.runtime.composition import Service

PROBE_S = 2.0


class HealthView(BaseModel):
    status: Literal["ok"]


class ReadyView(BaseModel):
    status: Literal["ready"]
    backlog: int
    lag_s: float


class StatusView(BaseModel):
    """``store``: when its writes reach the disk, as ``appendfsync`` says."""

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


def router(service: Service) -> APIRouter:
    routes = APIRouter(tags=["operations"], route_class=JsonRoute)

    @routes.get("/healthz", response_model=HealthView)
    async def healthz() -> HealthView:
        """The process is alive."""
        return HealthView(status="ok")

    @routes.get("/readyz", response_model=ReadyView)
    async def readyz() -> ReadyView:
        """Requests can be served: the store answers, indexes are loaded, the reward backlog is bounded."""
        try:
            async with asyncio.timeout(PROBE_S):
                await service.store.ping()
                backlog = await service.backlog()
                lag = await service.lag()
        except (TimeoutError, Unavailable):
            raise Unavailable("the store does not answer") from None
        if await service.following.confirm(PROBE_S):
            raise Unavailable("this process is behind the store")
        if not service.ready:
            raise Unavailable("catalogues are being loaded, or the service is stopping")
        if backlog > service.settings.max_backlog:
            raise Unavailable("too many rewards are waiting to be applied")
        return ReadyView(status="ready", backlog=backlog, lag_s=lag.age_s)

    @routes.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Counters and gauges for Prometheus."""
        await service.measure()
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @routes.get("/v1/status", response_model=StatusView)
    async def status() -> StatusView:
        """What is running, and how much of it there is."""
        catalogues = list(service.catalogues)
        return StatusView(
            version=version("shortlist"),
            python=platform.python_version(),
            uptime_s=round(time.time() - service.started_at, 3),
            ready=service.ready,
            store=await service.store.durability(),
            worker=service.settings.worker,
            backlog=await service.backlog(),
            catalogues=len(catalogues),
            arms=sum(len(catalogue.index) for catalogue in catalogues),
            bandits=len(service.bandits),
            cached_learners=len(service.learners),
            cached_learner_bytes=service.learners.bytes,
        )

    return routes
