"""Processes of `shortlist` that are forked from one that has loaded the code already.

Loading the code is most of what a start costs, and tests start some hundred processes. What they do
afterwards is the same: ``server.cli.main`` with the arguments, in an environment, a folder and a session of
their own. What the loader of programs or Python reads from the environment, it reads when a program starts:
the server has these variables from its own start, and what it forks has them too.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from server.cli import main
from waiting import wait_until_sync

ROOT = Path(__file__).parents[2]


class ForkedProcess:
    """A process of the fork server, with what tests use of ``subprocess.Popen``."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while the process runs."""
        if self.returncode is None:
            self.returncode = self._server.ask(poll=self.pid)
        return self.returncode

    def wait(self, _timeout_s: float | None = None) -> int:
        """Wait for the end, as long as tests wait for anything."""
        wait_until_sync(lambda: self.poll() is not None, what=f"process {self.pid} ends")
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The process that forks; threads of a test may share it."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._lock = Lock()
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def start(
        self, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: Path, errors: Path
    ) -> ForkedProcess:
        """`shortlist` with these arguments; ``output`` and ``errors`` are files, or the same file."""
        place = {"cwd": str(cwd), "env": dict(env), "output": str(output), "errors": str(errors)}
        return ForkedProcess(self, self.ask(start=list(arguments), **place))

    def ask(self, **request: Any) -> Any:
        """The answer to one request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End it; what it forked goes on."""
        self._process.kill()
        self._process.communicate()


@functools.cache
def fork_server(**variables: str) -> ForkServer:
    """The one of this test process with these variables, started when it is first asked for."""
    server = ForkServer(variables)
    atexit.register(server.close)
    return server


def _serve() -> None:
    """Answer requests until their end: fork, or say whether a forked process has ended and how."""
    # What commands load when they are called, loaded once.
    import server.administration  # noqa: PLC0415
    import server.doctor  # noqa: PLC0415
    import server.serving  # noqa: F401, PLC0415

    for line in sys.stdin:
        request = json.loads(line)
        if "poll" in request:
            ended, status = os.waitpid(request["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if ended else None
        elif not (answer := os.fork()):
            _become(request)
        print(json.dumps(answer), flush=True)


def _become(request: Mapping[str, Any]) -> None:
    """Be the process that was asked for; never returns."""
    status = 1
    try:
        os.setsid()
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        for number, path, flags in (
            (0, os.devnull, os.O_RDONLY),
            (1, request["output"], os.O_WRONLY | os.O_APPEND | os.O_CREAT),
            (2, request["errors"], os.O_WRONLY | os.O_APPEND | os.O_CREAT),
        ):
            opened = os.open(path, flags)
            os.dup2(opened, number)
            os.close(opened)
        sys.argv = ["shortlist", *request["start"]]
        status = main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve()
