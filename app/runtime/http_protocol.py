"""uvicorn's HTTP protocol, but it does not wait for slow clients, and the head leaves together with its body.

uvicorn writes head and body one after the other, and uvloop makes a system call of each: a tenth of the time
that a decision takes, and the client is woken twice. It also waits for ever for the rest of a request, so
whoever opens connections and says little would take them all.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.api import limits
from app.api.gateway import STREAMED
from app.api.problems import problem

LOOK_EVERY_S = 5.0

_HEAD = b"HTTP/1.1 %b\r\ncontent-type: application/problem+json\r\ncontent-length: %d\r\n"
_CLOSING = b"connection: close\r\n\r\n"


class ShortlistProtocol(HttpToolsProtocol):
    """What ``http`` of uvicorn's configuration takes.

    The head of a request must arrive within ``MAX_HEAD_S``, its body within ``MAX_BODY_S`` and without a
    silence of ``MAX_SILENCE_S``; only the latter holds for a body that is streamed. Between two requests a
    connection may be idle for ``MAX_IDLE_S``: a proxy must be the first to close one, or it loses requests.
    Beyond ``MAX_CONNECTIONS`` at a time the next one is told so and closed.
    """

    _watch: asyncio.TimerHandle | None = None
    _head_since: float | None = None
    _body_since: float | None = None
    _heard: float = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(cast("asyncio.Transport", HeldWrites(transport, self.loop)))
        if len(self.connections) > limits.MAX_CONNECTIONS:
            self._refuse(503, "unavailable", "too many connections")
            return
        self.timeout_keep_alive = limits.MAX_IDLE_S
        self._head_since = self._heard = self.loop.time()
        self._watch = self.loop.call_later(LOOK_EVERY_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._heard = self.loop.time()
        super().data_received(data)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """What is no HTTP, or has a head of more than the parser takes, is refused as everything is."""
        self._refuse(400, "bad_request", "the request cannot be read as HTTP/1.1")

    def on_message_begin(self) -> None:
        if self._head_since is None:
            self._head_since = self._heard
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_since, self._body_since = None, self._heard
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._body_since = None
        super().on_message_complete()

    def _look(self) -> None:
        """Now and then: a timer for each request would cost as much as reading it."""
        if self._is_slow(self.loop.time()):
            self._refuse(408, "timeout", "the request took too long to arrive")
        else:
            self._watch = self.loop.call_later(LOOK_EVERY_S, self._look)

    def _is_slow(self, now: float) -> bool:
        if self._head_since is not None:
            return now - self._head_since > limits.MAX_HEAD_S
        if self._body_since is None or self.flow.read_paused:  # nothing is awaited, or we ourselves are slow
            self._heard = now
            return False
        if now - self._heard > limits.MAX_SILENCE_S:
            return True
        return not STREAMED.match(self.scope["path"]) and now - self._body_since > limits.MAX_BODY_S

    def _refuse(self, status: int, code: str, detail: str) -> None:
        """Close; say why, if nothing was answered yet."""
        if self._head_since is not None or self.cycle is None or not self.cycle.response_started:
            title = HTTPStatus(status).phrase
            body = problem(status, code, title, detail)
            head = _HEAD % (f"{status} {title}".encode(), len(body))
            self.transport.write(head + _CLOSING + body)
        self.transport.close()


class HeldWrites:
    """A transport that holds a write until the next one, at most until the loop's next turn.

    Never more than one is held, so what the transport says of its buffer is in force again at once.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""

    def write(self, data: bytes) -> None:
        if self._held:
            held, self._held = self._held, b""
            self._transport.writelines((held, data))
        else:
            self._held = data
            self._loop.call_soon(self.release)

    def release(self) -> None:
        """Write what is held."""
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held)

    def close(self) -> None:
        self.release()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
