"""uvicorn's HTTP protocol, with limits for slow clients, and with what it gets wrong put right.

uvicorn waits forever for the rest of a request, and for a client to read its answer: who opens connections
and sends little, or reads nothing, could take all connections there are, and all memory.

It also runs the body of a request that offers an upgrade as a request of its own (here the offer is ignored:
RFC 9110, 7.8), answers HTTP/1.0 in chunks, closes connections so that the client loses an early answer, and
writes to clients that have left.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.api import limits
from app.api.gateway import CALLER
from app.api.problems import problem
from app.platform.answers import Unread
from app.platform.deadlines import Caller

log = logging.getLogger("shortlist.http")

STREAMED = re.compile(r"^/v1/catalogues/[^/]+/import$")
# What the kernel takes of an answer before the client does. Without a bound it is megabytes, and a client
# that reads some kilobytes a second seems to read nothing for minutes.
KERNEL_BYTES = 1 << 17
LAST_READ_S = 0.05
# After the last answer of a connection it is closed when nothing came for twice this long.
SILENT_S = 2.5
SILENT_UNANSWERED_S = 0.25  # the same beyond the limit of connections, where each second of one counts

_HEAD = b"HTTP/1.1 %b\r\ncontent-type: application/problem+json\r\ncontent-length: %d\r\n"
_CLOSING = b"connection: close\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Seconds for the head of a request, its body, and silence within it; connections; seconds between looks
    at a client.
    """

    head_s: float = limits.MAX_HEAD_S
    body_s: float = limits.MAX_BODY_S
    silence_s: float = limits.MAX_SILENCE_S
    connections: int = limits.MAX_CONNECTIONS
    look_every_s: float = 5.0


class ShortlistProtocol(HttpToolsProtocol):
    """The value of ``http`` in uvicorn's configuration.

    docs/limits.md has the limits of a client; ``unread`` bounds what all together leave unread. A proxy must
    close an idle connection before ``MAX_IDLE_S``, or it loses requests.

    Where a request is answered before its body has arrived, the answer says ``connection: close``. What the
    client still sends is read and dropped, up to ``MAX_DROPPED_BYTES`` and ``MAX_DROPPED_S``: a connection
    that is closed with unread bytes is reset, and a client that is still sending never sees its answer.

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
    _dropped = 0  # bytes that came after the last request that is answered
    _has_ended = False
    _upgrade_head: bytes | None = None  # of a request that offers an upgrade: its head without the offer
    _taken = 0  # bytes of answers that the client has taken, at the last look
    _unread_since: float | None = None  # since when it has taken nothing, of what waits for it
    _answering: RequestResponseCycle | None = None  # ``cycle`` may be one that waits for its turn

    def __init__(
        self, *arguments: Any, unread: Unread, clients: ClientLimits = ClientLimits(), **named: Any
    ) -> None:
        super().__init__(*arguments, **named)
        self._clients = clients
        self._unread = unread

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        self._caller = Caller()
        self._caller.give_up = self.give_up
        # uvicorn closes the transport in many places: wrapped, each of them comes to ``_close``.
        self._counted = _Counted(transport, self._close)
        super().connection_made(cast("asyncio.Transport", self._counted))
        if (connection := transport.get_extra_info("socket")) is not None:
            with suppress(OSError):  # it is gone already
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, KERNEL_BYTES)
        if len(self.connections) > self._clients.connections:
            self._refuse(503, "unavailable", "too many connections", silent_s=SILENT_UNANSWERED_S)
            return
        self.timeout_keep_alive = limits.MAX_IDLE_S
        self._head_since = self._heard = self._clock()
        self._look_later()

    def connection_lost(self, exc: Exception | None) -> None:
        self._caller.left = True
        if self._watch is not None:
            self._watch.cancel()
        self._unread.release(self.give_up)
        self._counted.leaving = True
        self._counted.close = self._counted.close_now
        if self._answering is not None:  # uvicorn tells this to the request that was read last
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client reads more slowly than it is answered: count all that is left of the answer."""
        super().pause_writing()
        self._unread.hold(self.give_up, self._unread_bytes())

    def resume_writing(self) -> None:
        self._unread.release(self.give_up)
        super().resume_writing()

    def give_up(self, reason: str) -> None:
        """Close the connection at once, with all that its client has not read."""
        log.info("a connection was closed: %s", reason)
        self._unread.release(self.give_up)
        self._reset()

    def data_received(self, data: bytes) -> None:
        self._heard = self._clock()
        if self._counted.leaving:
            self._dropped += len(data)
            if self._dropped > limits.MAX_DROPPED_BYTES:
                self.transport.abort()
            return
        self._began_here = False
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self.logger.warning("Invalid HTTP request received.")
            self.send_400_response("")
        if self._head_since is not None and not self._began_here and not self._counted.leaving:
            # All of it is of the head: the parser holds a name or a value that has not ended yet.
            self._unfinished_bytes += len(data)
            if self._unfinished_bytes > limits.MAX_HEAD_BYTES:
                self._refuse_head()

    def _parse(self, data: bytes) -> None:
        """Give the bytes to the parser. Raises HttpParserError.

        The parser ends a request that offers an upgrade with its head, whatever body it has, and takes what
        follows for the next request. So another one gets such a head, without the offer, and what follows.
        """
        rest = memoryview(data)
        while rest and not self._counted.leaving:
            try:
                self.parser.feed_data(rest)
                break
            except httptools.HttpParserUpgrade as offer:
                rest = rest[offer.args[0] :]
            head, self._upgrade_head = self._upgrade_head, None
            if head is None:
                self._refuse(400, "bad_request", "this service is no proxy: there is no CONNECT")
            else:
                self.parser = httptools.HttpRequestParser(self)
                self.parser.feed_data(head)

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
        if self._body_since is not None:
            return  # a trailer: whoever stands in front has checked the head alone (RFC 9110, 6.5.1)
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
        if self.parser.should_upgrade():
            self._upgrade_head = self._head_without_upgrade()
            return
        self._head_since, self._body_since = None, self._heard
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._body_since = None
        super().on_message_complete()

    def _head_without_upgrade(self) -> bytes | None:
        """None for CONNECT: what follows it is for another server, and none of it may run here."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        # Without the offer the parser takes it for an ordinary request, and knows where its body ends.
        fields = [b"%b: %b" % field for field in self.headers if field[0] != b"upgrade"]
        first = b"%b %b HTTP/%b" % (method, self.url, version)
        return None if method == b"CONNECT" else b"\r\n".join([first, *fields, b"", b""])

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that was idle for too long, unless a request has arrived meanwhile."""
        close = super().timeout_keep_alive_handler
        self.timeout_keep_alive_task = self.loop.call_later(LAST_READ_S, close)

    def shutdown(self) -> None:
        """Close as soon as what has arrived is read and answered: the service ends."""
        self.loop.call_later(LAST_READ_S, super().shutdown)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        if cycle.scope["http_version"] != "1.1":
            # HTTP/1.0 knows neither: a client of it would take "100 Continue" for its answer.
            cycle.keep_alive = cycle.waiting_for_100_continue = False
        framed: Any = _framed(app, cycle, self._reset)  # uvicorn's types of messages are narrower
        super()._start_asgi_task(cycle, framed)

    def _close(self) -> None:
        """Close the connection; where bytes of a request are still to come, only for writing at first."""
        if not self._has_ended and (self._counted.leaving or self._body_since is not None or self.pipeline):
            self._end(SILENT_S)
        else:
            self._counted.leaving = True
            self._counted.close_now()

    def _end(self, silent_s: float) -> None:
        """Send an end after what was written, and drop what comes until the client closes, or a limit."""
        self._counted.leaving = self._has_ended = True
        self.transport.write_eof()
        self.flow.resume_reading()
        last = self.loop.time() + limits.MAX_DROPPED_S

        def look(dropped: int, *, silent: bool) -> None:
            # Twice, as above: the loop reads in between what came while this process did not run.
            is_silent = self._dropped == dropped
            if self.loop.time() > last or (silent and is_silent):
                self._counted.close_now()
            else:
                self.loop.call_later(silent_s, partial(look, self._dropped, silent=is_silent))

        self.loop.call_later(silent_s, partial(look, 0, silent=False))

    def _reset(self) -> None:
        """Close the connection so that its client sees that the answer has no end."""
        if (connection := self.transport.get_extra_info("socket")) is not None:
            with suppress(OSError, ValueError):  # it is gone already
                # With a linger of 0 the kernel sends a reset, not an end: the client must not take what it
                # has for all.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _clock(self) -> float:
        """Seconds in which this process could read, from an arbitrary start."""
        return self.loop.time() - self._lost_s

    def _look_later(self) -> None:
        self._look_at = self.loop.time() + self._clients.look_every_s
        self._watch = self.loop.call_later(self._clients.look_every_s, self._look)

    def _look(self) -> None:
        """Refuse a client that is slow at two looks in a row.

        A look every few seconds, because a timer for each request would cost as much as reading it.
        """
        # A look that comes late says how long this process could not read: that is taken off every client's
        # time.
        self._lost_s += self.loop.time() - self._look_at
        now = self._clock()
        unread, slow = self._is_unread(now), not self._counted.leaving and self._is_slow(now)
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
                self._unread.hold(self.give_up, self._unread_bytes())
        return self._unread_since is not None and now - self._unread_since > limits.MAX_UNREAD_S

    def _unread_bytes(self) -> int:
        """Of the answer that is being sent: what waits in the transport, and what is still to come."""
        left = 0 if self._answering is None else self._answering.expected_content_length
        return self.transport.get_write_buffer_size() + left

    def _is_slow(self, now: float) -> bool:
        if self._head_since is not None:
            return now - self._head_since > self._clients.head_s
        if self._body_since is None or self.flow.read_paused:  # no body is awaited, or the service is slow
            self._heard = now
            return False
        if now - self._heard > self._clients.silence_s:
            return True
        return not STREAMED.match(self.scope["path"]) and now - self._body_since > self._clients.body_s

    def _refuse_head(self) -> None:
        most = f"{limits.MAX_HEAD_BYTES:,} bytes or {limits.MAX_HEAD_FIELDS} fields"
        self._refuse(431, "head_too_large", f"the head of a request must not have more than {most}")

    def _refuse(self, status: int, code: str, detail: str, *, silent_s: float = SILENT_S) -> None:
        """Close the connection, and answer why if no answer to the request has begun."""
        self._counted.leaving = True
        refused = None if self._body_since is None else self.cycle  # None: its head has not arrived
        answering = self._answering
        if answering is not None and answering is not refused and not answering.response_complete:
            answering.keep_alive = False  # an earlier request: its answer is the last one
            return
        if refused is not None:
            refused.disconnected = True
            refused.message_event.set()
        # An answer that has begun cannot become another: then the client sees the connection end.
        if refused is None or not refused.response_started:
            title = HTTPStatus(status).phrase
            body = problem(status, code, title, detail)
            head = _HEAD % (f"{status} {title}".encode(), len(body))
            self.transport.write(head + _CLOSING + body)
        self._end(silent_s)


def _framed(app: ASGIApp, cycle: RequestResponseCycle, reset: Callable[[], None]) -> ASGIApp:
    """Answer a request so that its client knows where the answer ends, and whether the connection goes on.

    HTTP/1.0 knows no chunks: an answer without a length ends with the connection there, and one that breaks
    off with its reset.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        until_closed = False

        async def send_framed(message: Message) -> None:
            nonlocal until_closed
            if message["type"] == "http.response.start":
                # The rest of its body is not read: what follows on the connection could not be told from a
                # request.
                if cycle.more_body:
                    cycle.keep_alive = False
                if scope["http_version"] != "1.1":
                    until_closed = all(name != b"content-length" for name, _ in message["headers"])
                if until_closed:
                    cycle.chunked_encoding = False
            elif until_closed:
                cycle.expected_content_length = len(message.get("body", b""))  # uvicorn compares them
            await send(message)

        try:
            await app(scope, receive, send_framed)
        finally:
            if until_closed and not cycle.response_complete:
                reset()

    return answer


class _Counted:
    """A transport that counts the bytes which are written to it, and is closed by ``close``."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self._transport = transport
        self.close = close
        self.close_now = transport.close
        self.leaving = False  # what the client still sends is dropped
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += len(data)
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self.leaving or self._transport.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
