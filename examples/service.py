"""A service of our own, for an example or a measurement: started empty, and gone afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from shortlist_client import Client, Retry

START_S = 30.0
STOP_S = 30.0
POLL_S = 0.02
TIMEOUT_S = 60.0
SHORTLIST = "import sys; from server.cli import main; sys.exit(main())"


class StartError(Exception):
    """The server did not start; the message holds what it said."""


class Server(NamedTuple):
    """A running server."""

    host: str
    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def connect(self, *, timeout_s: float = TIMEOUT_S) -> Client:
        """A client that sends nothing twice: a call takes as long as its request."""
        return Client(self.url, timeout_s=timeout_s, retry=Retry(attempts=1))


@contextmanager
def temporary_service(*arguments: str, **settings: str) -> Iterator[Server]:
    """A new, empty service on a free port of this machine. It and its data are gone afterwards.

    ``arguments`` are further ones of `shortlist serve`, ``settings`` its variables.
    """
    with tempfile.TemporaryDirectory(prefix="shortlist-") as folder:
        command = ["-c", SHORTLIST, "serve", "--port", "0", "--log-level", "info", *arguments]
        log = Path(folder, "service.log")
        with running([*command, "--data-dir", f"{folder}/data"], log=log, settings=settings) as server:
            yield server


@contextmanager
def running(
    arguments: Sequence[str],
    *,
    log: Path,
    settings: Mapping[str, str] | None = None,
    start_s: float = START_S,
) -> Iterator[Server]:
    """This interpreter with ``arguments``, a server that writes its host and port to its log as JSON.

    Settings in the environment are not handed on: they could name a store with somebody's data.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SHORTLIST_")}
    environment.update(settings or {})
    with _termination_raises():
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=Path(__file__).parent.parent,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for us: we stop the server
            )
        try:
            yield _await_ready(process, log, start_s)
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def _termination_raises() -> Iterator[None]:
    """SIGTERM ends this process as Ctrl-C does: with everything cleaned up."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _await_ready(process: subprocess.Popen[bytes], log: Path, start_s: float) -> Server:
    deadline = time.monotonic() + start_s
    while time.monotonic() < deadline and process.poll() is None:
        for line in log.read_text().splitlines(keepends=True):
            if '"port"' in line and line.endswith("\n"):
                ready = json.loads(line)
                return Server(ready["host"], ready["port"], process.pid)
        time.sleep(POLL_S)
    raise StartError(f"the service did not start:\n{log.read_text()}")
