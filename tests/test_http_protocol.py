"""Answers leave in one piece, and nothing is lost, reordered or kept back."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from app.http_protocol import HeldWrites, OneWriteProtocol


class Recorder:
    """A transport that remembers; ``calls`` are what reaches the system."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.calls.append(data)

    def writelines(self, data: tuple[bytes, ...]) -> None:
        self.calls.append(b"".join(data))

    def close(self) -> None:
        self.closed = True

    def get_extra_info(self, name: str) -> str:
        return f"the {name}"


class Turns:
    """A loop whose turns the test takes."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.due.append(callback)

    def turn(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()


@given(st.lists(st.one_of(st.binary(min_size=1, max_size=3), st.none()), max_size=12))
def test_nothing_is_lost_or_reordered_and_one_write_at_most_is_held(events: list[bytes | None]) -> None:
    system, loop = Recorder(), Turns()
    transport = HeldWrites(system, loop)
    written = b""
    for event in events:
        if event is None:
            loop.turn()
            assert b"".join(system.calls) == written
        else:
            written += event
            transport.write(event)
            assert len(written) - len(b"".join(system.calls)) <= len(event)
    transport.close()
    assert b"".join(system.calls) == written
    assert system.closed


def test_two_writes_of_one_turn_are_one() -> None:
    system, loop = Recorder(), Turns()
    transport = HeldWrites(system, loop)
    transport.write(b"head")
    transport.write(b"body")
    loop.turn()
    assert system.calls == [b"headbody"]
    assert transport.get_extra_info("peername") == "the peername"


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    body = (await receive())["body"]
    parts = {b"short": [b"x"], b"long": [b"y" * 3_000_000], b"many": [b"z" * 70_000] * 20}[body]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
async def address() -> AsyncIterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(application, http=OneWriteProtocol, lifespan="off", log_config=None)
        server = uvicorn.Server(config)
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
