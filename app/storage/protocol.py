"""What the services need of a store: the one interface that ``redis_store`` implements.

Notation
    uid         random identifier of one incarnation of a catalogue or bandit: a name that was
                deleted and made again gets a new one, so nothing old can be mistaken for it
    revision    number of one version of one arm's features, ascending within a catalogue
    partition   0 <= partition < partitions; a learner belongs to exactly one
    entry id    position in the reward log of a partition: a Redis stream id, "<ms>-<n>"
    watermark   entry id up to which the log has been folded into the states of a partition

Every call is atomic and durable when it returns, unless it says otherwise. A call that cannot reach the
store raises ``Unavailable``; all writes are safe to repeat.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from app.storage.changes import DeadLetter, Following, LogEntry, StoredArm
from app.storage.decision_log import DecisionId, DecisionLog
from app.storage.learner_id import LearnerId

__all__ = [
    "Appended",
    "ArmWrite",
    "DeadLetter",
    "DecisionId",
    "Deleted",
    "LearnerId",
    "LogEntry",
    "Registry",
    "RewardWrite",
    "Store",
    "StoredArm",
    "StoredCampaign",
    "Upserted",
]


@dataclass(frozen=True, slots=True)
class ArmWrite:
    """One arm to insert or replace; ``features`` is little-endian float64, ``document`` opaque."""

    id: str
    features: bytes
    document: bytes = b""


@dataclass(frozen=True, slots=True)
class Upserted:
    """Outcome of ``upsert_arms``: ``revisions[i]`` is that of arm i, new when its features changed;
    ``changed`` says whether this very call made the version.
    """

    version: int
    added: int
    updated: int
    revisions: Sequence[int]
    changed: bool = True


@dataclass(frozen=True, slots=True)
class Deleted:
    """Outcome of ``delete_arms``."""

    version: int
    deleted: Sequence[str]
    missing: Sequence[str]


@dataclass(frozen=True, slots=True)
class RewardWrite:
    """One entry for the reward log.

    ``once``          the entry is a duplicate when this word was seen for the learner in the last ``ttl_ms``
    ``first``         word of the decision and arm it belongs to: the entry carries ``first=True`` when it
                      is the first with that word; None means it always does
    ``issued_ms``     when the decision was made: refused if the learner was forgotten at or after it
    """

    learner: LearnerId
    once: str
    first: str | None
    issued_ms: int
    ttl_ms: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of one RewardWrite.

    ``entry_id`` is the entry's; of a duplicate it is that of the newest entry, which its first copy cannot be
    after; empty when forgotten.
    """

    status: Literal["accepted", "duplicate", "forgotten"]
    entry_id: str = ""


@dataclass(frozen=True, slots=True)
class Registry:
    """All catalogues and bandits: name -> record. The version grows with every change."""

    catalogues: Mapping[str, bytes] = field(default_factory=dict)
    bandits: Mapping[str, bytes] = field(default_factory=dict)
    version: int = 0


@dataclass(frozen=True, slots=True)
class StoredCampaign:
    """What ``read_campaign`` found: ``events`` begin at ``position``, the number of events before them.

    ``state`` is that of the newest snapshot, at ``position``; None when the read was from a given position
    on, or there is no snapshot yet.
    """

    record: bytes
    position: int
    state: bytes | None
    events: Sequence[bytes]


class Store(Following, DecisionLog, Protocol):
    """The store. Implementations: ``app.storage.redis_store.RedisStore``."""

    partitions: int

    async def ping(self) -> None:
        """Return when the store answers."""

    async def close(self) -> None: ...

    # Registry -----------------------------------------------------------------------------------
    async def registry(self) -> Registry: ...

    async def create_catalogue(self, name: str, record: bytes) -> bytes:
        """Store ``record`` if the name is free; return the record that now stands."""
        ...

    async def delete_catalogue(self, name: str, uid: str) -> Literal["deleted", "missing", "in_use"]:
        """Remove the catalogue and then its arms (in small steps: not atomic, but safe to repeat).

        From then on its arms cannot be written: NotFound.
        """
        ...

    async def create_bandit(self, name: str, record: bytes, *, catalogue: str) -> bytes | None:
        """Store ``record`` if the name is free; None when the catalogue does not exist."""
        ...

    async def delete_bandit(self, name: str, uid: str, *, catalogue: str) -> bool:
        """Remove the bandit and then its learners' states; False when it was not there.

        From then on no state of it is written (``apply``).
        """
        ...

    async def finish_deletions(self) -> int:
        """Remove what is left of what was deleted when that was broken off; how many there were."""
        ...

    # Catalogues ---------------------------------------------------------------------------------
    async def upsert_arms(self, uid: str, arms: Sequence[ArmWrite], *, keep_ms: int) -> Upserted:
        """Insert or replace. Features that are replaced stay readable by revision for ``keep_ms``."""
        ...

    async def delete_arms(self, uid: str, ids: Sequence[str], *, keep_ms: int) -> Deleted: ...

    def scan_arms(self, uid: str) -> AsyncIterator[Sequence[StoredArm]]:
        """All arms, in batches, in no order; exact only while nothing is written."""
        ...

    async def catalogue_version(self, uid: str) -> int: ...

    async def documents(self, uid: str, ids: Sequence[str]) -> Sequence[bytes]:
        """The documents of these arms, b"" where there is none."""
        ...

    async def retired_features(self, uid: str, revision: int) -> bytes | None:
        """Features that were replaced or deleted, while they are kept."""
        ...

    # Rewards ------------------------------------------------------------------------------------
    async def append_rewards(self, partition: int, rewards: Sequence[RewardWrite]) -> Sequence[Appended]:
        """Append those that are neither duplicates nor of a forgotten learner to their partition's log."""
        ...

    async def append_forget(self, learner: LearnerId, *, payload: bytes, now_ms: int, ttl_ms: int) -> str:
        """Append an entry, and refuse for ``ttl_ms`` all rewards of decisions up to ``now_ms``."""
        ...

    async def read_log(self, partition: int, after: str, count: int) -> Sequence[LogEntry]: ...

    async def watermark(self, partition: int) -> str:
        """The watermark; "0-0" before the first."""
        ...

    async def states(self, partition: int, learners: Sequence[LearnerId]) -> Sequence[bytes | None]:
        """The states that the partition holds of these learners."""
        ...

    async def apply(
        self,
        partition: int,
        *,
        expected: str,
        watermark: str,
        states: Mapping[LearnerId, bytes | None],
        dead: Sequence[DeadLetter] = (),
    ) -> bool:
        """If the watermark is ``expected``: write all states (None removes) and dead letters, and move it.
        Else do nothing."""
        ...

    async def backlog(self, partition: int) -> int:
        """Entries of the log that are not yet folded."""
        ...

    async def trim_log(self, partition: int, before_ms: int) -> None:
        """Drop entries that are both older than ``before_ms`` and at or below the watermark."""
        ...

    # Turns --------------------------------------------------------------------------------------
    async def take_turns(self, learner: LearnerId, *, count: int, most: int, claim: str, ttl_ms: int) -> int:
        """Take the next ``count`` turns of a learner; return the first, at least ``most`` if all are taken.

        The same ``claim``, unless it is empty, gets the same turns. Forgotten ``ttl_ms`` after the last one.
        """
        ...

    async def drop_turns(self, learner: LearnerId) -> None: ...

    # Words written once -------------------------------------------------------------------------
    async def put_once(self, partition: int | None, name: str, value: bytes, *, ttl_ms: int | None) -> bytes:
        """Store ``value`` under ``name`` unless something is there; return what now stands."""
        ...

    async def get_once(self, partition: int | None, name: str) -> bytes | None: ...

    # Campaigns ----------------------------------------------------------------------------------
    async def create_campaign(self, kind: str, name: str, record: bytes) -> bytes:
        """Store ``record``, which begins with a uid, if the name is free; return the one that now stands."""
        ...

    async def campaigns(self, kind: str) -> Sequence[str]:
        """Names of all campaigns of a kind, ascending."""
        ...

    async def read_campaign(
        self, kind: str, name: str, *, uid: str, position: int, count: int
    ) -> StoredCampaign | None:
        """At most ``count`` events: from ``position`` on if its uid is ``uid``, else from its snapshot.

        None when there is no such campaign.
        """
        ...

    async def append_event(
        self, kind: str, name: str, *, uid: str, position: int, event: bytes
    ) -> Literal["appended", "overtaken", "missing"]:
        """Append if there are exactly ``position`` events; "overtaken" may also be by a call of one's own."""
        ...

    async def save_snapshot(self, kind: str, name: str, *, uid: str, position: int, state: bytes) -> None:
        """Keep the state after ``position`` events, unless a newer one is kept or the campaign is gone."""
        ...

    async def delete_campaign(self, kind: str, name: str) -> bool:
        """Remove the campaign with its events; False when it was not there."""
        ...
