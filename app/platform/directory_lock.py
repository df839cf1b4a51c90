"""A lock on the data directory, so that only one service uses it."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from app.platform.errors import StartupError

_POLL_S = 0.02
_LIVING_WAIT_S = 1.0


def lock_directory(directory: Path, *, wait_s: float = 10.0) -> int:
    """Lock ``directory``, made with mode 0700 if need be; return the descriptor with the lock.

    The lock lasts until every copy of the descriptor is closed, in children too. Raises StartupError when
    another process holds the lock: after ``_LIVING_WAIT_S`` for a living one, else after ``wait_s``, because
    then one of its children holds the lock, and is on its way out too.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # An existing folder may be open to others: it holds secrets and everybody's rewards.
        directory.chmod(0o700)
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StartupError(f"the data directory {directory} cannot be used: {error.strerror}") from error
    start = time.monotonic()
    while not _try_lock(descriptor):
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        if time.monotonic() - start > (min(wait_s, _LIVING_WAIT_S) if _alive(holder) else wait_s):
            os.close(descriptor)
            raise StartupError(f"the data directory {directory} is in use by process {holder}")
        time.sleep(_POLL_S)
    # The number of the one before may have more digits.
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def try_lock(directory: Path) -> int | None:
    """The descriptor with the lock on an existing folder, until the process ends; None if taken."""
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if _try_lock(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def _try_lock(descriptor: int) -> bool:
    try:
        # flock, not lockf: it belongs to the open file, so children with an inherited descriptor hold the
        # lock too.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _alive(pid: str) -> bool:
    if not pid.isdecimal():  # the holder has not written it yet
        return False
    try:
        os.kill(int(pid), 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        return False
    return True
