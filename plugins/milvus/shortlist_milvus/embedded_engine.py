"""Milvus Lite as a supervised child process, where SHORTLIST_MILVUS_URI names a file: its folder.

Like the embedded store it holds the lock on its folder, listens on a private socket, ends with the service,
and is started again when it ends by itself (``storage.embedded.server``).
"""

from __future__ import annotations

import os
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

from shortlist_milvus.engine import INSTALL
from shortlist_service.engines import EmbeddedServer
from shortlist_service.errors import StartupError

MEMTABLE_BYTES = 1 << 20  # rows beyond these are put in a graph; those before are compared one by one
_PATIENCE_S = 1.0


class EmbeddedEngine(EmbeddedServer):
    """See the module. ``uri`` is for ``MilvusEngine``."""

    WHAT = "the engine of the arms (Milvus Lite)"
    SOCKET = "engine.sock:0"  # its server wants a port, which is part of the name here

    @property
    def uri(self) -> str:
        return f"unix:{self.socket_path}"

    def prepare(self) -> None:
        if find_spec("milvus_lite") is None or find_spec("pymilvus") is None:
            raise StartupError(f"SHORTLIST_MILVUS_URI is a file, but milvus-lite is not installed: {INSTALL}")

    def answers(self) -> bool:
        """Return whether somebody listens: the engine does so once its data are read."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.settimeout(_PATIENCE_S)
                client.connect(str(self.socket_path))
                return True
        except OSError:
            return False

    def command(self) -> list[str]:
        program = str(Path(__file__).with_name("run_engine.py"))
        return [sys.executable, "-I", program, str(self.data_dir / "arms.db"), str(self.socket_path)]

    def environment(self) -> dict[str, str]:
        bounds = {"MILVUS_LITE_MEMTABLE_MEMORY_LIMIT_BYTES": str(MEMTABLE_BYTES)}
        # One thread: its searches would else take the cores from the service.
        return {**os.environ, "OMP_NUM_THREADS": "1", **bounds}


def is_embedded(uri: str) -> bool:
    """Return whether a setting names a file, not an address."""
    return not uri.startswith(("http://", "https://", "tcp://", "unix:"))
