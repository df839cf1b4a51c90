"""The arms of catalogues."""

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
