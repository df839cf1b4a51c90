"""`shortlist serve --workers N`: service processes that share one listening socket, and who starts them.

The *parent* is the process that was started: it owns the embedded store. Before it starts the store, which
takes threads, it forks the *forker*. The forker has no threads, so it can fork the service processes at any
time: what Python has loaded is in memory once for all of them. It starts a process that ends again, after a
pause that doubles each time; at its first start only if it was killed, for else the next one would end
likewise.

A pair of sockets connects the parent with the forker, and the forker with each process. When one side is
gone, the other one reads the end of the stream: so all of them end with the parent.
"""

from __future__ import annotations

import gc
import logging
import os
import pickle
import select
import signal
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import uvloop
from threadpoolctl import threadpool_limits

from app.platform.background import leave
from app.platform.errors import StartupError
from app.platform.logs import set_up_logging
from app.platform.settings import Settings
from server.composition import index_folder
from server.serving import GRACE_S, Server, listen, log_ready, serve_on, with_servers, worker_name

log = logging.getLogger("shortlist")

READY = b"1"  # from a process to the forker
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
HEALTHY_S = 10.0
MOST_KILLED = 5  # times in a row before a process is ready; as by a system that has no memory left
KILL_S = GRACE_S + 5.0
STOPPING = signal.SIGTERM, signal.SIGINT


def serve_group(settings: Settings, count: int) -> None:
    """Serve from ``count`` processes until SIGTERM or SIGINT. Raises StartupError."""
    settings.check()
    set_up_logging(settings.log_level, settings.log_format)
    names = [worker_name(settings, number) for number in range(1, count + 1)]
    ours, theirs = socket.socketpair()
    with listen(settings) as listener:
        gc.freeze()  # a collection writes to what it looks at: it would be copied for each process
        forker = os.fork()
        if not forker:
            ours.close()
            # What the parent is told it tells the forker; a terminal's Ctrl-C reaches both.
            signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
            _Group(theirs, listener, names).run()
            leave()
    theirs.close()
    with with_servers(settings) as served, ours:
        group_dir = index_folder(settings.data_dir, is_group=True)
        for number in STOPPING:
            signal.signal(number, lambda *_: ours.close())
        with suppress(OSError):  # it was killed, or is told to stop
            ours.sendall(pickle.dumps((served, group_dir)))
        status = os.waitstatus_to_exitcode(os.waitpid(forker, 0)[1])
    if status < 0:
        raise StartupError(f"the process that starts the service processes was killed ({_name(status)})")
    if status:
        raise SystemExit(status)  # it has said why
    log.info("stopped")


@dataclass
class _Process:
    """A service process, one after the other. ``line`` is there while one runs."""

    number: int  # from 1
    name: str | None  # of its worker
    pid: int = 0
    line: socket.socket | None = None
    born: float = 0.0
    starts_at: float = 0.0
    pause: float = FIRST_PAUSE_S
    killed: int = 0
    was_ready: bool = False


class _Group:
    """The service processes, in the forker. ``parent``: the line to the parent; ``names``: of workers."""

    def __init__(self, parent: socket.socket, listener: socket.socket, names: list[str | None]) -> None:
        self._parent = parent
        self._listener = listener
        self._processes = [_Process(number, name) for number, name in enumerate(names, 1)]
        self._kills_at: float | None = None  # while it stops
        self._failure: str | None = None

    def run(self) -> None:
        """Keep the processes running until the parent closes its side.

        All are stopped, and StartupError is raised, if one ends by itself before it was ever ready, which the
        next one would do as well, or is killed ``MOST_KILLED`` times.
        """
        try:
            with self._parent.makefile("rb") as file:
                self._settings, self._group_dir = pickle.load(file)  # noqa: S301 - from the parent
        except EOFError:  # it could not start its servers
            return
        while True:
            if self._kills_at is None:
                self._start_due()
            running = {each.line: each for each in self._processes if each.line is not None}
            if self._kills_at is not None and not running:
                break
            watched = [*running, self._parent] if self._kills_at is None else [*running]
            for line in select.select(watched, [], [], self._patience())[0]:
                if line is self._parent:
                    self._stop()
                elif line.recv(1) == READY:
                    self._note_ready(running[line])
                else:
                    self._note_end(running[line], line)
            if self._kills_at is not None and time.monotonic() >= self._kills_at:
                self._end(signal.SIGKILL)
        if self._failure is not None:
            raise StartupError(self._failure)

    def _patience(self) -> float | None:
        """Seconds until there is something to do without being told."""
        waiting = [each.starts_at for each in self._processes if each.line is None]
        at = min(waiting, default=None) if self._kills_at is None else self._kills_at
        return None if at is None else max(0.0, at - time.monotonic())

    def _start_due(self) -> None:
        now = time.monotonic()
        for process in self._processes:
            if process.line is None and process.starts_at <= now:
                process.born = now
                self._start(process)

    def _start(self, process: _Process) -> None:
        try:
            ours, theirs = socket.socketpair()
            process.pid = os.fork()
        except OSError as error:  # there are too many processes, or too little memory
            log.error("service process %d cannot start: %s", process.number, error.strerror)  # noqa: TRY400
            process.starts_at = process.born + LONGEST_PAUSE_S
            return
        if not process.pid:
            # Else the others would not read the end of the stream when the forker ends.
            for line in (ours, self._parent, *(each.line for each in self._processes)):
                if line is not None:
                    line.close()
            self._become(process, theirs)
        theirs.close()
        process.line = ours

    def _become(self, process: _Process, line: socket.socket) -> NoReturn:
        """Be the process. Errors of its start are raised: the command says them, and ends."""
        threading.Thread(target=_end_with, args=(line,), daemon=True).start()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # until it serves: the forker tells it to end
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        threadpool_limits(1)
        np.random.seed()  # noqa: NPY002 - plug-ins may draw from it: else all processes draw the same

        def ready(_server: Server) -> None:
            log.info("service process %d is ready", process.number)
            line.send(READY)

        serving = serve_on(
            self._settings,
            self._listener,
            name=process.name,
            ready=ready,
            group_dir=self._group_dir,
            number=process.number,
        )
        uvloop.run(serving)
        leave()

    def _stop(self) -> None:
        self._listener.close()  # that of each process closes with it: nobody connects and waits for nothing
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        # Later than each process's own grace: one that hangs is killed, and nothing else waits for it.
        self._kills_at = time.monotonic() + KILL_S
        for process in self._processes:
            if process.line is not None:  # so it was not waited for: the number is its own
                os.kill(process.pid, number)

    def _note_ready(self, process: _Process) -> None:
        news = not process.was_ready
        process.was_ready = True
        if news and all(each.was_ready for each in self._processes):
            log_ready(self._listener, self._settings)

    def _note_end(self, process: _Process, line: socket.socket) -> None:
        line.close()
        process.line = None
        status = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
        if self._kills_at is not None:
            return
        if not process.was_ready:
            process.killed += 1
            # An exit of its own says what is wrong, and the next process would find the same. A kill may have
            # been for memory that is free by now.
            if status >= 0 or process.killed == MOST_KILLED:
                self._failure = _why(process.number, status, process.killed)
                self._stop()
                return
        now = time.monotonic()
        process.pause = FIRST_PAUSE_S if now - process.born > HEALTHY_S else process.pause
        log.error("service process %d ended with status %d; starting it again", process.number, status)
        process.starts_at = now + process.pause
        process.pause = min(2 * process.pause, LONGEST_PAUSE_S)


def _end_with(line: socket.socket) -> None:
    """Send SIGTERM to this process once the forker is gone. Before it serves that ends it at once."""
    with suppress(OSError):
        line.recv(1)  # the forker sends nothing, so this returns when its side is closed
    os.kill(os.getpid(), signal.SIGTERM)


def _why(number: int, status: int, killed: int) -> str:
    """Why a process of a group never became ready. A negative status is the signal that ended it."""
    if status >= 0:
        return f"service process {number} ended at its start; it says why above"
    return (
        f"service process {number} was killed {killed} times before it was ready ({_name(status)}): the log "
        "of the system says why, often that there is too little memory for so many --workers"
    )


def _name(status: int) -> str:
    """The signal that ended a process, from its negative status."""
    return signal.strsignal(-status) or f"signal {-status}"
