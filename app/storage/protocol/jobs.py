"""Jobs: what a process computes for a bandit while its client goes on, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

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

    All jobs, those of one bandit, and the bytes of all results are bounded: see ``redis_jobs``.
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
