"""One service per data directory."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from app.errors import StartupError

_POLL_S = 0.02


def lock_directory(directory: Path, *, wait_s: float = 10.0) -> int:
    """Lock ``directory``, made with mode 0700 if need be; return the descriptor that holds the lock.

    The lock lasts until every copy of the descriptor is closed, in children too. Raises StartupError when
    a living process holds it. When that process has ended but a child of it has not, waits up to ``wait_s``.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StartupError(f"the data directory {directory} cannot be used: {error.strerror}") from error
    deadline = time.monotonic() + wait_s
    while not _try_lock(descriptor):
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        if _alive(holder) or time.monotonic() > deadline:
            os.close(descriptor)
            raise StartupError(f"the data directory {directory} is in use by process {holder}")
        time.sleep(_POLL_S)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _alive(pid: str) -> bool:
    if not pid.isdecimal():  # the holder has not written it yet
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
