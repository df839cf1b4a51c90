"""Errors of the driver and of the server, as one error for callers, without a word of the sent data."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from redis import exceptions as driver

from app.platform.errors import Unavailable

_LOG = logging.getLogger("shortlist.store")

FULL_BYTES = 16 << 20  # about the longest write
DISK_FULL = "the disk of SHORTLIST_DATA_DIR is full"
IS_REPLICA = "is a replica: writes need the primary"
OUT_OF_MEMORY = "is out of memory: its maxmemory is reached, and writes are refused"

# Not all errors of the driver derive from RedisError. The failure to open a socket is an OSError. A write to
# a connection closed a moment ago is a RuntimeError of uvloop or an AttributeError of the driver.
DRIVER_ERRORS = (
    driver.RedisError,
    driver.RedisClusterException,
    driver.ChildDeadlockedError,
    driver.IncorrectPolicyType,
    OSError,
    RuntimeError,
    AttributeError,
)

# Errors of a healthy server for a while. Any other error is Unavailable to the caller too, and also logged,
# since the error may be a mistake in this project. See also ``unavailable``.
_PASSING = (
    driver.ConnectionError,
    driver.ClusterError,
    driver.RedisClusterException,
    OSError,
    RuntimeError,
    AttributeError,
)
_PASSING_WORDS = ("BUSY", "CLUSTERDOWN", "TRYAGAIN")
_CANNOT_WRITE = "MISCONF"
_TOO_FEW_REPLICAS = "NOREPLICAS"
# Redis 6.2 wraps the refusal of a command in a script in an error of the script.
_OUT_OF_MEMORY = "OOM command not allowed"
_READ_ONLY = "READONLY You can't write"
_NOT_PERMITTED = ("no permissions", "NOPERM", "unknown command", "user executing the script can't")
_COMMAND = re.compile(r"(?:command )?['`](?P<name>[a-zA-Z|]+)'(?: command|, with args)")


@contextmanager
def translated() -> Iterator[None]:
    """Turn every error of the driver into Unavailable, without its text, which may hold what was sent."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise unavailable(error, None) from error


def unavailable(error: Exception, data_dir: Path | None) -> Unavailable:
    """The same error for callers, logged unless a healthy server may give it. The text names a full disk
    of ``data_dir``: the embedded server then ends at each write.
    """
    is_known = is_out_of_memory(error) or may_be_replaced(error) or _is_not_permitted(error)
    if not (is_known or isinstance(error, _PASSING) or str(error).startswith(_PASSING_WORDS)):
        _LOG.error("the store refused a call", exc_info=error)
    detail = f"the store {_reason(error)} ({type(error).__name__})"
    if data_dir is not None and is_full(data_dir):
        detail += f", and {DISK_FULL}"
    return Unavailable(detail)


def is_full(folder: Path) -> bool:
    """Return whether the folder's disk has no room for a write of the store. The folder may be another
    service's.
    """
    with suppress(OSError):
        return shutil.disk_usage(folder).free < FULL_BYTES
    return False


def _reason(error: Exception) -> str:
    """The end of a sentence which begins with "the store"."""
    text = str(error)
    command = _COMMAND.search(text)
    what = f"the command {command['name'].upper()}" if command else "a command or a key"
    reasons = (
        (
            isinstance(error, driver.AuthenticationError) or "username-password" in text,
            "wants another user or password than its URL has",
        ),
        ("DB index is out of range" in text, "has no database of the number that its URL ends with"),
        (_CANNOT_WRITE in text, "cannot write to its disk, which may be full: its log says why"),
        (is_out_of_memory(error), OUT_OF_MEMORY),
        (_is_of_replica(error), IS_REPLICA),
        (
            _TOO_FEW_REPLICAS in text,
            "refuses writes: fewer replicas follow it than its min-replicas-to-write",
        ),
        (isinstance(error, driver.BusyLoadingError), "is loading its data"),
        (_is_not_permitted(error), f"does not permit {what} to the user of its URL"),
        (isinstance(error, driver.ResponseError), "refuses the call"),
    )
    return next((reason for applies, reason in reasons if applies), "does not answer")


def is_out_of_memory(error: Exception) -> bool:
    """Return whether the server refuses a write since its memory is full."""
    return isinstance(error, driver.OutOfMemoryError) or _OUT_OF_MEMORY in str(error)


def may_be_replaced(error: Exception) -> bool:
    """Return whether the server takes no writes for now, or is silent: another may be at its address."""
    return (
        _is_of_replica(error)
        or isinstance(error, driver.BusyLoadingError | driver.TimeoutError)
        or any(word in str(error) for word in (_TOO_FEW_REPLICAS, _CANNOT_WRITE))
    )


def refused(error: Unavailable) -> bool:
    """Return whether the server has answered with a refusal."""
    return isinstance(error.__cause__, driver.ResponseError)


def _is_of_replica(error: Exception) -> bool:
    """Return whether a replica gives this error, and a primary does not."""
    return isinstance(error, driver.ReadOnlyError | driver.MasterDownError) or _READ_ONLY in str(error)


def _is_not_permitted(error: Exception) -> bool:
    return isinstance(error, driver.NoPermissionError) or any(word in str(error) for word in _NOT_PERMITTED)
