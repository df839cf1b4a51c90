"""/openapi.json: what FastAPI reads from the endpoints, with their problems."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app.api import problems
from app.api.strict_json import JsonRoute


def document(app: FastAPI) -> dict[str, Any]:
    """The document, made anew: that takes long."""
    routes = [route.documented() if isinstance(route, JsonRoute) else route for route in app.routes]
    result = get_openapi(title=app.title, version=app.version, description=app.description, routes=routes)
    result["components"]["schemas"] |= problems.schemas()
    return result
