"""Ends a process of `serve --workers` with its parent. Only the standard library is loaded: that is quick."""

from __future__ import annotations

import os
import signal
import socket
import threading
from contextlib import suppress


def end_with(line: int) -> None:
    """Send SIGTERM to this process once the other side of the socket ``line`` is closed, however that came.

    Before the process is ready that ends it at once.
    """
    parent = socket.socket(fileno=os.dup(line))

    def watch() -> None:
        # The parent sends nothing, so this returns when its side is closed.
        with suppress(OSError):
            parent.recv(1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
