"""The processes that share the arms of their catalogues, as those of `shortlist serve --workers` do.

One of them is the maker: it holds the lock on the folder. If it ends, another takes its part at the next
look. The folder is empty when the group starts.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from app.indexes.shared_arms import SharedArms
from app.storage.directory_lock import try_lock

_LOADED = "loaded"
_LOOK_S = 0.02


class SharingGroup:
    """One process of the group. ``folder`` is there, and for this group alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock: int | None = None

    def is_maker(self) -> bool:
        """Whether this process makes what all read; it becomes the maker if nobody is."""
        if self._lock is None:
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
        """What is shared of a catalogue."""
        return SharedArms(self._folder / uid, self.is_maker)
