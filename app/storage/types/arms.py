"""The arms of catalogues, and the order of their changes for an engine that has a copy.

The arms of catalogues that no process holds: their changes in order, and how far an engine has them.

Notation
    position    (version, arm) of a change: an arm stands at its last change alone, deleted ones too. Within a
                version arms stand in the order of the bytes of their ids.

The engine is a copy that a follower keeps, one at a time of all processes: it holds the lease. Everything
up to ``Followed.position`` is in ``Followed.collection`` of the engine, as it was then or later.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class ArmWrite:
    """One arm to insert or replace; ``features`` is little-endian float64, ``document`` opaque."""

    id: str
    features: bytes
    document: bytes = b""


class StoredArm(NamedTuple):
    """One arm as stored; ``features`` as in ``ArmWrite``."""

    id: str
    revision: int
    features: bytes

    @classmethod
    def of(cls, id_: str, value: bytes) -> StoredArm:
        """From what is stored of it: its revision, eight bytes little-endian, and its features."""
        return cls(id_, int.from_bytes(value[:8], "little"), value[8:])


@dataclass(frozen=True, slots=True)
class StoredArms:
    """Arms as stored, each once, without an object for each.

    ``ids``, ``values``: (n,). A value is what ``StoredArm.of`` takes apart.
    """

    ids: Sequence[str]
    values: Sequence[bytes]

    def __iter__(self) -> Iterator[StoredArm]:
        for id_, value in zip(self.ids, self.values, strict=True):
            yield StoredArm.of(id_, value)


@dataclass(frozen=True, slots=True)
class Upserted:
    """Outcome of ``upsert_arms``.

    ``version``     of the catalogue, after the call
    ``revisions``   that of each arm, in the order of the call; new where its features changed
    ``changed``     whether this very call made the version
    """

    version: int
    added: int
    updated: int
    revisions: Sequence[int]
    changed: bool = True


@dataclass(frozen=True, slots=True)
class Deleted:
    """Outcome of ``delete_arms``: ids that were there, and ids that were not."""

    version: int
    deleted: Sequence[str]
    missing: Sequence[str]


@dataclass(frozen=True, slots=True)
class ArmChanges:
    """The version of a catalogue, and the arms changed since the known one; None: not known which."""

    version: int
    ids: Sequence[str] | None = ()


class ArmStore(Protocol):
    """Arms by the uid of their catalogue. Writing to a deleted catalogue raises NotFound."""

    async def upsert(
        self, uid: str, arms: Sequence[ArmWrite], *, keep_ms: int, keeps_changes: bool = False
    ) -> Upserted:
        """Insert or replace, in the given order: of several arms with one id the last one stays.

        ``keeps_changes``: no change is dropped from the log of changes, see ``FollowedArms``.

        Features that are replaced stay readable by revision for ``keep_ms``. What changes nothing makes no
        new version.
        """
        ...

    async def delete(
        self, uid: str, ids: Sequence[str], *, keep_ms: int, keeps_changes: bool = False
    ) -> Deleted:
        """Remove arms; their features stay readable by revision for ``keep_ms``."""
        ...

    def scan(self, uid: str) -> AsyncIterator[StoredArms]:
        """All arms, each once, in batches, in no order.

        Not a snapshot: an arm that is written meanwhile comes in its old or its new version, or not at all
        if it is new or deleted.
        """
        ...

    async def version(self, uid: str) -> int:
        """Number of calls that changed something; 0 of a catalogue without arms."""
        ...

    async def has_documents(self, uid: str) -> bool:
        """Whether any arm has a document."""
        ...

    async def documents(
        self, uid: str, ids: Sequence[str], *, most_bytes: int | None = None
    ) -> Sequence[bytes]:
        """The documents of these arms, b"" where there is none.

        With ``most_bytes`` those of the first of them: one at least, and as many as take no more together.
        """
        ...

    async def retired_features(self, uid: str, revision: int) -> bytes | None:
        """Features that were replaced or deleted, while they are kept."""
        ...

    async def changed(self, uid: str, since: int) -> ArmChanges:
        """What was written after the version ``since``; one that is above the version is not known."""
        ...

    async def read(self, uid: str, ids: Sequence[str]) -> Sequence[StoredArm | None]:
        """These arms as they are now; None for those that are not there."""
        ...


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
