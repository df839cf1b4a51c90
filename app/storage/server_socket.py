"""Questions to the embedded server, without the driver: does it answer?"""

from __future__ import annotations

import socket
from pathlib import Path

_PATIENCE_S = 1.0


def answers(path: Path) -> bool:
    """Whether a server on the socket answers PING; one that still reads its data answers -LOADING."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(_PATIENCE_S)
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
    except OSError:
        return False
