"""Yielding on the event loop: work of many small steps lets others go first after a few milliseconds.

A step that awaits nothing keeps every other request waiting. So a loop over what one request may hold many of
says ``await yield_to_others()`` in each of its steps. All requests share one slice of time: however many of
them are under way, between two looks at the network they take ``SLICE_S`` and one step together.
"""

from __future__ import annotations

import asyncio
import time

SLICE_S = 0.002


class _Slice:
    """``ends``: until when steps may follow each other. A new slice begins when others were served."""

    ends = 0.0


async def yield_to_others() -> None:
    """Return at once within the slice; after it, let others go first, and begin another one."""
    while time.perf_counter() >= _Slice.ends:
        ended = _Slice.ends
        await asyncio.sleep(0)
        if _Slice.ends == ended:  # else another task has begun the slice, and may have used it up
            _Slice.ends = time.perf_counter() + SLICE_S
            return
