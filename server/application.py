"""The ASGI application. ``create_app`` is the only place that chooses implementations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from app.api import (
    arm_effects,
    arms,
    bandits,
    catalogues,
    choose,
    console,
    decision_log,
    documentation,
    imports,
    learned_log,
    learners,
    mips,
    moves,
    observations,
    operations,
    pages,
    plugin_routes,
    policies,
    priors,
    quotas,
    reports,
    rewards,
)
from app.api.gateway import Gateway
from app.api.guard import EXPOSED, Guard
from app.api.pages import StaticFile
from app.api.strict_json import JSON, encoded
from app.indexes.index_limits import IndexLimits
from app.platform import plugin_settings
from app.platform.answer_memory import Answers
from app.platform.background import end
from app.platform.logs import provider, telemetry
from app.platform.metrics import Metrics
from app.platform.pauses import Pauses
from app.platform.settings import VERSION, Settings
from app.storage.store import Store
from server.composition import Service

# In the order in which a request is matched: the two that are asked for most come first.
ENDPOINTS = (
    choose,
    rewards,
    operations,
    catalogues,
    arms,
    imports,
    mips,
    bandits,
    moves,
    observations,
    learners,
    reports,
    arm_effects,
    learned_log,
    decision_log,  # its last path takes any name, also those of learned_log
    priors,
    policies,
    quotas,
    pages,
    console,
)


# Before anything is opened: what is wrong with a plug-in ends the start.
plugin_settings.load()
console.load()
PLUGIN_ROUTES = plugin_routes.load({route.path for module in ENDPOINTS for route in module.router.routes})
# Plug-ins stand among questions about catalogues: names of types in the clients follow from this order.
_QUESTIONS = ENDPOINTS.index(mips)
ROUTERS = [
    *(module.router for module in ENDPOINTS[:_QUESTIONS]),
    *(own.router for own in PLUGIN_ROUTES.values()),
    *(module.router for module in ENDPOINTS[_QUESTIONS:]),
]


class Application(FastAPI):
    """FastAPI, and the services that its endpoints ask for by name."""

    service: Service
    _openapi_file: StaticFile | None = None

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = documentation.document(self)
        return self.openapi_schema

    def build_middleware_stack(self) -> ASGIApp:
        """The routes, in what was added around them, the gateway outermost.

        The framework's other layers do what is done already: the gateway answers failures and requests
        without a route, bodies have limits of their own, and no endpoint has dependencies that would be
        closed. They took a tenth of a choice.
        """
        app: ASGIApp = self.router
        for middleware in reversed(self.user_middleware):
            app = middleware.cls(app, *middleware.args, **middleware.kwargs)
        return app

    def openapi_file(self) -> StaticFile:
        """The same as it is answered; encoded once."""
        if self._openapi_file is None:
            self._openapi_file = StaticFile.of(encoded(self.openapi()), JSON)
        return self._openapi_file


def create_app(
    settings: Settings,
    *,
    name: str | None = None,
    group_dir: Path | None = None,
    number: int = 1,
    pauses: Pauses = Pauses(),
    index_limits: IndexLimits = IndexLimits(),
) -> Application:
    """Return the application over the store at ``settings.redis_url``; the others as in ``Service``."""
    if settings.redis_url is None:
        raise ValueError("redis_url must be set: `shortlist serve` starts the embedded store and sets it")
    store = Store(
        settings.redis_url.get_secret_value(),
        partitions=settings.partitions,
        most_bytes=settings.max_store_bytes,
        data_dir=settings.data_dir,
    )
    metrics = Metrics()
    spans = provider(enabled=settings.tracing)
    guard = Guard(settings)
    service = Service(
        settings,
        store,
        metrics,
        name=name,
        group_dir=group_dir,
        number=number,
        pauses=pauses,
        index_limits=index_limits,
        routes=PLUGIN_ROUTES,
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:  # noqa: ARG001
        try:
            await store.open()
            await service.start()
            guard.warn_of_unknown(service.bandits, service.catalogues)
            watching = asyncio.create_task(guard.watch_file(service.bandits, service.catalogues))
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
    # The routes are taken over, not included as routers, and stand before the framework's own.
    app.router.routes[:0] = [route for router in ROUTERS for route in router.routes]
    # Before the gateway is added, which therefore is around it: preflights are counted and logged too.
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=["POST"],
            allow_headers=["authorization", "content-type", "x-request-id"],
            expose_headers=[EXPOSED],
        )
    app.add_middleware(
        Gateway,
        guard=guard,
        metrics=metrics,
        access_log=settings.access_log,
        answers=Answers(settings.max_answers_mb << 20),
    )
    return app
