"""Some arms of a catalogue in an engine, in memory beside it: those that searches compare whatever it finds.

They are as the store had them when they were read. Which of them have changed since is noted, and the next
``hold`` reads those again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from app.indexes.live import IndexOptions, LiveIndex
from app.indexes.snapshot import ResidentSnapshot
from app.platform.deadlines import yield_to_others
from app.records.records import attributes_of, bytes_to_vector
from app.storage.followed_arms import FollowedArms

READ_TOGETHER = 256
MOST_ROWS = 4  # times as many as are held: from then on the dead take too much memory


class HeldArms:
    """For the event loop. ``snapshot`` may be searched in any thread."""

    def __init__(self, uid: str, dim: int, store: FollowedArms) -> None:
        self._uid, self._dim, self._store = uid, dim, store
        self._arms = LiveIndex(dim, IndexOptions(kind="exact"))
        self._held: set[str] = set()
        self._changed: set[str] = set()

    @property
    def is_current(self) -> bool:
        """Whether none of them has changed since it was read, as far as this process knows."""
        return not self._changed

    def snapshot(self) -> ResidentSnapshot:
        return self._arms.snapshot()

    def note(self, ids: Sequence[str] | None) -> None:
        """These arms of the catalogue have changed, or are gone; None: any may have."""
        self._changed |= self._held if ids is None else self._held.intersection(ids)

    async def hold(self, ids: Collection[str]) -> None:
        """Have these arms and no others, but those that are not there. Raises Unavailable.

        Cost: reads those that are new, or have changed.
        """
        wanted, changed = set(ids), self._changed
        gone = self._held - wanted | changed
        self._arms.remove(list(gone))
        self._held, self._changed = self._held - gone, set()
        if self._arms.snapshot().table.rows + len(wanted - self._held) > MOST_ROWS * len(wanted):
            self._arms, self._held = LiveIndex(self._dim, IndexOptions(kind="exact")), set()
        missing = sorted(wanted - self._held)
        for start in range(0, len(missing), READ_TOGETHER):
            together = missing[start : start + READ_TOGETHER]
            # Before they are read: what changes meanwhile is noted, and read again.
            self._held.update(together)
            read = [arm for arm in await self._store.read(self._uid, together) if arm is not None]
            if read:
                found = [arm.id for arm in read]
                features = np.array([bytes_to_vector(arm.features) for arm in read])
                self._arms.upsert(found, features, [arm.revision for arm in read])
                self._arms.describe(found, [attributes_of(arm.document) for arm in read])
            await yield_to_others()
