"""`shortlist serve --workers N`: service processes that share one listening socket, and their parent.

The parent owns the listening socket and the embedded store. It starts the processes and stops them when it
is told to. A process that ends is started again, after a pause that doubles each time; at its first start
only if it was killed, for else the next one would end likewise. A pair of sockets connects the parent with
each process: the process sends one byte when it is ready, and when one side is gone the other one reads the
end of the stream.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import msgspec
import uvloop
from pydantic import SecretStr
from threadpoolctl import threadpool_limits

from app.platform.background import leave
from app.platform.errors import StartupError, Unavailable
from app.platform.logs import set_up_logging
from app.platform.settings import Settings
from server.composition import index_folder
from server.serving import GRACE_S, Server, listen, log_ready, serve_on, with_servers, worker_name

log = logging.getLogger("shortlist")

CHILD = (
    "import sys; from server.parent_watch import end_with; end_with(int(sys.argv[2])); "
    "from server.serving_group import serve_child; serve_child(*sys.argv[1:])"
)
READY = b"1"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
HEALTHY_S = 10.0
MOST_KILLED = 5  # times in a row before a process is ready; as by a system that has no memory left
KILL_S = GRACE_S + 5.0


def serve_group(settings: Settings, count: int) -> None:
    """Serve from ``count`` processes until SIGTERM or SIGINT. Raises StartupError."""
    settings.check()
    set_up_logging(settings.log_level, settings.log_format)
    names = [worker_name(settings, number) or "" for number in range(1, count + 1)]
    with listen(settings) as listener, with_servers(settings) as served:
        group_dir = index_folder(settings.data_dir, is_group=True)
        asyncio.run(_Group(served, listener, names, group_dir).run())
    log.info("stopped")


class _Group:
    def __init__(
        self, settings: Settings, listener: socket.socket, names: list[str], group_dir: Path
    ) -> None:
        self._group_dir = group_dir
        self._listener = listener
        self._settings = settings
        self._names = names
        self._environment = {**os.environ, **_as_environment(settings)}
        self._processes: dict[str | int, asyncio.subprocess.Process] = {}
        self._ready: set[int] = set()
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        outcomes = await asyncio.gather(*map(self._keep, range(len(self._names))), return_exceptions=True)
        for failure in filter(None, outcomes):
            raise failure

    def _stop(self) -> None:
        self._stopping.set()
        self._listener.close()  # that of each process closes with it: nobody connects and waits for nothing
        for process in self._processes.values():
            if process.returncode is None:
                process.terminate()

        def kill() -> None:
            for process in self._processes.values():
                if process.returncode is None:
                    process.kill()

        # Later than each process's own grace: one that hangs is killed, and nothing else waits for it.
        asyncio.get_running_loop().call_later(KILL_S, kill)

    async def _keep(self, number: int) -> None:
        """Keep one process running.

        All are stopped if it ends by itself before it was ever ready, which the next one would do as well, or
        is killed ``MOST_KILLED`` times.
        """
        pause, killed = FIRST_PAUSE_S, 0
        while not self._stopping.is_set():
            born = time.monotonic()
            status = await self._run_process(number)
            if self._stopping.is_set():
                return
            if number not in self._ready:
                killed += 1
                # An exit of its own says what is wrong, and the next process would find the same. A kill may
                # have been for memory that is free by now.
                if status >= 0 or killed == MOST_KILLED:
                    self._stop()
                    raise StartupError(_why(number + 1, status, killed))
            pause = FIRST_PAUSE_S if time.monotonic() - born > HEALTHY_S else pause
            log.error("service process %d ended with status %d; starting it again", number + 1, status)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _run_process(self, number: int) -> int:
        """Run one process to its end, and return its exit status."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                fds = (self._listener.fileno(), theirs.fileno())
                words = [str(fd) for fd in fds] + [str(number + 1), self._names[number], str(self._group_dir)]
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", CHILD, *words, env=self._environment, pass_fds=fds
                )
            self._processes[number] = process
            if self._stopping.is_set():
                process.terminate()
            ours.setblocking(False)
            # It reads an end, too, if the process dies before: so nothing else has to watch its start.
            if await asyncio.get_running_loop().sock_recv(ours, 1) == READY:
                self._note_ready(number)
            return await process.wait()

    def _note_ready(self, number: int) -> None:
        news = number not in self._ready
        self._ready.add(number)
        if news and len(self._ready) == len(self._names):
            log_ready(self._listener, self._settings)


def _why(number: int, status: int, killed: int) -> str:
    """Why a process of a group never became ready. A negative status is the signal that ended it."""
    if status >= 0:
        return f"service process {number} ended at its start; it says why above"
    name = signal.strsignal(-status) or f"signal {-status}"
    return (
        f"service process {number} was killed {killed} times before it was ready ({name}): the log of the "
        "system says why, often that there is too little memory for so many --workers"
    )


def serve_child(listener: str, line: str, number: str, name: str, group_dir: str) -> NoReturn:
    """Run one process of a group to its end.

    ``listener`` and ``line`` are the file descriptors of the listening socket and of the socket to the
    parent.
    ``number`` counts the processes from 1, ``name`` is the worker's name or empty, ``group_dir`` their folder
    of index files. The settings come from the environment.
    """
    parent = socket.socket(fileno=int(line))
    settings = Settings()  # from the environment
    set_up_logging(settings.log_level, settings.log_format)
    threadpool_limits(1)

    def ready(_server: Server) -> None:
        log.info("service process %s is ready", number)
        parent.send(READY)

    try:
        serving = serve_on(
            settings,
            socket.socket(fileno=int(listener)),
            name=name or None,
            ready=ready,
            group_dir=Path(group_dir),
            number=int(number),
        )
        uvloop.run(serving)
    except (StartupError, Unavailable) as error:  # of a store that is away now; another try is made
        print(f"shortlist: {error.detail}", file=sys.stderr)
        sys.exit(1)
    leave()


def _as_environment(settings: Settings) -> dict[str, str]:
    """The settings as variables from which the same settings are read."""
    words: dict[str, str] = {}
    # Only what was set, addresses of servers that were started among it: defaults are the child's own.
    for name in settings.model_fields_set:
        value = getattr(settings, name)
        if value is None:
            continue
        if isinstance(value, SecretStr):
            value = value.get_secret_value()
        is_scalar = isinstance(value, (str, int, float, Path))
        words[f"SHORTLIST_{name.upper()}"] = str(value) if is_scalar else msgspec.json.encode(value).decode()
    return words
