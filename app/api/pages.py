"""Pages for people: ``/`` leads to the console, or is ``/docs``, the page of the endpoints.

All files of a page come from this service, so the pages work without a public network. Swagger UI,
which draws ``/docs``, comes from the wheel of fastapi-offline. Links are relative: they also hold behind a
proxy that serves this service under a prefix.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import fastapi_offline
from fastapi import Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import BaseModel

from app.api.resource_changes import tags_of
from app.api.strict_json import Provided, json_router, reply
from app.platform.errors import NotFound
from app.platform.pools import REQUESTS
from app.platform.settings import VERSION, Settings

router = json_router(tags=["operations"])

SUMMARY = "Online linear-bandit recommendation in time sublinear in the number of arms."
PATHS = {
    "docs": "/docs",
    "openapi": "/openapi.json",
    "healthz": "/healthz",
    "readyz": "/readyz",
    "status": "/v1/status",
    "metrics": "/metrics",
}
ASSETS = {
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
}
_ASSETS_FOLDER = Path(fastapi_offline.__file__).parent / "static"
# FastAPI's page of Swagger UI, which loads it from here.
_DOCS = get_swagger_ui_html(
    openapi_url="openapi.json",
    title="Shortlist: endpoints",
    swagger_js_url="docs/swagger-ui-bundle.js",
    swagger_css_url="docs/swagger-ui.css",
    swagger_favicon_url="data:,",
    swagger_ui_parameters={"validatorUrl": None},
)
_DOCS_PAGE = bytes(_DOCS.body).decode()
_DOCS_SCRIPT = _DOCS_PAGE.rpartition("<script>")[2].partition("</script>")[0]


class StaticFile(NamedTuple):
    """A file which never changes while the service runs: not sent to clients who have it."""

    content: bytes
    kind: str
    etag: str

    @classmethod
    def of(cls, content: bytes, kind: str) -> StaticFile:
        return cls(content, kind, f'"{hashlib.sha256(content).hexdigest()[:32]}"')

    def reply(self, request: Request, headers: Mapping[str, str]) -> Response:
        """The file, or 304 for the client's current copy."""
        headers = {**headers, "etag": self.etag}
        if self.etag in tags_of(request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers={**headers, "content-type": self.kind})


class LinksView(BaseModel):
    """``console``: null while it is off."""

    docs: str
    openapi: str
    healthz: str
    readyz: str
    status: str
    metrics: str
    console: str | None


class RootView(BaseModel):
    """Who answers at the address."""

    name: str
    version: str
    summary: str
    links: LinksView


@router.get(
    "/", response_model=RootView, responses={200: {"content": {"text/html": {"schema": {"type": "string"}}}}}
)
async def root(request: Request, settings: Provided[Settings]) -> Response:
    """The service and the addresses of its pages: as JSON. A browser gets a page, or is sent to the
    console.
    """
    if "text/html" in request.headers.get("accept", ""):
        if settings.has_console:
            return RedirectResponse("console", headers={"vary": "accept"})
        return await docs()
    links = LinksView(**PATHS, console="/console" if settings.has_console else None)
    answer = reply(RootView(name="shortlist", version=VERSION, summary=SUMMARY, links=links))
    answer.headers["vary"] = "accept"
    return answer


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> Response:
    """A description of the endpoints, for programs. Made in a thread at the first request, for it takes
    long.
    """
    file: StaticFile = await REQUESTS.run(request.app.openapi_file)
    return file.reply(request, {"cache-control": "no-cache"})


@router.get("/docs", include_in_schema=False)
async def docs() -> Response:
    """Swagger UI, which sets styles on elements and shows pictures from its style sheet."""
    script = base64.b64encode(hashlib.sha256(_DOCS_SCRIPT.encode()).digest()).decode()
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        f"script-src 'self' 'sha256-{script}'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'"
    )
    headers = {"content-security-policy": policy, "x-content-type-options": "nosniff", "vary": "accept"}
    return HTMLResponse(_DOCS_PAGE, headers=headers)


@router.get("/docs/{asset}", include_in_schema=False)
async def docs_asset(asset: str, request: Request) -> Response:
    """One of the two files that the page loads."""
    if asset not in ASSETS:
        raise NotFound("no such file")
    headers = {"cache-control": "max-age=3600", "x-content-type-options": "nosniff"}
    return _asset(asset).reply(request, headers)


@cache
def _asset(name: str) -> StaticFile:
    return StaticFile.of((_ASSETS_FOLDER / name).read_bytes(), ASSETS[name])
