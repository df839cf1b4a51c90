"""Publications of one catalogue's arms, which the processes of `shortlist serve --workers` share, and their
maker. Processes of a sharing group map the same files: a catalogue is in memory once. One process is the
maker: it holds a lock on the folder, and makes publications; the others adopt them. If the maker ends,
another process takes the lock the next time it checks. The folder is empty when the group starts.

    publication     a numbered folder, see ``publishing``
    current         a file with the number of the latest publication; replaced in one step
    failure         a file with the reason why the last publication could not be made, or empty

A publication is read only once ``current`` names it, and is never changed from then on. So a process killed
while making one leaves an unread folder, and the next publication removes it. A replaced publication stays
readable for processes which have mapped it.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from app.platform.directory_lock import try_lock
from shortlist.index.shared_format import write

_CURRENT, _NEXT, _FAILURE = "current", "next", "failure"
_FAILURE_BYTES = 512
_LOADED = "loaded"
_LOOK_S = 0.02


class SharedArms:
    """See the module. ``is_maker`` says whether this process makes the publications; it may change."""

    def __init__(self, folder: Path, is_maker: Callable[[], bool]) -> None:
        self.is_maker = is_maker
        self._folder = folder

    @property
    def current(self) -> int | None:
        """The number of the latest publication, None if there is none."""
        try:
            return int((self._folder / _CURRENT).read_bytes())
        except (OSError, ValueError):
            return None

    def folder_of(self, number: int) -> Path:
        return self._folder / str(number)

    @contextmanager
    def publication(self) -> Iterator[Path]:
        """An empty folder for the next publication, which is ``current`` after the ``with``. Raises OSError.

        The others are removed. If the ``with`` raises, this one is.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (self._folder / _FAILURE).exists():
            write(self._folder / _FAILURE, np.full(_FAILURE_BYTES, ord(" "), dtype=np.uint8))
        number = max((int(path.name) for path in self._numbered()), default=0) + 1
        folder = self.folder_of(number)
        # Features and metadata are the owner's: other users of the machine must not read them.
        folder.mkdir(mode=0o700)
        try:
            yield folder
            latest = self._folder / _NEXT
            latest.unlink(missing_ok=True)
            write(latest, np.frombuffer(str(number).encode(), dtype=np.uint8))
            # In one step: a reader sees the number before or the one after, never an empty file.
            latest.replace(self._folder / _CURRENT)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        # Only now: readers with ``current`` opened a moment ago still find the one before, and mapped files
        # outlive their names.
        for path in self._numbered():
            if path != folder:
                shutil.rmtree(path, ignore_errors=True)

    @property
    def failure(self) -> str | None:
        """Why the last publication could not be made, as its maker told."""
        try:
            return (self._folder / _FAILURE).read_bytes().rstrip(b" ").decode() or None
        except (OSError, UnicodeDecodeError):
            return None

    def tell(self, failure: str | None) -> None:
        """Tell the other processes why a publication could not be made; None: the publication was made.

        The file is written over, which takes no room on a full disk.
        """
        text = (failure or "").encode()[:_FAILURE_BYTES].ljust(_FAILURE_BYTES)
        with suppress(OSError), (self._folder / _FAILURE).open("r+b") as file:
            file.write(text)

    def discard(self, number: int) -> None:
        """This publication is damaged: the maker is to make another."""
        if self.current == number:
            with suppress(OSError):
                (self._folder / _CURRENT).unlink()

    def remove(self) -> None:
        """Remove all publications."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _numbered(self) -> list[Path]:
        return [path for path in self._folder.glob("[0-9]*") if path.name.isdecimal()]


class SharingGroup:
    """One process of the group. ``folder`` is there, and for this group alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock: int | None = None

    def is_maker(self) -> bool:
        """True if this process makes the publications. Without a maker, this process becomes the maker."""
        if self._lock is None:
            # The lock goes with the process, however it ends: so there is always a maker again.
            self._lock = try_lock(self._folder)
        return self._lock is not None

    async def turn(self) -> None:
        """Wait until this process is the maker, or a maker has loaded every catalogue."""
        while not (self._folder / _LOADED).exists() and not self.is_maker():  # noqa: ASYNC110 (no event)
            await asyncio.sleep(_LOOK_S)

    def loaded(self) -> None:
        """This process has loaded every catalogue."""
        (self._folder / _LOADED).touch(mode=0o600)

    def arms_of(self, uid: str) -> SharedArms:
        """The shared files of a catalogue."""
        return SharedArms(self._folder / uid, self.is_maker)
