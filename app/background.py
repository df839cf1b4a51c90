"""The end of tasks that run for as long as the service does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

PATIENCE_S = 1.0


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and return once all have ended.

    A cancellation can get lost: in ``asyncio.wait_for`` of Python 3.11, or in ``asyncio.gather`` where one of
    those that it waits for fails at the same moment. So it is asked for again.
    """
    running = {task for task in tasks if not task.done()}
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=PATIENCE_S)
