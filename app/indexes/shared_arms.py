"""The arms and the graph of one catalogue for several processes: one of them makes them, all read.

    publication     a numbered folder: arm files, what was planned for them, and a graph
    current         a symbolic link to the latest publication; it is replaced in one step

A publication is read only when ``current`` names it, and never changed from then on. So a process that is
killed while it makes one leaves a folder that nobody reads, which the next publication removes. One that was
replaced stays readable for who has mapped it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_CURRENT = "current"


class SharedArms:
    """See the module. ``is_maker`` says whether this process makes the publications; it may change."""

    def __init__(self, folder: Path, is_maker: Callable[[], bool]) -> None:
        self.is_maker = is_maker
        self._folder = folder

    @property
    def current(self) -> int | None:
        """The number of the latest publication, None if there is none."""
        try:
            return int((self._folder / _CURRENT).readlink().name)
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
        number = max((int(path.name) for path in self._numbered()), default=0) + 1
        made = self.folder_of(number)
        made.mkdir(mode=0o700)
        try:
            yield made
            link = self._folder / "next"
            link.unlink(missing_ok=True)
            link.symlink_to(str(number))
            link.replace(self._folder / _CURRENT)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
        for path in self._numbered():
            if path != made:
                shutil.rmtree(path, ignore_errors=True)

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
