"""The route of a request, looked up in a table: the framework tries one route after the other.

With the fifty routes here that takes up to several times as long as all else that a request costs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from re import Pattern

from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.strict_json import JsonRoute

Shape = tuple[str, int, str]


class RouteTable:
    """Serves what is for a ``JsonRoute`` of ``routes``; the rest is for ``others``, which have them too.

    That is: unknown paths, methods that a path does not have, routes whose paths are of any length, paths
    below a prefix that a proxy has cut off, and whatever is no request over HTTP.
    """

    def __init__(self, routes: Iterable[BaseRoute], others: ASGIApp) -> None:
        self._others = others
        self._routes: dict[Shape, list[tuple[Pattern[str], JsonRoute]]] = defaultdict(list)
        for route in routes:
            if isinstance(route, JsonRoute) and ":" not in route.path:  # "{name:path}" may hold slashes
                for method in route.methods or ():
                    self._routes[_shape(method, route.path)].append((route.path_regex, route))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope.get("root_path"):
            path = scope["path"]
            for pattern, route in self._routes.get(_shape(scope["method"], path), ()):
                match = pattern.match(path)
                if match is not None:  # all parameters of these paths are plain strings
                    scope["path_params"] = match.groupdict()
                    scope["endpoint"], scope["route"] = route.endpoint, route
                    await route.app(scope, receive, send)
                    return
        await self._others(scope, receive, send)


def _shape(method: str, path: str) -> Shape:
    """What no parameter can change of a path such as /v1/catalogues/{catalogue}/arms: few routes share it."""
    pieces = path.split("/", 3)
    return method, path.count("/"), pieces[min(2, len(pieces) - 1)]
