"""What the web layer costs of a request, beside the framework's own: microseconds of CPU time.

    python -m load_tests.web_layer [--slices N]

Applications that differ in one part answer the same request of a choice, which chooses nothing, in one
process and without a network: slices of fifty requests in random order. The medians can be compared although
the machine is busy. docs/decisions/0003-strict-json-routes.md and 0007-http-protocol.md say what follows.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any

import uvicorn
import uvloop
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from starlette.middleware.base import BaseHTTPMiddleware
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from app.api.choose import ChooseBody
from app.api.gateway import Gateway
from app.api.guard import Guard
from app.api.strict_json import Provided, json_router, reply
from app.platform.answer_memory import Answers, Unread
from app.platform.metrics import Metrics
from app.platform.settings import Settings
from app.serving.choice import Choice
from server.application import Application
from server.http_protocol import Clients, ShortlistProtocol

REQUESTS = 50
PATH = "/v1/bandits/{bandit}/choose"
BODY = b'{"key":"user-00042"}'
HEADERS = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"20")]
HEAD = (
    b"POST /v1/bandits/b/choose HTTP/1.1\r\n" + b"".join(b"%b: %b\r\n" % field for field in HEADERS) + b"\r\n"
)
SETTINGS = Settings(redis_url="redis://nowhere")
ANSWER = {
    "decision": "x" * 180, "arms": [{"id": "arm-1", "score": 1.5}], "policy": "sub_ts",
    "learner_version": 3, "catalogue_version": 100_000, "exact": False,
}  # fmt: skip

Ask = Callable[[], Awaitable[None]]


class Service:
    """Stands for a service: it chooses nothing."""

    def choose(self, bandit: str, body: ChooseBody) -> dict[str, Any]:  # noqa: ARG002
        return ANSWER


def ours() -> APIRouter:
    router = json_router(tags=[])

    @router.post(PATH, response_model=Choice)
    async def choose(
        bandit: str,
        body: ChooseBody,
        one: Provided[Service],
        two: Provided[Service],
        three: Provided[Service],
    ) -> Response:
        return reply(one.choose(bandit, body))

    return router


def frameworks() -> APIRouter:
    """The same by FastAPI's own route: JSON of any kind, dependencies resolved for each request."""
    router = APIRouter()

    def dependency(name: str) -> Any:
        async def service(request: Request) -> object:  # a plain function would go to a thread
            return getattr(request.app.service, name)

        return Annotated[Any, Depends(service)]

    One, Two, Three = map(dependency, ("one", "two", "three"))

    async def choose(bandit: str, body: ChooseBody, one: One, two: Two, three: Three) -> Response:
        return reply(one.choose(bandit, body))

    choose.__annotations__ |= {"one": One, "two": Two, "three": Three}
    router.post(PATH, response_model=Choice)(choose)
    return router


class FrameworksGateway(BaseHTTPMiddleware):
    """What the gateway does, as a middleware of the framework."""

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(app)
        self._gateway, self._guard = Gateway(app, **options), options["guard"]

    async def dispatch(self, request: Request, call_next: Any) -> Response:
        began = time.perf_counter()
        self._guard.check(request.scope)
        response: Response = await call_next(request)
        response.headers["x-request-id"] = "0" * 32
        self._gateway._record(request.scope, response.status_code, time.perf_counter() - began, b"0" * 32)
        return response


def application(router: APIRouter, layer: Any, kind: type[FastAPI] = Application) -> Ask:
    app: Any = kind()
    service = Service()
    app.service = SimpleNamespace(one=service, two=service, three=service, settings=SETTINGS)
    app.router.routes[:0] = router.routes
    app.add_middleware(
        layer, guard=Guard(SETTINGS), metrics=Metrics(), access_log=False, answers=Answers(1 << 30)
    )

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": BODY, "more_body": False}

    async def send(message: Mapping[str, Any]) -> None:
        assert message.get("status", 200) == 200, message

    async def ask() -> None:
        path = PATH.replace("{bandit}", "b")
        scope = {"type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "root_path": ""}
        scope |= {"path": path, "raw_path": path.encode(), "query_string": b"", "headers": [*HEADERS]}
        await app(scope, receive, send)

    return ask


class Transport:
    """Takes all that is written, and has no socket."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *_: 0 if name == "get_write_buffer_size" else None


def protocol(kind: Callable[..., HttpToolsProtocol]) -> Ask:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"20")]})
        await send({"type": "http.response.body", "body": BODY})

    config = uvicorn.Config(answer, lifespan="off", log_config=None)
    connection = kind(config, ServerState(), {})
    connection.connection_made(Transport())

    async def ask() -> None:
        connection.data_received(HEAD + BODY)
        await asyncio.gather(*connection.tasks)

    return ask


async def measure(slices: int) -> dict[str, float]:
    """Median microseconds of a request, by part."""
    asked = {
        "as served": application(ours(), Gateway),
        "FastAPI's layers": application(ours(), Gateway, FastAPI),
        "FastAPI's APIRoute": application(frameworks(), Gateway, FastAPI),
        "a BaseHTTPMiddleware": application(ours(), FrameworksGateway),
        "the HTTP protocol": protocol(partial(ShortlistProtocol, clients=Clients(Unread(1 << 30)))),
        "uvicorn's HTTP protocol": protocol(HttpToolsProtocol),
    }
    spent: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(slices):
        for name in random.sample(list(asked), len(asked)):
            began = time.thread_time()
            for _ in range(REQUESTS):
                await asked[name]()
            spent[name].append(1e6 * (time.thread_time() - began) / REQUESTS)
    return {name: statistics.median(times) for name, times in spent.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slices", type=int, default=300)
    for name, cost in uvloop.run(measure(parser.parse_args().slices)).items():
        print(f"{name:26} {cost:6.1f} us")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
