"""Questions to the embedded server, without the driver: does it answer?"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PATIENCE_S = 1.0


@contextmanager
def connected(path: Path) -> Iterator[socket.socket]:
    """A connection to the socket. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_PATIENCE_S)
        client.connect(str(path))
        yield client


def pings(client: socket.socket) -> bool:
    """Whether the server answers PING; one that still reads its data answers -LOADING. Raises OSError."""
    client.sendall(b"PING\r\n")
    return client.recv(16).startswith(b"+PONG")


def answers(path: Path) -> bool:
    """Whether a server on the socket answers PING."""
    try:
        with connected(path) as client:
            return pings(client)
    except OSError:
        return False
