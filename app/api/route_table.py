"""The route of a request, looked up in a table: the framework tries one route after the other.

With the fifty routes here that takes up to several times as long as all else that a request costs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

Shape = tuple[str, int, str]


class RouteTable:
    """Serves what is for one of ``routes``, and leaves the rest to ``others``, the router that has them too.

    That is: unknown paths, methods that a path does not have, routes whose paths are of any length, paths
    below a prefix that a proxy has cut off, and whatever is no request over HTTP.
    """

    def __init__(self, routes: Iterable[BaseRoute], others: ASGIApp) -> None:
        self._others = others
        self._routes: dict[Shape, list[Route]] = defaultdict(list)
        for route in routes:
            if isinstance(route, Route) and ":" not in route.path:  # "{name:path}" may hold slashes
                for method in route.methods or ():
                    self._routes[_shape(method, route.path)].append(route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope.get("root_path"):
            for route in self._routes.get(_shape(scope["method"], scope["path"]), ()):
                match, found = route.matches(scope)
                if match is Match.FULL:
                    scope.update(found)
                    await route.app(scope, receive, send)
                    return
        await self._others(scope, receive, send)


def _shape(method: str, path: str) -> Shape:
    """What no parameter can change of a path such as /v1/catalogues/{catalogue}/arms: few routes share it."""
    pieces = path.split("/", 3)
    return method, path.count("/"), pieces[min(2, len(pieces) - 1)]
