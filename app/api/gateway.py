"""The one layer around all routes: request id, guard, metrics, log, missing routes, unexpected errors.

It is plain ASGI. As a ``BaseHTTPMiddleware`` it would take half as much CPU as a decision.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from contextlib import suppress
from typing import cast

from prometheus_client import Counter, Histogram
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.guard import Guard, Headers, protocol_of
from app.api.problems import PROBLEM, kind_of, of_the_framework, problem, problem_of
from app.platform.answer_memory import Answers, HttpAnswer
from app.platform.deadlines import CallerLeft, OneCall, set_caller
from app.platform.errors import NotFound, ShortlistError
from app.platform.metrics import Metrics

log = logging.getLogger("shortlist.http")

REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
METHODS = {"GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"}
CALLER = "shortlist.caller"  # in the scope of a request: whose it is, where the server says so
ARRIVED = "shortlist.arrived"  # likewise: all of its body has arrived
SILENT_S = 2.5  # without a byte, and the client sends no more of a body that is answered already
CLIENT_LEFT = 499  # the status under which nginx counts such requests


class Gateway:
    """Wraps the application."""

    def __init__(
        self, app: ASGIApp, *, guard: Guard, metrics: Metrics, access_log: bool, answers: Answers
    ) -> None:
        self._app = app
        self._guard = guard
        self._metrics = metrics
        self._access_log = access_log
        self._answers = answers
        self._children: dict[tuple[str, str, int], tuple[Histogram, Counter]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        # Only our server says so; under a test's transport there is no connection to watch.
        if CALLER in scope:
            set_caller(scope[CALLER])
        answer = HttpAnswer(self._answers)
        request_id = _request_id(scope)
        status, is_early = 0, False

        async def send_with_id(message: Message) -> None:
            nonlocal status, is_early
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
                if is_early := ARRIVED not in scope and CALLER in scope:
                    message["headers"].append((b"connection", b"close"))
            elif is_early and not message.get("more_body", False) and ARRIVED not in scope:
                # A client still sending would lose the answer if the connection closed now.
                await send({**message, "more_body": True})
                await _drop_body(receive)
                message = {"type": "http.response.body"}
            await send(message)

        try:
            if (refusal := self._refusal(scope)) is None:
                with OneCall():
                    await self._app(scope, receive, send_with_id)
            else:
                headers = self._guard.refusal_headers(scope, refusal)
                await _send(send_with_id, kind_of(refusal).status, _refusal_body(scope, refusal), headers)
        except HTTPException as error:  # no route takes the request: nothing was sent
            response = _without_route(scope, error)
            response.raw_headers += self._guard.origin_headers(scope)
            await response(scope, receive, send_with_id)
        except (ClientDisconnect, CallerLeft):  # nobody is there to answer, and nothing went wrong here
            status = CLIENT_LEFT
        except ShortlistError as error:  # the answer has begun: who serves it closes the connection
            log.warning("an answer broke off: %s", error, extra={"request_id": request_id.decode()})
        except Exception:
            log.exception("request failed", extra={"request_id": request_id.decode()})
            await _send_internal(send_with_id, has_begun=bool(status))
        finally:
            answer.end()
            self._record(scope, status, time.perf_counter() - started, request_id)

    def _refusal(self, scope: Scope) -> ShortlistError | None:
        try:
            self._guard.check(scope)
        except ShortlistError as error:
            # Its frames refer to the caller's, which refers to it: a cycle, left to the collector.
            return error.with_traceback(None)
        return None

    def _record(self, scope: Scope, status: int, seconds: float, request_id: bytes) -> None:
        route = getattr(scope.get("route"), "path", "none")
        # Anybody may send any word as a method: each would be a series of its own forever.
        method = scope["method"] if scope["method"] in METHODS else "other"
        # Kept by us: ``labels`` of the library takes a lock and builds a key of texts at each call.
        counters = self._children.get((method, route, status))
        if counters is None:
            counters = (
                self._metrics.request_seconds.labels(route),
                self._metrics.requests.labels(method, route, str(status)),
            )
            self._children[method, route, status] = counters
        counters[0].observe(seconds)
        counters[1].inc()
        if self._access_log or status >= 500:
            fields = {"request_id": request_id.decode(), "method": method, "route": route}
            log.info("request", extra={**fields, "status": status, "ms": round(seconds * 1e3, 3)})


def _request_id(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and REQUEST_ID.fullmatch(value):
            return cast("bytes", value)
    return new_request_id()


def new_request_id() -> bytes:
    return b"%032x" % random.getrandbits(128)


def _refusal_body(scope: Scope, refusal: ShortlistError) -> bytes:
    """In the shape of the protocol that the request speaks."""
    protocol = protocol_of(scope["path"])
    return problem_of(refusal) if protocol is None else bytes(protocol.refuse(refusal, scope["method"]).body)


def _without_route(scope: Scope, error: HTTPException) -> Response:
    """The answer to a request that no route takes, in the shape of its protocol."""
    if (protocol := protocol_of(scope["path"])) is None:
        return of_the_framework(Request(scope), error)
    return protocol.refuse(NotFound("there is no such call"), scope["method"])


async def _drop_body(receive: Receive) -> None:
    """Return when the body has arrived, or no more of it comes."""
    with suppress(TimeoutError):
        more = True
        while more:
            async with asyncio.timeout(SILENT_S):
                more = (await receive()).get("more_body", False)


async def _send_internal(send: Send, *, has_begun: bool) -> None:
    # The status is sent already: a second answer would be read as a part of the first.
    if not has_begun:
        body = problem(500, "internal", "Internal error", "the error was logged under the request id")
        await _send(send, 500, body, [])


async def _send(send: Send, status: int, body: bytes, more: Headers) -> None:
    headers = [(b"content-type", PROBLEM.encode()), (b"content-length", b"%d" % len(body)), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
