"""Values that are written once: the first writer decides, and all agree."""

from __future__ import annotations

from typing import Protocol


class WriteOnce(Protocol):
    """Write-once registers by name, in the registry (``partition`` None) or in a partition."""

    async def put_once(self, partition: int | None, name: str, value: bytes, *, ttl_ms: int | None) -> bytes:
        """Store ``value`` unless the name has one; return the one that it has now.

        ``ttl_ms`` None: it stays for ever.
        """
        ...

    async def get_once(self, partition: int | None, name: str) -> bytes | None: ...
