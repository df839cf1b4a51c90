"""Calls of the API from within: for routes that speak another protocol, and translate it into ours.

A translated request was let in by its own API key (``Routes.key_header``). The inner call is made with the
same key: it needs the same scopes and sees the same bandits as a request from outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import Request
from starlette.types import Message

from app.api.guard import INNER, KEY
from app.api.problems import Problem
from app.api.strict_json import JSON, encoded

_problem_of = msgspec.json.Decoder(Problem).decode


@dataclass(frozen=True, slots=True)
class InnerAnswer:
    """``status`` of HTTP; ``body``: JSON."""

    status: int
    body: bytes

    @property
    def is_problem(self) -> bool:
        return self.status >= 400

    @property
    def problem(self) -> Problem:
        """The problem document of an answer that is one."""
        return _problem_of(self.body)

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


async def inner_call(request: Request, path: str, body: object, *, method: str = "POST") -> InnerAnswer:
    """The API's answer to a call of ``path`` with ``body`` as JSON, made for ``request`` with its key.

    The call is counted and logged as any other, with the request id of ``request``.
    """
    outer = request.scope
    headers = [(name, value) for name, value in outer["headers"] if name in {b"host", b"x-request-id"}]
    headers.append((b"content-type", JSON.encode()))
    scope = {
        name: outer[name]
        for name in ("type", "asgi", "http_version", "scheme", "server", "client", "root_path")
        if name in outer
    }
    scope |= {"method": method, "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": headers, INNER: True, KEY: outer.get(KEY), "state": {}}
    sent = encoded(body)
    status, parts = 0, list[bytes]()
    is_read = False

    async def receive() -> Message:
        nonlocal is_read
        if is_read:
            return await request.receive()  # says when the client of the outer request leaves
        is_read = True
        return {"type": "http.request", "body": sent, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            parts.append(message.get("body", b""))

    await request.app(scope, receive, send)
    return InnerAnswer(status, b"".join(parts))
