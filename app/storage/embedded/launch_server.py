"""Becomes the store's server, after making sure of the server's end when the starting process ends.

    python launch_server.py PARENT LIFELINE SERVER ARGUMENT...

PARENT is the process id of the service. With LIFELINE -1 the kernel kills the server as soon as the starting
thread is gone, even after SIGKILL (Linux, PR_SET_PDEATHSIG). Elsewhere, macOS above all, LIFELINE is the read
end of a pipe whose only write end is in the service: a forked watcher kills the server at its end.

This is a program of its own because code between fork and exec is not safe in a process with threads.
The program uses the standard library only and is run by path, without the package.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    # The standard library has no prctl, and a package is not importable here (-I -S).
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def watch_parent(lifeline: int) -> None:
    """Fork the watcher. The watcher kills no stranger: first it checks whether the server is still its
    parent.
    """
    server = os.getpid()
    if os.fork():
        os.close(lifeline)
        return
    os.dup2(lifeline, 0)
    os.closerange(1, 1024)  # above all the lock on the data directory: that is the server's
    # The read returns at the end of the pipe: the kernel closes the service's end, whatever killed the
    # service.
    os.read(0, 1)
    if os.getppid() == server:
        os.kill(server, signal.SIGKILL)
    os._exit(0)


def main(parent: int, lifeline: int, command: list[str]) -> None:
    if lifeline >= 0:
        watch_parent(lifeline)
    else:
        die_with_parent()
    if os.getppid() == parent:  # else it ended before anything watched it
        os.execv(command[0], command)  # noqa: S606 - the service names the command, nobody else


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
