"""Campaigns, and jobs: what goes on while a client does something else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


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


class CampaignStore(Protocol):
    """Campaigns by kind and name. A record begins with a uid of 16 characters.

    What would make all campaigns together larger than their bound raises ``QuotaReached``, and changes
    nothing; a snapshot is then not saved.
    """

    async def create(self, kind: str, name: str, record: bytes) -> bytes:
        """Store ``record`` if the name is free; return the one that the name has now.

        In two steps; a crash in between leaves nothing that anybody sees.
        """
        ...

    async def names(self, kind: str) -> Sequence[str]:
        """Names of all campaigns of a kind, ascending. Not a snapshot: each was there at some moment."""
        ...

    async def read(
        self, kind: str, name: str, *, uid: str, position: int, count: int
    ) -> StoredCampaign | None:
        """At most ``count`` events: from ``position`` on if its uid is ``uid``, else from its snapshot.

        None when there is no such campaign.
        """
        ...

    async def append(
        self, kind: str, name: str, *, uid: str, position: int, event: bytes
    ) -> Literal["appended", "overtaken", "missing"]:
        """Compare and append: only if there are exactly ``position`` events, else "overtaken".

        After a lost reply that may be by one's own call: read the campaign again.
        """
        ...

    async def save_snapshot(self, kind: str, name: str, *, uid: str, position: int, state: bytes) -> None:
        """Keep the state after ``position`` events, unless a newer one is kept or the campaign is gone."""

    async def delete(self, kind: str, name: str) -> bool:
        """Remove the campaign with its events; False when it was not there. In two steps, as creating."""
        ...


KeptJob = Literal["kept", "full", "missing"]


@dataclass(frozen=True, slots=True)
class StoredJob:
    """``head``: what its process says of it. ``is_alive``: whether that process has a lease on it.

    ``result``: b"" where there is none, or it was not asked for.
    """

    id: str
    head: bytes
    is_alive: bool
    result: bytes = b""


class JobStore(Protocol):
    """Jobs by bandit and id. All times are by the clock of the store; what is over is not there any more.

    All jobs, those of one bandit, and the bytes of all results are bounded: see ``jobs``.
    """

    async def add(self, bandit_uid: str, job_id: str, head: bytes, *, lease_ms: int, keep_ms: int) -> bool:
        """Begin a job, whose process has a lease; False, and nothing is changed, where there are too many."""
        ...

    async def keep(
        self, bandit_uid: str, job_id: str, head: bytes, *, lease_ms: int, keep_ms: int, result: bytes = b""
    ) -> KeptJob:
        """Say how a job stands, and begin its lease and its time anew.

        ``missing``: it was deleted, or its time is over. ``full``: there is no room for the result. Nothing
        is changed then.
        """
        ...

    async def read(self, bandit_uid: str, job_id: str) -> StoredJob | None:
        """A job, with its result."""
        ...

    async def jobs(self, bandit_uid: str) -> Sequence[StoredJob]:
        """All jobs of a bandit, without results, in ascending order of their ids."""
        ...

    async def delete(self, bandit_uid: str, job_id: str) -> bool:
        """Drop a job; False if it was not there."""
        ...
