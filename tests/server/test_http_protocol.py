"""Clients that are slow, silent or too many lose their connections; a pause of the service costs nobody one.

The seconds of the server are the test's: it says when one has passed.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from starlette.types import Receive, Scope, Send

from app.api import request_limits as limits
from app.api.gateway import CALLER
from app.platform.answer_memory import Unread
from app.platform.deadlines import Caller
from server.http_protocol import Clients
from server.serving import Server
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

MB = 1 << 20
LONG = 8 * MB  # more than the kernel takes of an answer that is not read


class Served:
    """A server, the looks at its clients, and what it serves."""

    def __init__(self, listener: socket.socket, clients: Clients) -> None:
        self.server = Server(self, clients)
        self.address = listener.getsockname()
        self.unread = clients.unread
        self.callers: list[Caller] = []
        self.read_on = asyncio.Event()
        self.connections: list[Connection] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reads the body, of /late when it is told to, and answers as many bytes as the query says."""
        self.callers.append(scope[CALLER])
        scope[CALLER].streams = scope["path"] == "/stream"
        if scope["path"] == "/late":
            await self.read_on.wait()
        while (message := await receive()).get("more_body", False):
            pass
        if message["type"] == "http.disconnect":
            return
        length = int(scope["query_string"] or 1)
        headers = [(b"content-length", b"%d" % length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": bytes(length)})

    async def connect(self, data: bytes, **limit: int) -> "Connection":
        connection = Connection(*await asyncio.open_connection(*self.address, **limit))
        self.connections.append(connection)
        connection.send(data)
        return connection

    async def pass_time(self, seconds: int, *, drip: "Connection | None" = None) -> None:
        """Seconds pass; in each of them the client sends a byte."""
        for _ in range(seconds):
            if drip is not None:
                drip.send(b"x")
                await asyncio.sleep(0.002)
            self.server.look_at_clients()

    async def requests_read(self, count: int) -> None:
        await until(lambda: len(self.callers) == count, what="the requests are read")


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> bytes:
        """The head of the next answer; its body of one byte is read."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        await self.reader.readexactly(1)
        return head

    async def rest(self) -> bytes:
        """What arrives until the other side closes."""
        found = b""
        with suppress(ConnectionError):
            while piece := await self.reader.read(MB):
                found += piece
        return found

    def stop_reading(self) -> None:
        self.writer.transport.pause_reading()  # type: ignore[attr-defined]  # one that reads

    def read_on(self) -> None:
        self.writer.transport.resume_reading()  # type: ignore[attr-defined]


@asynccontextmanager
async def serving(*, unread: int = 100 * MB, **bounds: int) -> AsyncIterator[Served]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        served = Served(listener, Clients(Unread(unread), **bounds))
        running = asyncio.create_task(served.server.serve([listener]))
        try:
            yield served
        finally:
            served.read_on.set()
            for connection in served.connections:
                connection.writer.transport.abort()
            served.server.stop()
            await running


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving() as served:
        yield served


async def until(condition: Callable[[], bool], *, what: str) -> None:
    async def holds() -> bool:
        return condition()

    await wait_until(holds, what=what)


REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
BODY = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\nx"
STREAM = BODY.replace(b"/ ", b"/stream ", 1)


# Requests ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("start", "drips"),
    [
        (b"", False),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx: ", True),  # a head that never ends
        (b"\r\n", False),  # one that never begins
        (BODY, False),
        (BODY, True),
    ],
)
async def test_a_request_that_takes_too_long_is_refused(served: Served, start: bytes, drips: bool):
    connection = await served.connect(REQUEST)
    assert b" 200 OK" in await connection.answer()
    connection = await served.connect(start)
    await served.requests_read(2 if start == BODY else 1)
    drip = connection if drips else None
    await served.pass_time(limits.MAX_TRANSFER_S, drip=drip)
    assert not connection.reader.at_eof()
    await served.pass_time(1)
    answer = await connection.rest()
    assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/problem+json\r\n")
    assert b'"code":"timeout"' in answer


async def test_a_stream_may_take_any_time_but_is_never_silent(served: Served):
    connection = await served.connect(STREAM)
    await served.requests_read(1)
    await served.pass_time(3 * limits.MAX_TRANSFER_S, drip=connection)
    await served.pass_time(limits.MAX_SILENCE_S)
    assert not connection.reader.at_eof()
    await served.pass_time(1)
    assert (await connection.rest()).startswith(b"HTTP/1.1 408 ")


async def test_a_body_that_the_service_does_not_read_is_not_late(served: Served):
    connection = await served.connect(BODY.replace(b"/ ", b"/late ", 1) + bytes(90_000))
    await served.requests_read(1)
    (protocol,) = served.server.server_state.connections

    await until(lambda: not protocol.transport.is_reading(), what="the service reads no more")
    await served.pass_time(2 * limits.MAX_TRANSFER_S)
    connection.send(bytes(9_999))
    served.read_on.set()
    assert b" 200 OK" in await connection.answer()


# Answers ----------------------------------------------------------------------------------------------
async def stuck(served: Served, path: bytes = b"/", length: int = LONG) -> Connection:
    """A client that reads nothing of a long answer, whose bytes are counted."""
    before = served.unread.bytes
    connection = await served.connect(b"", limit=1_000)
    connection.stop_reading()
    connection.send(b"GET %b?%d HTTP/1.1\r\nhost: x\r\n\r\n" % (path, length))
    await until(lambda: served.unread.bytes != before, what="what is unread counts")
    return connection


@pytest.mark.parametrize(
    ("path", "most"), [(b"/", limits.MAX_TRANSFER_S), (b"/stream", limits.MAX_SILENCE_S)]
)
async def test_who_does_not_read_an_answer_loses_the_connection(served: Served, path: bytes, most: int):
    connection = await stuck(served, path)
    await served.pass_time(most)
    assert served.unread.bytes > 0
    await served.pass_time(2)
    assert served.unread.bytes == 0
    connection.read_on()
    assert 0 < len(await connection.rest()) < LONG


async def test_what_is_not_read_is_bounded_and_who_stopped_last_stays():
    async with serving(unread=2 * LONG) as served:
        connections = [await stuck(served, length=LONG + number) for number in range(4)]
        await until(lambda: served.callers[0].left, what="the first has lost its connection")
        assert [caller.left for caller in served.callers][2:] == [False, False]
        for connection in connections:
            connection.writer.close()
        await until(lambda: served.callers[3].left, what="all have left")
        assert served.unread.bytes == 0


@pytest.mark.parametrize(("body", "size"), [(b"short", 1), (b"long", 3_000_000)])
async def test_a_connection_goes_on_after_answers_of_any_length(served: Served, body: bytes, size: int):
    connection = await served.connect(b"")
    for _ in range(3):
        connection.send(
            b"POST /?%d HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (size, len(body), body)
        )
        assert b" 200 OK" in await connection.reader.readuntil(b"\r\n\r\n")
        await connection.reader.readexactly(size)


# Heads ------------------------------------------------------------------------------------------------
ENDLESS = b"x" * 10 * MB


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 101 + b"\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\na: " + ENDLESS,
        b"GET / HTTP/1.1\r\nhost: x\r\n" + b"abcdefgh: ijklmnop\r\n" * 500_000,
        b"GET /" + ENDLESS,
        b"GET /" + b"x" * 66_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",  # of one piece
        b"GET / HTTP/1.1\r\n" + ENDLESS,
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1;" + ENDLESS,
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\na: " + ENDLESS,  # a trailer
    ],
)
async def test_a_head_beyond_the_limits_is_refused(served: Served, data: bytes):
    connection = await served.connect(data)
    answer = await connection.rest()
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b'"code":"head_too_large"' in answer
    assert b"connection: close" in answer


async def test_a_head_at_the_limits_is_read_wherever_it_is_cut(served: Served):
    head = b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 98
    head += b"a: " + b"b" * (limits.MAX_HEAD_BYTES - len(head) - 7) + b"\r\n\r\n"
    for cut in (1, 20, 1_000, 65_000, len(head) - 1):
        connection = await served.connect(b"")
        for _ in range(2):  # what is counted is counted for each request
            connection.send(head[:cut])
            await connection.writer.drain()
            await asyncio.sleep(0)
            connection.send(head[cut:])
            assert b" 200 OK" in await connection.answer()


async def test_what_came_before_a_head_does_not_count_for_it(served: Served):
    body = b"x" * 200_000
    one = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    connection = await served.connect(one + one + one[:20])
    connection.send(one[20:])
    for _ in range(3):
        assert b" 200 OK" in await connection.answer()


@pytest.mark.parametrize(
    "data",
    [
        b"HELLO\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: abc\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",  # TLS
        b"GET /a b HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_a_problem_too(served: Served, data: bytes):
    connection = await served.connect(data)
    answer = await connection.rest()
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\n")
    assert b'"code":"bad_request"' in answer
    assert b"\r\nx-request-id: " in answer


# Connections ------------------------------------------------------------------------------------------
async def test_one_connection_too_many_is_told_so():
    async with serving(connections=2) as served:
        two = [await served.connect(REQUEST) for _ in range(2)]
        for connection in two:
            assert b" 200 OK" in await connection.answer()
        third = await served.connect(b"")
        assert (await third.rest()).startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        two[0].writer.close()
        await until(lambda: served.callers[0].left, what="one has left")
        fourth = await served.connect(REQUEST)
        assert b" 200 OK" in await fourth.answer()


async def test_the_work_of_a_request_is_told_that_its_client_has_left(served: Served):
    connection = await served.connect(REQUEST)
    await connection.answer()
    connection.send(REQUEST.replace(b"/ ", b"/late ", 1))
    await served.requests_read(2)
    assert not any(caller.left for caller in served.callers)
    connection.writer.close()
    await until(lambda: all(c.left for c in served.callers), what="the client has left")
