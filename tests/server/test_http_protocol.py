"""Slow clients are cut off, but never for a pause of the service itself."""

import asyncio
import socket
import types
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.server import ServerState

from app.api import limits
from app.api.gateway import CALLER
from app.platform.answers import Unread
from app.platform.deadlines import Caller
from server import http_protocol
from server.http_protocol import ClientLimits, ShortlistProtocol
from waiting import wait_until_sync

pytestmark = pytest.mark.rest


class Recorder:
    """A transport that remembers; ``calls`` are what reaches the system."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.calls.append(data)

    def close(self) -> None:
        self.closed = True

    def get_extra_info(self, name: str) -> str:
        return f"the {name}"


SLOW_S = 2.0
MOST = 10_000_000
PROTOCOL: Any = partial(ShortlistProtocol, unread=Unread(MOST))


CALLERS: list[Caller] = []


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    body, more = b"", True
    CALLERS.append(scope[CALLER])
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    if scope["path"] == "/slow":
        await asyncio.wait([asyncio.ensure_future(receive())], timeout=SLOW_S)
    parts = {b"long": [b"y" * 3_000_000], b"many": [b"z" * 70_000] * 20}.get(body[:4], [b"x"])
    headers = [(b"content-length", b"%d" % sum(map(len, parts)))] if b"sized" in body else []
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    if scope["path"] == "/broken":
        raise OSError
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def clients() -> ClientLimits:
    """Those of the service, unless a test asks for others."""
    return ClientLimits()


@pytest.fixture
async def address(clients: ClientLimits) -> AsyncIterator[tuple[str, int]]:
    protocol: Any = partial(PROTOCOL, clients=clients)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(application, http=protocol, lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        # private: on a socket of the test's own, whose port is known
        serving = asyncio.create_task(server._serve([listener]))
        yield listener.getsockname()
        server.should_exit = True
        await serving


@pytest.mark.anyio
@pytest.mark.parametrize(("body", "size"), [(b"short", 1), (b"long", 3_000_000), (b"many", 1_400_000)])
async def test_a_server_with_it_answers_whole(address: tuple[str, int], body: bytes, size: int) -> None:
    reader, writer = await asyncio.open_connection(*address)
    for _ in range(2):  # the connection stays good for the next
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        received = 0
        while length := int(await reader.readline(), 16):
            received += len(await reader.readexactly(length))
            await reader.readexactly(2)
        await reader.readexactly(2)
        assert received == size
    writer.close()
    await writer.wait_closed()


@pytest.mark.anyio
async def test_it_says_when_a_caller_has_left(address: tuple[str, int]) -> None:
    CALLERS.clear()
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
    writer.write(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
    await asyncio.to_thread(wait_until_sync, lambda: len(CALLERS) == 2, what="the request is read")
    assert not any(caller.left for caller in CALLERS)
    writer.close()
    first, second = CALLERS
    await asyncio.to_thread(wait_until_sync, lambda: first.left and second.left, what="the caller has left")


@pytest.mark.anyio
@pytest.mark.parametrize(
    "request_bytes",
    [
        b"HELLO\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: abc\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",  # TLS
        b"GET /a b HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_a_problem_too(address: tuple[str, int], request_bytes: bytes) -> None:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request_bytes)
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\n")
    assert b'"code":"bad_request"' in answer
    writer.close()
    await writer.wait_closed()


@pytest.mark.anyio
async def test_an_answer_that_breaks_off_is_not_taken_for_whole(address: tuple[str, int]) -> None:
    """By HTTP/1.0 too, where an answer without a length ends with the connection."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"GET /broken HTTP/1.0\r\nhost: x\r\n\r\n")
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()


# Heads ----------------------------------------------------------------------------------------------
@pytest.mark.anyio
@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 101 + b"\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"b" * 65_536 + b"\r\n\r\n",
        b"GET /" + b"a" * 65_536 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a" * 65_536 + b": b\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\n" + b"abcdefgh: ijklmnop\r\n" * 500_000,  # of 10 MB, without an end
        b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"b" * 10_000_000,
    ],
)
async def test_a_head_beyond_the_limits_is_refused(address: tuple[str, int], head: bytes) -> None:
    reader, writer = await asyncio.open_connection(*address)
    answer = asyncio.create_task(everything(reader))
    with suppress(ConnectionError):  # it may be closed before all was sent
        for start in range(0, len(head), 100_000):
            writer.write(head[start : start + 100_000])
            await writer.drain()
    found = await answer
    assert found.startswith(b"HTTP/1.1 431 ")
    assert b'"code":"head_too_large"' in found
    assert b"connection: close" in found
    writer.close()


@pytest.mark.anyio
async def test_a_head_at_the_limits_is_read_wherever_it_is_cut(address: tuple[str, int]) -> None:
    rest = limits.MAX_HEAD_BYTES - len("/") - 99 * len("ab") - len("host") - len("x")
    fields = b"a: b\r\n" * 98 + b"a: " + b"b" * rest
    head = b"GET / HTTP/1.1\r\nhost: x\r\n" + fields + b"\r\n\r\n"
    assert head.count(b"\r\n") - 2 == limits.MAX_HEAD_FIELDS
    for cut in (1, 20, 1_000, 65_000, len(head) - 1):
        reader, writer = await asyncio.open_connection(*address)
        for _ in range(2):  # what is counted is counted for each request
            writer.write(head[:cut])
            await writer.drain()
            await asyncio.sleep(0)
            writer.write(head[cut:])
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
            while length := int(await reader.readline(), 16):
                await reader.readexactly(length + 2)
            await reader.readexactly(2)
        writer.close()


@pytest.mark.anyio
async def test_what_came_before_a_head_does_not_count_for_it(address: tuple[str, int]) -> None:
    reader, writer = await asyncio.open_connection(*address)
    body = b"x" * 200_000
    one = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    writer.write(one + one + one[:20])
    await writer.drain()
    writer.write(one[20:])
    for _ in range(3):
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        while length := int(await reader.readline(), 16):
            await reader.readexactly(length + 2)
        await reader.readexactly(2)
    writer.close()


# Slow clients ---------------------------------------------------------------------------------------
HEADERS = b"host: x\r\ncontent-length: 100\r\n"
CLOSE = b"connection: close\r\n\r\n"


IMPATIENT = ClientLimits(look_every_s=0.05, head_s=0.6, silence_s=0.6, body_s=1.0)
"""Limits that a test can wait for."""


async def everything(reader: asyncio.StreamReader) -> bytes:
    """What arrives until the other side closes, also when that meets a drop on its way."""
    found = b""
    with suppress(ConnectionResetError):
        while piece := await reader.read(10_000):
            found += piece
    return found


async def dripped(address: tuple[str, int], start: bytes, drop: bytes) -> bytes:
    """What comes back when ``drop`` follows ``start`` every 20 ms until the other side closes."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(start)
    answer = asyncio.create_task(everything(reader))
    while drop and not answer.done():
        writer.write(drop)
        await asyncio.wait([answer], timeout=0.02)
    async with asyncio.timeout(60):
        found = await answer
    writer.close()
    return found


@pytest.mark.anyio
@pytest.mark.parametrize("clients", [IMPATIENT])
@pytest.mark.parametrize(
    ("start", "drop"),
    [
        (b"", b""),
        (b"GET / HTTP/1.1\r\nhost: x\r\n", b"x: y\r\n"),  # a head that never ends
        (b"POST / HTTP/1.1\r\n" + HEADERS + b"\r\n", b""),  # a body that does not come
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n", b"x"),  # or takes forever
        (b"POST /v1/catalogues/c/import HTTP/1.1\r\n" + HEADERS + b"\r\nx", b""),  # streamed, and silent
    ],
)
async def test_who_sends_slowly_is_told_so_and_cut_off(
    address: tuple[str, int], start: bytes, drop: bytes
) -> None:
    answer = await dripped(address, start, drop)
    assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/problem+json\r\n")
    assert b'"code":"timeout"' in answer


@pytest.mark.anyio
@pytest.mark.parametrize("clients", [IMPATIENT])
async def test_a_streamed_body_may_take_longer_than_others(address: tuple[str, int]) -> None:
    """100 pieces of 20 ms: twice the time that another body has, and never silent."""
    head = b"POST /v1/catalogues/c/import HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n" + CLOSE
    assert (await dripped(address, head, b"x")).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.anyio
@pytest.mark.parametrize("clients", [IMPATIENT])
async def test_an_answer_that_takes_long_is_not_cut_off(address: tuple[str, int]) -> None:
    answer = await dripped(address, b"GET /slow HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", b"")
    assert answer.startswith(b"HTTP/1.1 200 OK")


# Pauses of the service ------------------------------------------------------------------------------
class Request:
    """A task of the loop that the test runs itself."""

    def __init__(self, run: Coroutine[Any, Any, None]) -> None:
        self.run = run

    def add_done_callback(self, callback: object) -> None:
        pass


class PausedLoop:
    """A loop with a clock of its own. A paused process looks at its timers first, then at its sockets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.requests: list[Request] = []
        self._timers: list[asyncio.TimerHandle] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.call_later(0.0, callback)

    def call_later(self, delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(self.now + delay, callback, (), self)  # type: ignore[arg-type]
        self._timers.append(timer)
        return timer

    def create_task(self, run: Coroutine[Any, Any, None]) -> Request:
        self.requests.append(Request(run))
        return self.requests[-1]

    def get_debug(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._timers.remove(handle)

    def pause(self, seconds: float) -> None:
        """Time passes; then the timers that are due run, but no timer that they start."""
        self.now += seconds
        for timer in sorted(t for t in self._timers if t.when() <= self.now):
            if not timer.cancelled():
                self._timers.remove(timer)
                timer._run()  # private: the timer fires at a moment that the test chooses

    def run(self, seconds: float) -> None:
        """Time passes for a process that runs: each timer is on time."""
        end = self.now + seconds
        while (first := min(self._timers, default=None)) is not None and first.when() <= end:
            self.pause(max(0.0, first.when() - self.now))
        self.now = end


class Transport(Recorder):
    """A transport that a protocol can ask. ``unread``: how much of what was written waits for the client.

    With a ``protocol`` the client reads nothing, and the protocol is told so.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unread = 0
        self.aborted = self.ended = False
        self.protocol: ShortlistProtocol | None = None

    def write(self, data: bytes) -> None:
        super().write(data)
        self._wait(len(data))

    def _wait(self, amount: int) -> None:
        if self.protocol is not None:
            self.unread += amount
            if self.unread > HIGH_WATER_LIMIT:
                self.protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self.unread

    def write_eof(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str) -> None:  # type: ignore[override]
        return None


class Connection:
    """A client's connection to the protocol under a ``PausedLoop``."""

    def __init__(
        self, loop: PausedLoop | None = None, unread: Unread | None = None, app: ASGIApp = application
    ) -> None:
        self.loop, self.system = loop or PausedLoop(), Transport()
        self.protocol = ShortlistProtocol(
            uvicorn.Config(app, http=PROTOCOL, lifespan="off", log_config=None),
            ServerState(),
            {},
            _loop=self.loop,
            unread=unread or Unread(MOST),  # type: ignore[arg-type]
        )
        self.protocol.connection_made(self.system)  # type: ignore[arg-type]

    def send(self, data: bytes) -> None:
        self.protocol.data_received(data)

    def answer(self) -> None:
        """Run the request that was received last, to its end."""
        with suppress(StopIteration):
            self.loop.requests.pop().run.send(None)

    def close(self) -> None:
        for request in self.loop.requests:
            request.run.close()


REQUEST = b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nshort"


@pytest.fixture
def connection() -> Iterator[Connection]:
    connection = Connection()
    yield connection
    connection.close()


@pytest.fixture
def kept_alive(connection: Connection) -> Connection:
    """A connection on which one request was answered just now."""
    connection.send(REQUEST)
    connection.answer()
    connection.loop.run(0)
    assert b"200 OK" in b"".join(connection.system.calls)
    return connection


@pytest.mark.parametrize(
    ("sent", "ran"),
    [
        *((0, ran) for ran in (0.0, 4.9, 5.1, limits.MAX_IDLE_S - 0.1)),
        *((20, ran) for ran in (0.0, 4.9, 5.1, limits.MAX_HEAD_S - 0.1)),
        *((len(REQUEST) - 2, ran) for ran in (0.0, 4.9, 5.1, limits.MAX_SILENCE_S - 0.1)),
    ],
)
@pytest.mark.parametrize("pause", [0.2, 10.0, 100.0, 1_000.0])
def test_what_arrives_while_the_service_is_paused_is_answered(
    kept_alive: Connection, sent: int, ran: float, pause: float
) -> None:
    """The last bytes of a request reach the socket's buffer in time, but the process does not run then."""
    if sent:
        kept_alive.send(REQUEST[:sent])
    kept_alive.loop.run(ran)
    kept_alive.loop.pause(pause)
    assert not kept_alive.system.closed
    kept_alive.send(REQUEST[sent:])
    kept_alive.loop.run(60)
    assert not kept_alive.system.closed
    assert len(kept_alive.loop.requests) == 1


def test_a_pause_does_not_count_as_time_of_a_body(connection: Connection) -> None:
    """The client sends a byte each second; half-way the process is paused for longer than a body may take."""
    connection.send(b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n")
    for number in range(100):
        if number == 50:
            connection.loop.pause(limits.MAX_BODY_S + 1)
        connection.send(b"x")
        connection.loop.run(1)
    connection.loop.run(60)
    assert not connection.system.closed


@pytest.mark.parametrize(
    ("start", "drop", "limit"),
    [
        (b"", b"", limits.MAX_HEAD_S),
        (REQUEST[:20], b"x", limits.MAX_HEAD_S),
        (b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 999\r\n\r\n", b"", limits.MAX_SILENCE_S),
        (b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 999\r\n\r\n", b"x", limits.MAX_BODY_S),
    ],
    ids=["silent", "in the head", "in the body", "slow body"],
)
def test_a_slow_client_is_cut_off_soon_after_its_limit(
    connection: Connection, start: bytes, drop: bytes, limit: int
) -> None:
    connection.send(start)
    while not connection.system.ended:
        assert connection.loop.now < 1_000
        connection.loop.run(1)
        if drop:
            connection.send(drop)
    assert limit < connection.loop.now <= limit + 2 * ClientLimits().look_every_s + 1
    connection.loop.run(3 * http_protocol.SILENT_S)
    assert connection.system.closed
    assert b"".join(connection.system.calls).startswith(b"HTTP/1.1 408 Request Timeout\r\n")


# Answers before the body has arrived ------------------------------------------------------------------
EARLY = b"POST /v1/catalogues/c/import HTTP/1.1\r\nhost: x\r\ncontent-length: 999999999\r\n\r\n"


@pytest.fixture
def early_answer() -> Iterator[Connection]:
    """A connection whose client was answered, and still sends."""

    async def refusing(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    connection = Connection(app=refusing)
    connection.send(EARLY)
    connection.answer()
    assert (connection.system.ended, connection.system.closed) == (True, False)
    assert b"connection: close" in b"".join(connection.system.calls)
    yield connection
    connection.close()


def test_who_goes_on_to_send_is_cut_off_in_the_end(early_answer: Connection) -> None:
    while not early_answer.system.closed:
        assert early_answer.loop.now < 1_000
        early_answer.send(b"x")
        early_answer.loop.run(1)
    assert limits.MAX_DROPPED_S <= early_answer.loop.now <= limits.MAX_DROPPED_S + http_protocol.SILENT_S + 1


def test_who_sends_no_more_is_cut_off_soon(early_answer: Connection) -> None:
    early_answer.loop.run(3 * http_protocol.SILENT_S)
    assert early_answer.system.closed


def test_no_more_is_dropped_than_the_limit(early_answer: Connection) -> None:
    early_answer.send(bytes(limits.MAX_DROPPED_BYTES))
    assert not early_answer.system.closed
    early_answer.send(b"x")
    assert early_answer.system.aborted


def test_what_arrived_during_a_pause_is_dropped_first(early_answer: Connection) -> None:
    """A connection that is closed with unread bytes is reset, and may lose its answer."""
    early_answer.loop.pause(limits.MAX_DROPPED_S / 2)
    early_answer.send(b"x")
    early_answer.loop.pause(http_protocol.SILENT_S)
    assert not early_answer.system.closed


# Clients that leave -----------------------------------------------------------------------------------
def test_nothing_is_written_to_a_client_that_has_left(connection: Connection) -> None:
    """One that has sent two requests: the one that is being answered is not the one that came last."""
    connection.send(REQUEST * 2)
    connection.protocol.connection_lost(ConnectionResetError())
    connection.answer()
    assert connection.system.calls == []
    assert connection.loop.requests == []


# Clients that do not read ----------------------------------------------------------------------------
@pytest.fixture
def unread_answer(kept_alive: Connection) -> Connection:
    """A connection whose client has an answer to read."""
    kept_alive.system.unread = 50_000
    kept_alive.loop.run(ClientLimits().look_every_s)
    return kept_alive


def test_who_reads_nothing_is_cut_off_soon_after_the_limit(unread_answer: Connection) -> None:
    began = unread_answer.loop.now
    while not unread_answer.system.aborted:
        assert unread_answer.loop.now < 1_000
        unread_answer.loop.run(1)
    assert (
        limits.MAX_UNREAD_S
        < unread_answer.loop.now - began
        <= limits.MAX_UNREAD_S + 2 * ClientLimits().look_every_s
    )


def test_who_reads_a_byte_now_and_then_lives_on(unread_answer: Connection) -> None:
    """And the service makes more than the client reads, so what waits only grows."""
    for _ in range(10):
        unread_answer.loop.run(limits.MAX_UNREAD_S - 1)
        unread_answer.system.unread += 10_000
        unread_answer.protocol.transport.write(b"x" * 10_001)
    assert not unread_answer.system.aborted
    unread_answer.loop.run(2 * limits.MAX_UNREAD_S)
    assert unread_answer.system.aborted


def test_a_pause_does_not_count_as_time_without_reading(unread_answer: Connection) -> None:
    unread_answer.loop.pause(1_000.0)
    unread_answer.loop.run(limits.MAX_UNREAD_S - ClientLimits().look_every_s)
    assert not unread_answer.system.aborted


def test_a_refusal_that_is_not_read_is_not_kept_for_ever(connection: Connection) -> None:
    connection.protocol.send_400_response("")
    connection.system.close = lambda: None  # type: ignore[method-assign]  # a real one waits for the client
    connection.system.unread = 100
    connection.loop.run(limits.MAX_UNREAD_S + 3 * ClientLimits().look_every_s)
    assert connection.system.aborted


LONG, SIZE = b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nmanysized", 1_400_000


@types.coroutine
def waited() -> Iterator[None]:
    yield


def stuck(loop: PausedLoop, unread: Unread, *, requests: int = 1) -> Connection:
    """A connection whose client has sent some requests, and reads nothing of the answer to the first."""
    connection = Connection(loop, unread)
    connection.system.protocol = connection.protocol
    connection.protocol.flow.drain = waited  # type: ignore[method-assign]  # uvicorn's needs a real loop
    connection.send(LONG * requests)
    connection.loop.requests[-1].run.send(None)
    return connection


@pytest.mark.parametrize("requests", [1, 2])
def test_all_that_is_left_of_an_answer_counts(requests: int) -> None:
    unread = Unread(10 * SIZE)
    connection = stuck(PausedLoop(), unread, requests=requests)
    assert connection.system.unread < 200_000
    assert SIZE - 70_000 < unread.bytes < SIZE + 1_000  # and the head; one part may be held back
    connection.close()


def test_what_is_not_read_is_bounded_and_who_read_last_stays() -> None:
    loop, unread = PausedLoop(), Unread(4 * SIZE + 4_000)
    connections = [stuck(loop, unread) for _ in range(4)]
    assert not any(connection.system.closed for connection in connections)
    connections[0].protocol.resume_writing()  # it has read what it had, and has more to read now
    connections[0].protocol.pause_writing()
    connections += [stuck(loop, unread) for _ in range(2)]
    assert [c.system.aborted for c in connections] == [False, True, True, False, False, False]
    for connection in connections:
        connection.protocol.connection_lost(OSError())
        connection.close()
    assert unread.bytes == 0


def test_one_answer_may_be_larger_than_the_bound() -> None:
    loop, unread = PausedLoop(), Unread(SIZE // 2)
    connections = [stuck(loop, unread) for _ in range(2)]
    assert [c.system.aborted for c in connections] == [True, False]
    for connection in connections:
        connection.close()


def test_an_idle_connection_is_closed_without_a_word(kept_alive: Connection) -> None:
    kept_alive.loop.run(limits.MAX_IDLE_S - 1)
    said = list(kept_alive.system.calls)
    assert not kept_alive.system.closed
    kept_alive.loop.run(2)
    assert kept_alive.system.closed
    assert kept_alive.system.calls == said


def test_a_request_that_arrived_before_the_end_is_answered(kept_alive: Connection) -> None:
    """The service is told to end while a request is in the socket's buffer, unread."""
    kept_alive.protocol.shutdown()
    kept_alive.send(REQUEST)
    kept_alive.loop.run(1)
    assert not kept_alive.system.closed
    kept_alive.answer()
    assert kept_alive.system.closed
    assert b"".join(kept_alive.system.calls).count(b"200 OK") == 2


@pytest.mark.anyio
@pytest.mark.parametrize("clients", [ClientLimits(connections=2)])
async def test_one_connection_too_many_is_told_so(address: tuple[str, int]) -> None:
    streams = [await asyncio.open_connection(*address) for _ in range(2)]
    for reader, writer in streams:  # both are in use, and stay
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nshort")
        await reader.readuntil(b"\r\n0\r\n\r\n")
    answer = await dripped(address, b"", b"")
    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    streams[0][1].close()
    await streams[0][1].wait_closed()
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nshort")
    assert b"200 OK" in await reader.readuntil(b"\r\n")
    for _, other in (*streams[1:], (reader, writer)):
        other.close()
