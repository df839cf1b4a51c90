"""Milvus Lite as a process of its own, on a unix socket: `python run_engine.py FOLDER SOCKET`.

In the process of the service Milvus would hold all arms there, and keep its threads from the event loop. The
program is run by path, without the package.
"""

from __future__ import annotations

import sys

from milvus_lite.adapter.grpc.server import start_server_in_thread


def main(folder: str, socket: str) -> None:
    """Serve until the process is told to end. ``socket`` ends with ":0", where a port would stand."""
    server, _, _ = start_server_in_thread(folder, host=f"unix:{socket.removesuffix(':0')}", port=0)
    server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
