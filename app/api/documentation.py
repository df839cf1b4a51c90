"""/openapi.json: what FastAPI reads from the endpoints, and the answers that they share.

Every endpoint can answer with a problem document; which statuses it can have follows from what it takes.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app.api.problems import PROBLEM
from app.api.strict_json import JsonRoute

Document = dict[str, Any]

_PROBLEM: Document = {
    "title": "Problem",
    "description": "RFC 9457; `code` is a stable word. What was sent is never repeated.",
    "type": "object",
    "additionalProperties": False,
    "required": ["type", "title", "status", "detail", "code", "errors"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["loc", "message"],
                "properties": {
                    "loc": {"type": "array", "items": {"type": ["string", "integer"]}},
                    "message": {"type": "string"},
                },
            },
        },
    },
}
_MEANING = {
    "404": "Not found.",
    "409": "Another one exists, it is in use, or there is nothing to choose from.",
    "412": "It is no longer what If-Match names; nothing was changed.",
    "413": "The body, a line or a batch is too large.",
    "422": "A field breaks its rule; nothing was changed.",
    "429": "As much is held as may be: campaigns, until some are deleted, or versions of a bandit.",
    "501": "The service lacks an optional package, which the answer names.",
    "503": "The store does not answer; safe to try again.",
}
_CAN_CONFLICT = {
    ("put", "/v1/catalogues/{catalogue}"),
    ("delete", "/v1/catalogues/{catalogue}"),
    ("put", "/v1/bandits/{bandit}"),
    ("patch", "/v1/bandits/{bandit}"),
    ("post", "/v1/bandits/{bandit}/evaluations"),
    ("post", "/v1/slates"),
    ("post", "/v1/slates/{campaign}/teach"),
    ("post", "/v1/bandits/{bandit}/choose"),
    ("post", "/v1/bandits/{bandit}/choose/batch"),
    ("post", "/v1/catalogues/{catalogue}/centers"),
    ("post", "/v1/centers"),
}
_CAN_GROW = {
    ("post", f"/v1/{kind}{step}")
    for kind in ("slates", "centers")
    for step in ("", "/{campaign}/ask", "/{campaign}/tell")
} | {("patch", "/v1/bandits/{bandit}")}
_CAN_LACK = {("get", "/v1/bandits/{bandit}/log/export")}
# These have two statuses of success. FastAPI documents the first one; the second has the same answer.
_TWINS = {
    ("put", "/v1/catalogues/{catalogue}"): ("200", "201"),
    ("put", "/v1/bandits/{bandit}"): ("200", "201"),
    ("post", "/v1/centers"): ("201", "200"),
    ("post", "/v1/slates"): ("201", "200"),
    ("post", "/v1/slates/{campaign}/teach"): ("202", "200"),
    ("post", "/v1/rewards"): ("202", "200"),
    ("post", "/v1/bandits/{bandit}/observations"): ("202", "200"),
}


def install(app: FastAPI) -> None:
    """Make ``app.openapi`` document problem documents, and statuses that FastAPI does not know of."""

    def openapi() -> Document:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # the way FastAPI documents to extend it


def _document(app: FastAPI) -> Document:
    routes = [route.documented() if isinstance(route, JsonRoute) else route for route in app.routes]
    found = get_openapi(title=app.title, version=app.version, description=app.description, routes=routes)
    schemas = found["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["Problem"] = _PROBLEM
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            _complete(operation, method, path)
    for route in app.routes:
        if isinstance(route, JsonRoute) and route.include_in_schema and route.max_bytes is not None:
            for method in route.methods or ():
                body = found["paths"][route.path][method.lower()]["requestBody"]
                body["description"] = f"At most {route.max_bytes:,} bytes."
    return found


def _complete(operation: Document, method: str, path: str) -> None:
    responses = operation["responses"]
    responses.pop("422", None)
    for status in _statuses(operation, method, path):
        responses[status] = {
            "description": _MEANING[status],
            "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
    if (method, path) in _TWINS:
        one, other = _TWINS[method, path]
        responses[other] = responses[one]


def _statuses(operation: Document, method: str, path: str) -> list[str]:
    if path in {"/", "/healthz"}:
        return []
    found = ["503"]
    if path.startswith("/v1/"):
        found.append("422")
    if "{" in path and (method, path) != ("put", "/v1/catalogues/{catalogue}"):
        found.append("404")
    if "requestBody" in operation:
        found.append("413")
    if method == "patch":
        found.append("412")
    if (method, path) in _CAN_GROW:
        found.append("429")
    if (method, path) in _CAN_CONFLICT:
        found.append("409")
    if (method, path) in _CAN_LACK:
        found.append("501")
    return sorted(found)
