"""Ports that are free when they are needed."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port that only processes which ask for its number can get.

    A socket is bound to it and does not listen. So the kernel does not give it to a process that asks for any
    port, and lets a process that names it bind it too. Elsewhere than on Linux it is only free at first.
    """
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = int(reserved.getsockname()[1])
        if sys.platform != "linux":
            reserved.close()
        yield port
