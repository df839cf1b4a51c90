"""/openapi.json: what FastAPI reads from the endpoints, with their problems, API keys, and examples."""

from __future__ import annotations

import re
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app.api import problems
from app.api.api_keys import scope_of
from app.api.strict_json import JsonRoute

# Whoever sends these one after the other gets an answer from each; the token of a decision or of a pull comes
# from the answer before.
EXAMPLES: dict[tuple[str, str], dict[str, Any]] = {
    ("PUT", "/v1/catalogues/{catalogue}"): {"dim": 3},
    ("PUT", "/v1/catalogues/{catalogue}/arms"): {
        "arms": [
            {"id": "alien", "features": [0.9, 0.1, 0.3], "metadata": {"year": 1979}},
            {"id": "amelie", "features": [0.1, 0.9, 0.4], "metadata": {"year": 2001}},
            {"id": "heat", "features": [0.8, 0.1, 0.9], "metadata": {"year": 1995}},
        ]
    },
    ("PUT", "/v1/bandits/{bandit}"): {"catalogue": "example", "policy": "sub_ts", "log": {}},
    ("PATCH", "/v1/bandits/{bandit}"): {"exploration": 0.5},
    ("POST", "/v1/bandits/{bandit}/choose"): {"filter": {"year": {"$gte": 1990}}},
    ("POST", "/v1/bandits/{bandit}/choose/batch"): {"requests": [{"k": 2}, {"exclude": ["alien"]}]},
    ("POST", "/v1/choose/batch"): {
        "requests": [{"bandit": "example"}, {"bandit": "example"}],
        "distinct": True,
    },
    ("POST", "/v1/rewards"): {"rewards": [{"decision": "the decision of a choice", "value": 1.0}]},
    ("POST", "/v1/decisions/activate"): {"decisions": ["the decision of a choice with activate: false"]},
    ("POST", "/v1/bandits/{bandit}/observations"): {
        "observations": [{"id": "visit-1", "arm": "alien", "value": 1.0}]
    },
    ("POST", "/v1/bandits/{bandit}/log/explain"): {"decision": "the decision of a choice"},
    ("POST", "/v1/catalogues/{catalogue}/mips"): {"query": [0.9, 0.1, 0.3], "k": 2, "method": "exact"},
    ("POST", "/v1/mips"): {"query": [1.0, 0.5], "vectors": [[1.0, 2.0], [0.0, 1.0]], "method": "exact"},
    ("POST", "/v1/catalogues/{catalogue}/arms/delete"): {"ids": ["heat"]},
}
NAMES = {"catalogue": "example", "bandit": "example", "campaign": "example", "arm": "alien", "key": "_global"}
BEARER = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key, as `shortlist key` prints it. Not needed where none are configured.",
}
# Their bodies are read only to refuse unknown fields.
WITHOUT_BODY = {
    ("POST", "/v1/bandits/{bandit}/prior/refresh"),
    ("POST", "/v1/catalogues/{catalogue}/features/fit"),
}


def document(app: FastAPI) -> dict[str, Any]:
    """The document, made again: that takes long."""
    routes = [route.documented() if isinstance(route, JsonRoute) else route for route in app.routes]
    result = get_openapi(title=app.title, version=app.version, description=app.description, routes=routes)
    result["components"]["schemas"] |= problems.schemas()
    result["components"]["securitySchemes"] = {"key": BEARER}
    for path, operations in result["paths"].items():
        for method, operation in operations.items():
            _complete(method.upper(), path, operation)
    return result


def _complete(method: str, path: str, operation: dict[str, Any]) -> None:
    """Add the call's need of a key, an example of its body, and the names made by the examples."""
    if scope_of(method, re.sub(r"\{\w+\}", "_", path)) is not None:
        operation["security"] = [{"key": []}, {}]
    if (method, path) in WITHOUT_BODY:
        operation.pop("requestBody", None)
    if (method, path) in EXAMPLES:
        operation["requestBody"]["content"]["application/json"]["example"] = EXAMPLES[method, path]
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path" and parameter["name"] in NAMES:
            parameter["example"] = NAMES[parameter["name"]]
