"""Whether a caller still waits, and how long work lets other requests run first.

The server notes in ``Caller.left`` when a connection is gone. Work that has not begun by then is not begun,
and a batch ends before its next item. Work that has begun is finished, writes among it.

A step that awaits nothing keeps every other request waiting. So a loop over many items of one request says
``await yield_to_others()`` in each step. All requests share one slice of time: however many are under way,
between two turns of the network they take ``SLICE_S`` and one step together.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")


class Caller:
    """The other end of a connection. ``give_up`` closes that at once, for a reason; None: it cannot."""

    left = False
    give_up: Callable[[str], None] | None = None


class CallerLeft(Exception):
    """Nobody waits for it any more."""


_CALLER: ContextVar[Caller | None] = ContextVar("caller", default=None)


def set_caller(caller: Caller | None) -> None:
    """Set who waits for this task from now on; None: it is finished even if everybody leaves."""
    _CALLER.set(caller)


def caller() -> Caller | None:
    """Who waits for what this task does."""
    return _CALLER.get()


def check(waits: Caller | None) -> None:
    """Raise CallerLeft if that caller is gone."""
    if waits is not None and waits.left:
        raise CallerLeft


def task_for_all(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task that several callers wait for: it goes on when the one leaves who asked first.

    asyncio does not report its failure where nobody waits any more: the next caller begins another.
    """
    # A copy of the context, so that only the task has nobody who waits, and traces and request ids go on.
    context: Context = copy_context()
    context.run(set_caller, None)
    task = asyncio.create_task(work, context=context)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


SLICE_S = 0.002
MOST_TURNS = 500  # of others, before a step goes on all the same


class _Slice:
    """``ends``: until when steps may follow each other. A new slice begins when others were served."""

    ends = 0.0


async def yield_to_others() -> None:
    """Return at once within the slice; after it, let others go first, and begin another one."""
    for _ in range(MOST_TURNS):
        if time.perf_counter() < _Slice.ends:
            return
        ended = _Slice.ends
        await asyncio.sleep(0)
        if _Slice.ends == ended:  # else another task has begun the slice, and may have used it up
            break
    # Not until it has a slice of its own: where many calls come in it would wait for ever.
    _Slice.ends = time.perf_counter() + SLICE_S
