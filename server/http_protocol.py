"""uvicorn's HTTP protocol, with limits for slow clients.

uvicorn waits for ever for the rest of a request, and for a client to read its answer: who opens connections
and sends little, or reads nothing, could take all connections there are, and all memory.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from contextlib import suppress
from http import HTTPStatus
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.api import limits
from app.api.gateway import CALLER
from app.api.problems import problem
from app.services.bounded.caller import Caller
from app.services.bounded.unread import Unread

log = logging.getLogger("shortlist.http")

STREAMED = re.compile(r"^/v1/catalogues/[^/]+/import$")
LOOK_EVERY_S = 5.0
# What the kernel takes of an answer before the client does. Without a bound it is megabytes, and a client
# that reads some kilobytes a second seems to read nothing for minutes.
KERNEL_BYTES = 1 << 17
LAST_READ_S = 0.05
LINGER_S = 0.5  # a connection that is closed with unread bytes loses its last answer

_HEAD = b"HTTP/1.1 %b\r\ncontent-type: application/problem+json\r\ncontent-length: %d\r\n"
_CLOSING = b"connection: close\r\n\r\n"


class ShortlistProtocol(HttpToolsProtocol):
    """The value of ``http`` in uvicorn's configuration.

    A head of more than ``MAX_HEAD_BYTES`` or ``MAX_HEAD_FIELDS`` is answered with 431 before it takes memory.
    It must arrive within ``MAX_HEAD_S``, its body within ``MAX_BODY_S`` and without a
    silence of ``MAX_SILENCE_S``. A streamed body has only the limit of silence. Between two requests a
    connection may be idle for ``MAX_IDLE_S``: a proxy must close it first, or the proxy loses requests.
    Beyond ``MAX_CONNECTIONS`` open connections a new one is answered with 503 and closed. A connection whose
    client takes nothing of an answer for ``MAX_UNREAD_S`` is closed, and ``unread`` bounds what all clients
    together leave unread.

    Only clients can be late, never this process. Time in which the process does not run (it is paused, or
    the machine is busy) does not count, and what is in the socket's buffer is read before a connection is
    closed: each limit must be passed twice, and the loop reads in between.
    """

    _watch: asyncio.TimerHandle | None = None
    _look_at: float = 0.0
    _lost_s: float = 0.0  # how late all looks of this connection were together
    _was_slow = False
    _head_since: float | None = None
    _body_since: float | None = None
    _heard: float = 0.0
    _head_bytes = 0
    _head_fields = 0
    _unfinished_bytes = 0
    _began_here = False  # the head began in the bytes that arrived last
    _refused = False
    _taken = 0  # bytes of answers that the client has taken, at the last look
    _unread_since: float | None = None  # since when it has taken nothing, of what waits for it
    _answering: RequestResponseCycle | None = None  # ``cycle`` may be one that waits for its turn

    def __init__(self, *arguments: Any, unread: Unread, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._unread = unread

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        self._caller = Caller()
        self._caller.give_up = self.give_up
        self._counted = _Counted(transport)
        super().connection_made(cast("asyncio.Transport", self._counted))
        if (connection := transport.get_extra_info("socket")) is not None:
            with suppress(OSError):  # it is gone already
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, KERNEL_BYTES)
        if len(self.connections) > limits.MAX_CONNECTIONS:
            self._refuse(503, "unavailable", "too many connections")
            return
        self.timeout_keep_alive = limits.MAX_IDLE_S
        self._head_since = self._heard = self._clock()
        self._look_later()

    def connection_lost(self, exc: Exception | None) -> None:
        self._caller.left = True
        if self._watch is not None:
            self._watch.cancel()
        self._unread.release(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client reads more slowly than it is answered: count all that is left of the answer."""
        super().pause_writing()
        self._unread.hold(self, self._unread_bytes())

    def resume_writing(self) -> None:
        self._unread.release(self)
        super().resume_writing()

    def give_up(self, reason: str) -> None:
        """Close the connection at once, with all that its client has not read."""
        log.info("a connection was closed: %s", reason)
        self._unread.release(self)
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return  # the client is given a moment to read why; what it still sends is let go
        self._heard = self._clock()
        self._began_here = False
        super().data_received(data)
        if self._head_since is not None and not self._began_here and not self._refused:
            # All of it is of the head: the parser holds a name or a value that has not ended yet.
            self._unfinished_bytes += len(data)
            if self._unfinished_bytes > limits.MAX_HEAD_BYTES:
                self._refuse_head()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Refuse what is no HTTP, or has a larger head than the limits, with a problem document."""
        if self._head_bytes > limits.MAX_HEAD_BYTES or self._head_fields > limits.MAX_HEAD_FIELDS:
            self._refuse_head()
        else:
            self._refuse(400, "bad_request", "the request cannot be read as HTTP/1.1")

    def on_url(self, url: bytes) -> None:
        """Count a part of the head. Raises ValueError beyond the limits: the parser stops there."""
        self._head_bytes += len(url)
        if self._head_bytes > limits.MAX_HEAD_BYTES:
            raise ValueError
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_fields += 1
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > limits.MAX_HEAD_BYTES or self._head_fields > limits.MAX_HEAD_FIELDS:
            raise ValueError
        name = name.lower()
        if name == b"expect":
            super().on_header(name, value)
        else:
            self.headers.append((name, value))

    def on_message_begin(self) -> None:
        self._head_bytes = self._head_fields = self._unfinished_bytes = 0
        self._began_here = True
        if self._head_since is None:
            self._head_since = self._heard
        super().on_message_begin()
        self.scope[CALLER] = self._caller  # type: ignore[literal-required]  # the type has no others

    def on_headers_complete(self) -> None:
        self._head_since, self._body_since = None, self._heard
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._body_since = None
        super().on_message_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that was idle for too long, unless a request has arrived meanwhile."""
        close = super().timeout_keep_alive_handler
        self.timeout_keep_alive_task = self.loop.call_later(LAST_READ_S, close)

    def shutdown(self) -> None:
        """Close as soon as what has arrived is read and answered: the service ends."""
        self.loop.call_later(LAST_READ_S, super().shutdown)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _clock(self) -> float:
        """Seconds in which this process could read, from an arbitrary start."""
        return self.loop.time() - self._lost_s

    def _look_later(self) -> None:
        self._look_at = self.loop.time() + LOOK_EVERY_S
        self._watch = self.loop.call_later(LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        """Refuse a client that is slow at two looks in a row.

        A look every few seconds, because a timer for each request would cost as much as reading it.
        """
        self._lost_s += self.loop.time() - self._look_at
        now = self._clock()
        unread, slow = self._is_unread(now), not self._refused and self._is_slow(now)
        if self._was_slow and unread:
            self.give_up(f"its client has read nothing for {limits.MAX_UNREAD_S} s")
            return
        if self._was_slow and slow:
            self._refuse(408, "timeout", "the request took too long to arrive")
        self._was_slow = slow or unread
        self._look_later()

    def _is_unread(self, now: float) -> bool:
        """Whether the client has taken nothing for too long of an answer that waits for it."""
        waits = self.transport.get_write_buffer_size()
        before, self._taken = self._taken, self._counted.written - waits
        if not waits:
            self._unread_since = None
        elif self._unread_since is None or self._taken > before:
            self._unread_since = now
            if self.flow.write_paused:
                self._unread.hold(self, self._unread_bytes())
        return self._unread_since is not None and now - self._unread_since > limits.MAX_UNREAD_S

    def _unread_bytes(self) -> int:
        """Of the answer that is being sent: what waits in the transport, and what is still to come."""
        left = 0 if self._answering is None else self._answering.expected_content_length
        return self.transport.get_write_buffer_size() + left

    def _is_slow(self, now: float) -> bool:
        if self._head_since is not None:
            return now - self._head_since > limits.MAX_HEAD_S
        if self._body_since is None or self.flow.read_paused:  # no body is awaited, or the service is slow
            self._heard = now
            return False
        if now - self._heard > limits.MAX_SILENCE_S:
            return True
        return not STREAMED.match(self.scope["path"]) and now - self._body_since > limits.MAX_BODY_S

    def _refuse_head(self) -> None:
        most = f"{limits.MAX_HEAD_BYTES:,} bytes or {limits.MAX_HEAD_FIELDS} fields"
        self._refuse(431, "head_too_large", f"the head of a request must not have more than {most}")

    def _refuse(self, status: int, code: str, detail: str) -> None:
        """Close the connection, and answer why if no answer to the request has begun."""
        if self._head_since is not None or self.cycle is None or not self.cycle.response_started:
            title = HTTPStatus(status).phrase
            body = problem(status, code, title, detail)
            head = _HEAD % (f"{status} {title}".encode(), len(body))
            self.transport.write(head + _CLOSING + body)
        self._refused = True
        self.loop.call_later(LINGER_S, self.transport.close)


class _Counted:
    """A transport that counts the bytes which are written to it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += len(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
