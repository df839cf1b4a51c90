"""A store as a process of its own that can be killed and started again."""

import os
import subprocess
from pathlib import Path

import redis

from app.storage.embedded.server import find_binary
from waiting import wait_until_sync


class Redis:
    """A server on a unix socket that syncs every write. ``restart`` starts it again on the same data."""

    def __init__(self, folder: Path, *, preload: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True)
        self.socket = folder / "server.sock"
        self._preload = preload or {}
        self.process = self._launch()

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def close(self) -> None:
        self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        self.process = self._launch()

    def _launch(self) -> subprocess.Popen[bytes]:
        options = {
            "port": "0", "unixsocket": self.socket, "dir": self.folder, "appendonly": "yes",
            "appendfsync": "always", "save": "", "maxmemory-policy": "noeviction",
        }  # fmt: skip
        words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
        self.socket.unlink(missing_ok=True)
        with (self.folder / "server.log").open("ab") as log:
            process = subprocess.Popen(
                [str(find_binary()), *words],
                stdout=log,
                stderr=log,
                env={**os.environ, **self._preload},
                restore_signals=False,  # SIGXFSZ stays ignored: a full disk is an error of a write
            )
        wait_until_sync(self._answers, what="the store answers")
        return process

    def _answers(self) -> bool:
        try:
            with redis.Redis(unix_socket_path=str(self.socket)) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False
