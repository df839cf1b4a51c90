"""What requests leave in the store, looked at all the time: bounds hold across processes by it."""

from __future__ import annotations

import asyncio
import contextlib

from app.errors import Unavailable
from app.storage.protocol import Usage

LOOK_S = 1.0


async def watch(store: Usage) -> None:
    """Look every ``LOOK_S``, until cancelled. A store that does not answer takes no writes either."""
    while True:
        with contextlib.suppress(Unavailable):
            await store.usage()
        await asyncio.sleep(LOOK_S)
