"""What requests leave in the store, looked at all the time: bounds hold across processes by it."""

from __future__ import annotations

from collections.abc import Mapping

from app.background import repeat
from app.storage.protocol import Kind, Store

LOOK_S = 1.0
IDLE_S = 4.0


async def watch(store: Store) -> None:
    """Look every ``LOOK_S``, while nothing changes less and less often, up to ``IDLE_S``, until cancelled.

    A store that does not answer takes no writes either.
    """
    before: Mapping[Kind, int] = {}

    async def look() -> bool:
        nonlocal before
        known, before = before, await store.usage.read()
        return before != known

    await repeat(look, every_s=LOOK_S, idle_s=IDLE_S)
