"""Ports that are free when they are needed."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port of this machine that processes get who ask for it by its number, and nobody else.

    It is bound, and nobody listens: so the kernel gives it to none who asks for any port, and lets others
    bind it too. Elsewhere than on Linux it is free only at first.
    """
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = int(reserved.getsockname()[1])
        if sys.platform != "linux":
            reserved.close()
        yield port
