"""Routes of plug-ins: they get what ours get from the gateway, and need the scopes that they declare."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

from fastapi import APIRouter

from app.api.api_keys import SCOPES, open_paths
from app.api.strict_json import JsonRoute
from app.platform import plugins
from app.platform.errors import StartupError

PREFIX = "/v1/"


class Routes:
    """Calls that a plug-in adds.

    ``router``  of ``json_router``, with a prefix below ``/v1/`` that is not ours. API keys of some bandits or
                catalogues cannot use it (404), nor can passes (403)
    ``scopes``  by method, the scope that a call needs; what is not named needs ``admin``
    """

    router: ClassVar[APIRouter]
    scopes: ClassVar[Mapping[str, str]] = {"GET": "read"}


def load(taken: Collection[str]) -> dict[str, Routes]:
    """The routes of plug-ins. ``taken``: our paths. Raises StartupError: one breaks the contract."""
    routes = plugins.load("routes", Routes)
    prefixes = {path.split("/")[2] for path in taken if path.startswith(PREFIX)}
    for name, own in routes.items():
        where, prefix = f"the routes {name} of a plug-in", own.router.prefix
        if not prefix.startswith(PREFIX) or prefix.count("/") != 2 or prefix.removeprefix(PREFIX) in prefixes:
            raise StartupError(f"{where} need a prefix of one part that is not taken, such as /v1/{name}")
        if not all(isinstance(route, JsonRoute) for route in own.router.routes):
            raise StartupError(f"{where} must be of json_router")
        if unknown := sorted({*own.scopes.values()} - {*SCOPES}):
            raise StartupError(f"{where} need scopes that there are not: {', '.join(unknown)}")
        prefixes.add(prefix.removeprefix(PREFIX))
        open_paths(prefix, own.scopes)
    return routes
