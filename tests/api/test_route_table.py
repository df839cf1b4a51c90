"""The table of routes finds what the framework's own search would, and looks at few routes for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from app.api.route_table import RouteTable
from app.settings import Settings
from server.application import Application, create_app

pytestmark = pytest.mark.anyio

NAMES = ("films", "choose", "a%20b", "delete", "arms", "v1", "é")
METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH")
ODD = (
    "",
    "/",
    "//",
    "/v1",
    "/v1/",
    "/v1/bandits/",
    "/v1/bandits//choose",
    "/v1/bandits/a/b/choose",
    "/x/../v1",
)


@pytest.fixture(scope="module")
def app() -> Application:
    return create_app(Settings(redis_url="redis://nowhere"))


def paths(app: Application) -> Iterator[str]:
    yield from ODD
    for path in {route.path for route in app.router.routes if isinstance(route, Route)}:
        for name in NAMES:
            filled = re.sub(r"\{[^}]*\}", name, path)
            yield from (filled, f"{filled}/", f"{filled}/{name}")


def scope_of(method: str, path: str, **more: Any) -> Scope:
    return {"type": "http", "method": method, "path": path, "headers": [], **more}


def searched(app: Application, scope: Scope) -> tuple[object, object]:
    """Endpoint and parameters, as the framework finds them."""
    for route in app.router.routes:
        match, found = route.matches(scope)
        if match is Match.FULL:
            return found["endpoint"], found["path_params"]
    return None, None


class Calls:
    """Takes the place of all that answers, and keeps the scope."""

    def __init__(self, app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
        self.matched, self.others = 0, False
        self.scope: Scope = {}
        for route in app.router.routes:
            monkeypatch.setattr(route, "app", self._answer)
            monkeypatch.setattr(route, "path_regex", SimpleNamespace(match=self._counted(route)))
        self.table = RouteTable(app.router.routes, self._other)

    def _counted(self, route: Any) -> Callable[[str], re.Match[str] | None]:
        pattern: re.Pattern[str] = route.path_regex

        def match(path: str) -> re.Match[str] | None:
            self.matched += 1
            return pattern.match(path)

        return match

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.others = True

    async def of(self, scope: Scope) -> tuple[object, object]:
        self.matched, self.scope, self.others = 0, {}, False
        await self.table(scope, None, None)  # type: ignore[arg-type]  # nothing is read or sent
        return self.scope.get("endpoint"), self.scope.get("path_params")


async def test_it_finds_what_the_framework_finds(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, found = Calls(app, monkeypatch), set()
    for path in paths(app):
        for method in METHODS:
            wanted = searched(app, scope_of(method, path))
            assert await calls.of(scope_of(method, path)) in (wanted, (None, None)), (method, path)
            assert calls.others == (calls.scope == {}), "either the table or the framework answers"
            assert calls.matched <= 4
            if not calls.others:
                found.add((method, wanted[0]))
    routes = [route for route in app.router.routes if isinstance(route, Route)]
    served = {endpoint for _, endpoint in found}
    left = {route.path for route in routes if route.endpoint not in served}
    assert left <= {"/docs/{asset}", "/openapi.json"}, "whose first piece says nothing, or the framework's"


async def test_the_hot_paths_try_one_route_or_two(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(app, monkeypatch)
    for method, path in (("POST", "/v1/rewards"), ("POST", "/v1/bandits/b/choose"), ("GET", "/v1/bandits/b")):
        assert await calls.of(scope_of(method, path)) != (None, None)
        assert calls.matched <= 2


async def test_below_a_prefix_the_framework_answers(
    app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(app, monkeypatch)
    await calls.of(scope_of("GET", "/below/healthz", root_path="/below"))
    assert calls.others
