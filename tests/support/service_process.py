"""`shortlist` processes for tests: started on a free port, stopped or killed, and their logs read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from app.platform import plugins
from fork_server import ROOT, ForkedProcess, fork_server
from shortlist_client import Client
from waiting import wait_until_sync


def environment(**settings: str) -> dict[str, str]:
    """The environment, with these settings in place of those of the person who runs the tests."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("SHORTLIST_")}
    return {**own, "PYTHONPATH": str(ROOT), **settings}


def _start(
    arguments: Sequence[str], *, cwd: Path, output: Path, errors: Path, settings: dict[str, str]
) -> ForkedProcess:
    """Start a process: forked from one that has loaded the code, for that is most of what a start costs."""
    # Plug-ins are loaded with the code.
    others = {
        name: value
        for name, value in settings.items()
        if not name.startswith("SHORTLIST_") or name == plugins.VARIABLE
    }
    env = environment(**settings)
    return fork_server(**others).start(arguments, cwd=cwd, env=env, output=output, errors=errors)


class ShortlistProcess:
    """One process; its standard error is in ``log``."""

    def __init__(self, folder: Path, arguments: Sequence[str], settings: dict[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / f"{len(list(folder.glob('*.log')))}.log"
        self.log.touch()
        self.process = _start(arguments, cwd=folder, output=self.log, errors=self.log, settings=settings)

    @property
    def pid(self) -> int:
        return self.process.pid

    def text(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def records(self) -> list[dict[str, Any]]:
        """The log, line by line; fails on a line that is no JSON document, such as a traceback's."""
        return [json.loads(line) for line in self.text().splitlines(keepends=True) if line.endswith("\n")]

    def await_message(self, words: str) -> dict[str, Any]:
        """The first record whose message has these words."""

        def found() -> dict[str, Any] | None:
            lines = [line for line in self.text().splitlines(keepends=True) if line.endswith("\n")]
            match = next((line for line in lines if words in line), None)
            assert match or self.process.poll() is None, self.text()
            return json.loads(match) if match else None

        record = wait_until_sync(found, what=f"the log says {words}")
        assert record is not None
        return record

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """The exit status."""
        return self.process.wait()

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        self.process.kill()
        self.process.wait()


WORKERS = os.environ.get("SHORTLIST_TEST_WORKERS", "1")
"""Processes of a service where a test does not say how many (`make test-workers`)."""


class Service(ShortlistProcess):
    """`shortlist serve`, ready to answer at ``url``."""

    def __init__(self, folder: Path, data_dir: Path, *arguments: str, **settings: str) -> None:
        command = ["serve", "--port", "0", "--data-dir", str(data_dir), *arguments]
        if "--workers" not in arguments:
            command += ["--workers", WORKERS]
        super().__init__(folder, command, settings)
        try:
            ready = self.await_message('"port"')
        except BaseException:
            self.kill()
            raise
        self.port = int(ready["port"])
        self.url = f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """Send SIGKILL to the service and its processes, but not to its store, and wait for the end."""
        forked = [*forked_by(self.pid), *children(self.pid)]
        super().kill()
        for pid in forked:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def client(self, *, max_connections: int | None = None) -> httpx.AsyncClient:
        """A client whose connections stay open as long as it, or until the service closes them.

        With ``keepalive_expiry`` the pool may close a connection that it has just given to a request, when
        the event loop was held up for longer and two connections expired. The request ends with ReadError.
        """
        limits = httpx.Limits(max_connections=max_connections, keepalive_expiry=None)
        return httpx.AsyncClient(base_url=self.url, timeout=60.0, limits=limits)

    def store_pid(self) -> int | None:
        """Process id of the embedded store, None while there is none."""
        running = _running()
        others = {pid: args for pid, (parent, args) in running.items() if parent == self.pid}
        # Not the launcher, which is a Python that has not yet become the server.
        servers = [pid for pid, args in others.items() if "launch_server" not in args]
        return next((pid for pid in servers if others[pid] != running[self.pid][1]), None)


def children(pid: int) -> list[int]:
    """The service processes of `serve --workers`: what the process forks that the service has forked."""
    return [child for forker in forked_by(pid) for child in forked_by(forker)]


def forked_by(pid: int) -> list[int]:
    """Processes with the command line of their parent: a store has one of its own."""
    running = _running()
    return [each for each, (parent, args) in running.items() if parent == pid and args == running[pid][1]]


def _running() -> dict[int, tuple[int, str]]:
    """The parent and the command line of each process."""
    words = ["ps", "-ww", "-A", "-o", "pid=,ppid=,args="]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = (line.split(maxsplit=2) for line in lines)
    return {int(pid): (int(parent), "".join(args)) for pid, parent, *args in rows}


@contextmanager
def serving(
    folder: Path, *arguments: str, data_dir: Path | None = None, **settings: str
) -> Iterator[Service]:
    """A service for the length of a ``with``. It is killed at the end if it still runs."""
    service = Service(folder / "logs", data_dir or folder / "data", *arguments, **settings)
    try:
        yield service
    finally:
        service.kill()


def run(*arguments: str, cwd: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder, "output"), Path(folder, "errors")
        process = _start(arguments, cwd=cwd, output=output, errors=errors, settings=settings)
        try:
            status = process.wait()
        finally:
            process.kill()
        return subprocess.CompletedProcess(arguments, status, output.read_text(), errors.read_text())


def delete_all(client: Client) -> None:
    """Delete all bandits, and all catalogues: first those that follow another one."""
    for bandit in list(client.bandits()):
        client.delete_bandit(bandit.id)
    for catalogue in sorted(client.catalogues(), key=lambda each: each.follows is None):
        client.delete_catalogue(catalogue.id)
