"""New connections do not wait for as many turns of the event loop as there are connections before them."""

from __future__ import annotations

import asyncio
import errno
import socket
import time

import pytest
import uvloop

from app.platform.answer_memory import Unread
from app.platform.settings import Settings
from server import serving
from server.http_protocol import Clients
from server.serving import Server, listen

pytestmark = pytest.mark.rest

TURN_S = 0.005
BEFORE = 200
REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def ok(scope, receive, send):  # type: ignore[no-untyped-def]
    """An application that answers at once."""
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def connected(listener: socket.socket) -> socket.socket:
    """A connection that waits to be accepted. It has sent a request."""
    connection = socket.create_connection(listener.getsockname())
    connection.setblocking(False)
    connection.send(REQUEST)
    return connection


class Serving:
    """A server on a socket, and the turns of its loop that were long."""

    def __init__(self, listener: socket.socket) -> None:
        self.turns = 0
        self.server = Server(ok, Clients(Unread(1)))
        self.task = asyncio.create_task(self.server.serve([listener]))
        self.busy = asyncio.create_task(self._keep_busy())

    async def _keep_busy(self) -> None:
        while True:
            ends = time.perf_counter() + TURN_S
            while time.perf_counter() < ends:
                pass
            self.turns += 1
            await asyncio.sleep(0)

    async def stop(self) -> None:
        self.busy.cancel()
        self.server.stop()
        await self.task


async def first_bytes(connection: socket.socket) -> bytes:
    return await asyncio.get_running_loop().sock_recv(connection, 1_000)


@pytest.fixture
def listener():  # type: ignore[no-untyped-def]
    with listen(Settings(port=0)) as found:
        yield found


def test_a_new_connection_waits_for_few_turns_of_others(listener: socket.socket):
    """One in each turn is what uvloop accepts: then it would be 200."""

    async def turns() -> int:
        connections = [connected(listener) for _ in range(BEFORE + 1)]
        server = Serving(listener)
        assert (await first_bytes(connections[-1])).startswith(b"HTTP/1.1 204")
        turns = server.turns
        for connection in connections[:-1]:
            assert (await first_bytes(connection)).startswith(b"HTTP/1.1 204")
        await server.stop()
        for connection in connections:
            connection.close()
        return turns

    # A turn of 5 ms and more lets 26 in.
    assert uvloop.run(turns()) < 8 + BEFORE // 26


def test_where_nothing_else_is_done_processes_share_connections(listener: socket.socket):
    """An idle process takes one, and looks again: another one may be quicker to take the next."""

    async def accepted() -> int:
        taken = 0

        def count() -> asyncio.Protocol:
            nonlocal taken
            taken += 1
            return asyncio.Protocol()

        connections = [connected(listener) for _ in range(9)]
        acceptor = serving.Acceptor(listener, count)
        acceptor._accept()  # private: once, at a moment that the test chooses
        acceptor.close()
        await acceptor.wait_closed()
        for connection in connections:
            connection.close()
        return taken

    assert uvloop.run(accepted()) == 1


def test_connections_are_accepted_again_after_there_were_too_many_files(listener: socket.socket):
    class Full:
        """A listening socket while the process can open no file."""

        def __init__(self) -> None:
            self.calls = 0

        def fileno(self) -> int:
            return listener.fileno()

        def setblocking(self, flag: bool) -> None:
            listener.setblocking(flag)

        def close(self) -> None:
            listener.close()

        def accept(self) -> tuple[socket.socket, object]:
            self.calls += 1
            if self.calls == 1:
                raise OSError(errno.EMFILE, "Too many open files")
            return listener.accept()

    async def accepted() -> bytes:
        connection, full = connected(listener), Full()
        server = Serving(full)  # type: ignore[arg-type]
        server.server.no_files_s = 0.01
        found = await first_bytes(connection)
        await server.stop()
        connection.close()
        return found

    assert uvloop.run(accepted()).startswith(b"HTTP/1.1 204")
