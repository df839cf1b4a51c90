"""The contract of where a process has the arms of a catalogue: all in its memory, or only some of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from app.filters.attributes import Document
from app.indexes.snapshot import Snapshot
from app.storage.types import Deleted, Upserted
from shortlist.types import Vector


class FoundArms(NamedTuple):
    """Some arms. Shapes: ids, revisions, places (n,), features (n, d). ``places``: where a page goes on."""

    ids: Sequence[str]
    features: NDArray[np.float64]
    revisions: Sequence[int]
    places: Sequence[str] = ()


class ArmRepository(Protocol):
    """The arms of one catalogue. The store has them all; a change is written there first.

    ``keeps_changes``: whether the store is to keep the change of every arm, see ``FollowedArms``.
    """

    @property
    def keeps_changes(self) -> bool: ...

    async def open(self) -> None:
        """Be ready to answer, with everything that the store has now."""

    async def has_room(self) -> None:
        """Return when more arms can be written. Raises Unavailable."""

    async def wrote(
        self,
        ids: Sequence[str],
        features: NDArray[np.float64],
        documents: Sequence[Document],
        sizes: Sequence[int],
        done: Upserted,
    ) -> None:
        """The store has these arms now. ``sizes``: of their documents, in bytes."""

    async def removed(self, ids: Sequence[str], done: Deleted) -> None:
        """The store has not these arms any more, or never had."""

    async def sync(self) -> None:
        """Do what other processes have done. The caller holds the lock of the catalogue."""

    async def page(self, after: str | None, limit: int) -> FoundArms:
        """The first ``limit`` arms after a place, in an order in which an unchanged arm keeps its place.

        Raises Invalid: there is no such place.
        """
        ...

    async def sample(self, seed: int, limit: int) -> FoundArms:
        """At most ``limit`` arms drawn uniformly without replacement.

        The same arms with the same history give the same draw in every process.
        """
        ...

    async def find(self, ids: Collection[str]) -> FoundArms:
        """The existing arms of ``ids``, in the order of ``ids``."""
        ...

    async def sampled(self) -> Snapshot:
        """All arms, or as many as tell what they are like."""
        ...

    async def at(self, arm_id: str, revision: int) -> Vector | None:
        """The features at a revision, if they are at hand."""
        ...

    async def dropped(self) -> None:
        """The catalogue was deleted: leave nothing behind."""
