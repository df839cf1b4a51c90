"""The ASGI application. ``create_app`` is the only place that chooses implementations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api import (
    arms,
    bandits,
    catalogue_centers,
    catalogues,
    center_campaigns,
    choose,
    decision_log,
    decisions,
    documentation,
    evaluations,
    explanations,
    imports,
    learners,
    log_exports,
    mips,
    observations,
    operations,
    pages,
    problems,
    reports,
    rewards,
    sampling,
    slates,
)
from app.api.gateway import Gateway
from app.api.guard import Guard
from app.api.route_table import RouteTable
from app.api.services import Services
from app.background import end
from app.observability.metrics import Metrics
from app.observability.tracing import provider, telemetry
from app.settings import VERSION, Settings
from app.storage.protocol import KINDS
from app.storage.redis_store import RedisStore
from server.composition import Service

# In the order in which a request is matched where a path fits several routes.
ENDPOINTS = (
    choose,
    rewards,
    decisions,
    operations,
    catalogues,
    arms,
    imports,
    catalogue_centers,
    center_campaigns,
    sampling,
    mips,
    slates,
    bandits,
    decision_log,
    evaluations,
    observations,
    learners,
    reports,
    log_exports,
    explanations,
    pages,
)


class Application(FastAPI):
    """FastAPI with the gateway as the only layer around its routes.

    Its own layers are left out, for they cost as much as a decision: error pages, since the gateway's net
    makes problems; telemetry; a second body limit; exit stacks, since no route needs one: JsonRoute resolves
    dependencies by itself, and there are no forms.
    """

    service: Service
    services: Services
    traced = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.traced or self.middleware_stack is None or scope["type"] != "http":
            await super().__call__(scope, receive, send)
        else:  # without the layers that only spans and a start need
            scope["app"] = self
            await self.middleware_stack(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        app: ASGIApp = ExceptionMiddleware(self.router, handlers=self.exception_handlers)
        if not self.traced:  # spans take their names from the framework's own search for a route
            app = RouteTable(self.router.routes, app)
        for layer in reversed(self.user_middleware):
            app = layer.cls(app, *layer.args, **layer.kwargs)
        return app


def create_app(settings: Settings, *, name: str | None = None) -> Application:
    """Return the application over the store at ``settings.redis_url``; ``name`` as in ``Service``."""
    if settings.redis_url is None:
        raise ValueError("redis_url must be set: `shortlist serve` starts the embedded store and sets it")
    bounds = {kind: getattr(settings, f"max_{kind}_mb") << 20 for kind in KINDS}
    store = RedisStore(settings.redis_url.get_secret_value(), partitions=settings.partitions, bounds=bounds)
    metrics = Metrics()
    spans = provider(enabled=settings.tracing)
    guard = Guard(settings)
    service = Service(settings, store, metrics, name=name)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:  # noqa: ARG001
        await store.open()
        try:
            await service.start()
            watching = asyncio.create_task(guard.watch_file())
            yield
            await end([watching])
        finally:
            await service.stop()
            if spans is not None:
                await asyncio.to_thread(spans.shutdown)

    app = Application(
        title="Shortlist",
        description=pages.SUMMARY,
        version=VERSION,
        lifespan=lifespan,
        docs_url=None,  # the framework's own pages load what they show from a public host: see pages
        redoc_url=None,
        redirect_slashes=False,
        telemetry=telemetry(spans),
    )
    app.service = service
    app.services = _services_of(service)
    app.traced = spans is not None
    # The routes are taken over, not included as routers, and stand before the framework's own.
    app.router.routes[:0] = [route for module in ENDPOINTS for route in module.router.routes]
    problems.install(app)
    documentation.install(app)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=["POST"],
            allow_headers=["authorization", "content-type", "x-request-id"],
            expose_headers=["x-request-id", "retry-after"],
        )
    app.add_middleware(
        Gateway,
        guard=guard,
        metrics=metrics,
        max_body_bytes=settings.max_body_mb << 20,
        access_log=settings.access_log,
    )
    return app


def _services_of(service: Service) -> Services:
    return Services(
        bandits=service.bandits,
        catalogues=service.catalogues,
        center_campaigns=service.center_campaigns,
        centers=service.centers,
        choosing=service.choosing,
        decision_log=service.decision_log,
        decisions=service.decisions,
        explanations=service.explanations,
        exports=service.exports,
        evaluations=service.evaluations,
        filtered=service.filtered,
        forgetting=service.forgetting,
        health=service.health,
        learner_copies=service.learner_copies,
        learners=service.learners,
        metrics=service.metrics,
        mips=service.mips,
        reports=service.reports,
        rewards=service.rewards,
        sampling=service.sampling,
        slates=service.slates,
        slate_warm_start=service.slate_warm_start,
    )
