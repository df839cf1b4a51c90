"""A service of our own for an example, and a small client for it: the standard library only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import BadStatusLine, HTTPConnection
from pathlib import Path
from types import FrameType
from typing import Any

START_S = 30.0
STOP_S = 30.0
POLL_S = 0.02
SHORTLIST = "import sys; from app.cli import main; sys.exit(main())"


class ServiceError(Exception):
    """The service did not start, or answered a request with a problem."""


@contextmanager
def temporary_service() -> Iterator[tuple[str, int]]:
    """Host and port of a new, empty service on this machine. It and its data are gone afterwards.

    Settings in the environment are not handed on: they could name a store with somebody's data.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SHORTLIST_")}
    with tempfile.TemporaryDirectory(prefix="shortlist-") as folder, _termination_raises():
        log = Path(folder, "service.log")
        command = [sys.executable, "-c", SHORTLIST, "serve", "--port", "0", "--log-level", "info"]
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [*command, "--data-dir", str(Path(folder, "data"))],
                cwd=Path(__file__).parent.parent,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for us: we stop the service
            )
        try:
            yield _await_address(process, log)
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


def _await_address(process: subprocess.Popen[bytes], log: Path) -> tuple[str, int]:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        for line in log.read_text().splitlines(keepends=True):
            if '"port"' in line and line.endswith("\n"):
                ready = json.loads(line)
                return ready["host"], ready["port"]
        time.sleep(POLL_S)
    raise ServiceError(f"the service did not start:\n{log.read_text()}")


class Client:
    """One kept-alive connection, for one thread at a time. ``seconds`` are the durations by kind of call."""

    def __init__(self, host: str, port: int) -> None:
        self._connection = HTTPConnection(host, port, timeout=60)
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None, kind: str = "other") -> Any:
        """The decoded answer. Raises ServiceError when it is a problem."""
        content = None if body is None else json.dumps(body).encode()
        started = time.perf_counter()
        status, answer = self._exchange(method, path, content)
        self.seconds[kind].append(time.perf_counter() - started)
        if status >= 400:
            raise ServiceError(f"{method} {path}: {status} {answer.decode()}")
        return json.loads(answer) if answer else None

    def close(self) -> None:
        self._connection.close()

    def _exchange(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        try:
            return self._once(method, path, content)
        except (BadStatusLine, ConnectionResetError, BrokenPipeError):
            self._connection.close()  # it was idle and the service let it go; all calls are safe to repeat
            return self._once(method, path, content)

    def _once(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        self._connection.request(method, path, content)
        response = self._connection.getresponse()
        return response.status, response.read()
