"""The place of a lake: a folder, or an object store known to fsspec."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fsspec

from shortlist_service.errors import ShortlistError


class Storage:
    """The files below an address. Names are relative to it. ``fs`` is fsspec's file system.

    Raises ShortlistError: fsspec does not know the address.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        with self.guard():
            self.fs, root = fsspec.core.url_to_fs(address)
        self._root = root.rstrip("/")
        protocols: Any = self.fs.protocol
        self.is_local = "file" in ((protocols,) if isinstance(protocols, str) else protocols)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Raise the errors of files inside the block as a ShortlistError of one line."""
        try:
            yield
        except (OSError, ImportError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            raise self.refusal(f"cannot be read or written: {reason}") from None

    def refusal(self, reason: str) -> ShortlistError:
        """The error that names the address."""
        return ShortlistError(f"{self.address}: {reason}")

    def path(self, name: str = "") -> str:
        """The path, as fsspec has it."""
        return f"{self._root}/{name}" if name else self._root

    def exists(self, name: str = "") -> bool:
        return bool(self.fs.exists(self.path(name)))

    def sizes(self, folder: str = "") -> dict[str, int]:
        """The files below a folder, by name, with their bytes."""
        self.fs.invalidate_cache()
        entries = self.fs.find(self.path(folder), detail=True) if self.exists(folder) else {}
        return {path[len(self._root) + 1 :]: entry["size"] for path, entry in entries.items()}

    def write(self, name: str, content: bytes) -> None:
        """Write a file; in a folder the file is on the disk when this returns."""
        path = self.path(name)
        if self.is_local:
            self.fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        with self.fs.open(path, "wb") as file:
            file.write(content)
            if self.is_local:
                file.flush()
                os.fsync(file.fileno())

    def move(self, name: str, to: str) -> None:
        """Give a file another name, in place of the file which has it."""
        if self.is_local:
            self.fs.makedirs(self.path(to).rpartition("/")[0], exist_ok=True)
        self.fs.mv(self.path(name), self.path(to))
