"""The arms of catalogues that no process holds: their changes in order, and how far an engine has them.

Notation
    position    (version, arm) of a change: an arm stands at its last change alone, deleted ones too. Within a
                version arms stand in the order of the bytes of their ids.

The engine is a copy that a follower keeps, one at a time of all processes: it holds the lease. Everything
up to ``Followed.position`` is in ``Followed.collection`` of the engine, as it was then or later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Position(NamedTuple):
    version: int = 0
    arm: str = ""


class DescribedArm(NamedTuple):
    """An arm with its document, as they were at one moment."""

    id: str
    revision: int
    features: bytes
    document: bytes


@dataclass(frozen=True, slots=True)
class Followed:
    """What the store knows of a catalogue and its copy.

    ``pending``     changes that the engine has not got, about
    ``collection``  "": there is none yet
    ``quality``     opaque: what was measured of it
    ``is_ours``     whether the caller holds the lease of the follower
    """

    version: int
    arms: int
    pending: int
    position: Position
    collection: str
    quality: bytes
    is_ours: bool


class FollowedArms(Protocol):
    """By the uid of a catalogue, whose changes are never dropped: it is written with ``keeps_changes``."""

    async def changes(
        self, uid: str, after: Position, limit: int, *, newest: int | None = None
    ) -> Sequence[Position]:
        """The first ``limit`` changes after a position, up to the version ``newest``, in their order.

        Cost: O(log arms + limit).
        """
        ...

    async def at_ranks(self, uid: str, ranks: Sequence[int]) -> Sequence[str]:
        """The arms at these places of the order of changes, counted from 0; deleted ones are among them."""
        ...

    async def noted(self, uid: str) -> int:
        """How many arms stand in the order of changes."""
        ...

    async def read(self, uid: str, ids: Sequence[str]) -> Sequence[DescribedArm | None]:
        """These arms as they are now; None for those that are not there."""
        ...

    async def look(self, uid: str) -> Followed:
        """What is known now. It takes no lease."""
        ...

    async def follow(self, uid: str, owner: str, ttl_ms: int) -> Followed:
        """The same; and take the lease, or begin it anew, unless another owner holds it."""
        ...

    async def advance(
        self, uid: str, owner: str, *, collection: str, before: Position, after: Position, quality: bytes
    ) -> bool:
        """The engine has everything up to ``after``. False: the lease was lost, and nothing is noted.

        Then what was written after ``before`` may have come after what a later follower wrote. So that one
        begins again at ``before``, if it writes to the same collection.
        """
        ...

    async def leave(self, uid: str, owner: str) -> None:
        """Let go of the lease, if it is the owner's."""
        ...

    async def forget(self, uid: str, deleted: Sequence[Position]) -> None:
        """Drop arms from the order of changes that are deleted, and did not change since."""
        ...
