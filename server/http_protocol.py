"""uvicorn's HTTP protocol, with deadlines for its clients.

uvicorn waits forever for the rest of a request, and for a client to read its answer: who opens connections
and sends little, or reads nothing, could take all connections there are, and all memory.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.api import request_limits as limits
from app.api.gateway import ARRIVED, CALLER, new_request_id
from app.api.problems import problem
from app.platform.answer_memory import Unread
from app.platform.deadlines import Caller

log = logging.getLogger("shortlist.http")

Refusal = tuple[int, str, str]  # status, code, detail
NO_HTTP: Refusal = (400, "bad_request", "the request cannot be read as HTTP/1.1")
NO_UPGRADE: Refusal = (400, "bad_request", "this service speaks HTTP/1.1 alone: send no Upgrade, no CONNECT")
MOST = f"{limits.MAX_HEAD_BYTES:,} bytes or {limits.MAX_HEAD_FIELDS} fields"
LARGE_HEAD: Refusal = (431, "head_too_large", f"the head of a request must not have more than {MOST}")
LATE: Refusal = (408, "timeout", "the request took too long to arrive")
TOO_MANY: Refusal = (503, "unavailable", "too many connections")
LAST_READ_S = 0.05

_ANSWER = (
    b"HTTP/1.1 %d %b\r\ncontent-type: application/problem+json\r\ncontent-length: %d\r\n"
    b"x-request-id: %b\r\nconnection: close\r\n\r\n%b"
)


class Clients:
    """The common state of all connections of a process.

    ``unread``        bytes that clients have not read
    ``connections``   at most; further ones are refused
    ``now``           seconds in which this process ran: the server adds one after each
    """

    # Only clients can be late, never this process: a pause of the process, however long, is one second.
    def __init__(self, unread: Unread, *, connections: int = limits.MAX_CONNECTIONS) -> None:
        self.unread = unread
        self.connections = connections
        self.now = 0


class ShortlistProtocol(HttpToolsProtocol):
    """The value of ``http`` in uvicorn's configuration. The server calls ``look`` once a second.

    docs/limits.md has the limits of a client. A proxy must close an idle connection before ``MAX_IDLE_S``,
    or it loses requests.
    """

    _head_bytes = 0
    _arriving_since: int | None  # of the request that has begun to arrive; None: none has
    _unread_since: int  # since when its client has read nothing of a stream, or not all of an answer
    _unread_bytes = 0
    _is_paused = False  # more than a few bytes are unread: they count
    _refusal = NO_HTTP
    _answering: RequestResponseCycle | None = None  # ``cycle`` may be one that waits for its turn

    def __init__(self, *arguments: Any, clients: Clients, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._clients = clients

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._caller = Caller()
        self._arriving_since = self._unread_since = self._clients.now
        if len(self.connections) > self._clients.connections:
            self._refuse(TOO_MANY)

    def connection_lost(self, exc: Exception | None) -> None:
        self._caller.left = True
        self._clients.unread.release(self._give_up)
        if self._answering is not None:  # uvicorn tells this to the request that was read last
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    def look(self) -> None:
        """End the connection if its client is late: with a request, or in reading an answer."""
        now, streams = self._clients.now, self._caller.streams
        most = limits.MAX_SILENCE_S if streams else limits.MAX_TRANSFER_S
        unread = self.transport.get_write_buffer_size()
        # While it is paused nothing is added, so the client has read what is missing.
        if unread != self._unread_bytes and self._is_paused:
            self._clients.unread.hold(self._give_up, unread)
        if not unread or (streams and unread != self._unread_bytes):
            self._unread_since = now
        self._unread_bytes = unread
        if now - self._unread_since > most:
            self._give_up(f"its client took more than {most} s to read an answer")
        elif self._arriving_since is None or self.transport.is_closing():
            return
        elif not self.transport.is_reading():  # the service is slow, not the client
            self._arriving_since = now
        elif now - self._arriving_since > most:
            self._refuse(LATE)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._is_paused = True
        self._clients.unread.hold(self._give_up, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._is_paused = False
        self._clients.unread.release(self._give_up)
        self._unread_since = self._clients.now
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._arriving_since is None:
            self._arriving_since = self._clients.now
        self._head_bytes += len(data)  # none of them are, if a head or a part of a body begins in them
        super().data_received(data)
        if self._head_bytes > limits.MAX_HEAD_BYTES:
            self._refuse(LARGE_HEAD)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Refuse what the parser stopped at with a problem document."""
        self._refuse(self._refusal)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        self._arriving_since = self._clients.now
        self._caller.streams = False
        self.scope[CALLER] = self._caller  # type: ignore[literal-required]  # the type has no others

    def on_headers_complete(self) -> None:
        """Raises ValueError for a head that is refused: the parser stops there."""
        if self.parser.should_upgrade():
            # The parser would take the body for the next request.
            self._refusal = NO_UPGRADE
            raise ValueError
        # The parser cannot split a path as long as that.
        if len(self.headers) > limits.MAX_HEAD_FIELDS or len(self.url) >= limits.MAX_HEAD_BYTES:
            self._refusal = LARGE_HEAD
            raise ValueError
        super().on_headers_complete()
        # Trailers go nowhere: whoever stands in front has checked the head alone (RFC 9110, 6.5.1).
        self.headers = []

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        if self._caller.streams:
            self._arriving_since = self._clients.now
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._arriving_since = None
        self.scope[ARRIVED] = True  # type: ignore[literal-required]
        super().on_message_complete()

    def shutdown(self) -> None:
        """Close as soon as what has arrived is read and answered: the service ends."""
        self.loop.call_later(LAST_READ_S, super().shutdown)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _give_up(self, reason: str) -> None:
        """Close the connection at once, with all that its client has not read."""
        log.info("a connection was closed: %s", reason)
        self._clients.unread.release(self._give_up)
        self.transport.abort()

    def _refuse(self, refusal: Refusal) -> None:
        """Close the connection, and say why, unless something else is being answered on it."""
        if self.transport.is_closing():
            return
        status, code, detail = refusal
        last = self._answering
        is_own = last is not None and last.scope is self.scope
        if last is None or last.response_complete or (is_own and not last.response_started):
            title = HTTPStatus(status).phrase
            body = problem(status, code, title, detail)
            self.transport.write(_ANSWER % (status, title.encode(), len(body), new_request_id(), body))
        self.transport.close()
