"""What requests leave in the store, looked at all the time: bounds hold across processes by it."""

from __future__ import annotations

from app.background import repeat
from app.storage.protocol import Store

LOOK_S = 1.0


async def watch(store: Store) -> None:
    """Look every ``LOOK_S``, until cancelled. A store that does not answer takes no writes either."""
    await repeat(store.usage.read, every_s=LOOK_S)
