"""The processes that fold the reward log, as seen by those that append to it. See ``workers.leases``."""

from __future__ import annotations

from typing import Protocol

WAIT_S = 10.0


class Workers(Protocol):
    """The workers of all partitions, in this process or in others."""

    def wake(self, partition: int) -> None:
        """There is something new in the log of this partition."""

    async def wait_applied(self, partition: int, entry_id: str) -> bool:
        """True once the entry is folded and stored; False when it is not within ``WAIT_S``."""
        ...
