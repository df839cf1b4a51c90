"""Arms as they are written and stored, and the state of an engine's copy of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

OF_REQUEST = 0  # revision of an arm that a request brought: the first of a catalogue is 1
_REVISION_AND_TIME = Struct("<QQ")


@dataclass(frozen=True, slots=True)
class ArmWrite:
    """One arm to insert or replace; ``features`` is little-endian float64, ``document`` opaque."""

    id: str
    features: bytes
    document: bytes = b""


class StoredArm(NamedTuple):
    """One arm as stored; ``features`` as in ``ArmWrite``. ``document``: b"" also for an unread one.

    ``came_ms``: when its id came, in ms since 1970 by the clock of the store; 0 of an arm of version 2.
    """

    id: str
    revision: int
    came_ms: int
    features: bytes
    document: bytes = b""

    @classmethod
    def of(cls, id_: str, value: bytes, document: bytes | None = None) -> StoredArm:
        """Decode the stored bytes of an arm: revision and ``came_ms``, eight bytes each, and features."""
        revision, came_ms = _REVISION_AND_TIME.unpack_from(value)
        return cls(id_, revision, came_ms, value[_REVISION_AND_TIME.size :], document or b"")


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
    ``came_ms``     when the id of each came, ms since 1970; 0 where that is not known
    ``changed``     whether this very call made the version
    """

    version: int
    added: int
    updated: int
    revisions: Sequence[int]
    came_ms: Sequence[int]
    changed: bool = True


@dataclass(frozen=True, slots=True)
class Deleted:
    """Outcome of ``delete_arms``: deleted ids, and missing ids."""

    version: int
    deleted: Sequence[str]
    missing: Sequence[str]


@dataclass(frozen=True, slots=True)
class ArmChanges:
    """The version of a catalogue, and the arms changed since the known one; None: not known which."""

    version: int
    ids: Sequence[str] | None = ()


class Position(NamedTuple):
    """Position of a change: the version made by the change, and the arm."""

    version: int = 0
    arm: str = ""


@dataclass(frozen=True, slots=True)
class Followed:
    """The state of a catalogue's copy in the store.

    ``pending``     changes which the engine lacks, about
    ``collection``  "": there is none yet
    ``quality``     opaque: measurements of the collection
    ``is_ours``     True if the caller holds the follower's lease
    """

    version: int
    arms: int
    pending: int
    position: Position
    collection: str
    quality: bytes
    is_ours: bool
