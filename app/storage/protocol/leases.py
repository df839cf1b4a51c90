"""Which workers there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from app.storage.protocol.learner_id import Partitioned


class WorkerLeases(Partitioned, Protocol):
    """Leases of workers by name, by the clock of the store. A lease is no lock: it only saves work."""

    async def join_workers(self, name: str, lease_ms: int) -> Sequence[str]:
        """Begin a worker's lease, or begin it anew; return the names of all that hold one."""
        ...

    async def leave_workers(self, name: str) -> None:
        """End the lease of a worker."""
